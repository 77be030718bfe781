"""The demo's counting: what is in a file, and that counts survive their way through Redis."""

import hashlib
from pathlib import Path

import pytest

from demo.counting import (
    UNPARSABLE,
    FileCounts,
    Totals,
    add_up,
    count_source,
    parse_counts,
    render_counts,
    try_to_count,
)

pytestmark = pytest.mark.full

SOURCE = b"""
import os, sys
from a import (b, c)

class Outer:
    class Inner:
        async def one(self): ...
    def two(self):
        def three(): ...
"""


def test_nested_definitions_and_every_imported_name_count() -> None:
    counts = count_source(SOURCE)
    assert (counts.functions, counts.async_functions, counts.classes) == (2, 1, 2)
    assert counts.imports == 4
    assert counts.lines == 9
    assert counts.error is None


@pytest.mark.parametrize(
    "source",
    [
        b"print 'python 2'\n",
        b"\xff\xfe\n",
        b"x = '\0'\n",  # a ValueError before Python 3.11.4
        b"# coding: no-such-encoding\n",
        b"(" * 1000,
    ],
)
def test_a_file_that_cannot_be_parsed_is_recorded_with_its_error(
    source: bytes, tmp_path: Path
) -> None:
    with pytest.raises(UNPARSABLE):
        count_source(source)
    (tmp_path / "bad.py").write_bytes(source)
    counts = try_to_count(tmp_path / "bad.py")
    assert counts.error is not None
    assert counts.error.startswith(("SyntaxError: ", "ValueError: "))
    assert counts.digest == hashlib.sha256(source).hexdigest()
    assert counts.lines == len(source.splitlines())


def test_invalid_escapes_in_other_peoples_code_are_no_noise() -> None:
    assert count_source(rb"x = '\d'").error is None


def test_a_file_that_is_not_there_is_recorded(tmp_path: Path) -> None:
    counts = try_to_count(tmp_path / "gone.py")
    assert counts == FileCounts(error="FileNotFoundError: No such file or directory")


def test_the_same_bytes_have_the_same_digest_and_others_another() -> None:
    assert count_source(b"x\n").digest == count_source(b"x\n").digest
    assert count_source(b"x\n").digest != count_source(b"x\r\n").digest


@pytest.mark.parametrize("counts", [count_source(SOURCE), FileCounts(error="OSError: ü")])
def test_counts_survive_redis(counts: FileCounts) -> None:
    assert parse_counts(render_counts(counts).encode()) == counts


def test_totals_are_sums() -> None:
    one, other = count_source(SOURCE), count_source(b"x = 1\n")
    assert add_up([one, other, one]) == Totals(
        files=3, lines=19, functions=4, async_functions=2, classes=4, imports=8
    )
    assert add_up([]) == Totals()
