"""The check of words finds what the glossary replaces, and nothing else."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

_TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools/check_words.py"))
check_file: Callable[[str, str], Iterable[tuple[int, str, str]]] = _TOOL["check_file"]


def _words(file: str, source: str) -> list[str]:
    return [word for _, word, _ in check_file(file, source)]


@pytest.mark.parametrize(
    ("file", "source", "found"),
    [
        ("pelops/a.py", "class SweepReport: ...", ["SweepReport"]),
        ("pelops/a.py", "def f(door: int) -> None: ...", ["door"]),
        ("pelops/a.py", "# the next sweep sees it", ["sweep"]),
        ("pelops/a.py", '"""Nothing is owed any more by the group."""', ["Nothing is owed"]),
        ("pelops/a.lua", "local x = 1 -- the hand-over stream", ["hand-over"]),
        ("docs/a.md", "Nobody is robbed.", ["is robbed"]),
    ],
)
def test_a_replaced_word_is_found(file: str, source: str, found: list[str]) -> None:
    assert _words(file, source) == found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("pelops/a.py", "class ScanReport: ..."),
        ("pelops/a.py", 'FIELD = "sweep:report"'),
        ("docs/a.md", "Run `python -m benchmarks.sweep`; the field is `crowd:<consumer>`."),
        ("docs/a.md", "Latency, outdoors, hindsight."),
        ("tests/faults/a.py", "robbed: int = 0"),
    ],
)
def test_what_is_stored_or_only_similar_may_stay(file: str, source: str) -> None:
    assert _words(file, source) == []
