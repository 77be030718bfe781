"""The demo's two kinds of workers, and what their effects show."""

import ast
from pathlib import Path

import pytest

from demo.counting import FileCounts, count_source, render_counts
from demo.effects import Effect, find_repeated, results_of

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "workers" / "python" / "worker.py"
PLAIN = ROOT / "demo" / "plain_worker.py"

COUNTS = count_source(b"x = 1\n")
PAIRS = {
    b"path": b"/lib/\xff.py",
    b"counts": render_counts(COUNTS).encode(),
    b"entry": b"9-1",
    b"original": b"1-1",
    b"consumer": b"pod:uid",
}


def function(path: Path, name: str) -> str:
    found = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return ast.unparse(found[0])


@pytest.mark.parametrize("name", ["work", "main"])
def test_the_plain_loop_is_that_of_the_examples(name: str) -> None:
    assert function(PLAIN, name) == function(EXAMPLE, name)


def test_the_plain_worker_imports_nothing_of_pelops() -> None:
    assert "pelops." not in PLAIN.read_text().partition('"""\n\n')[2]


def test_an_effect_is_parsed_even_with_an_undecodable_file_name() -> None:
    effect = Effect.parse(17, PAIRS)
    assert effect.path.encode(errors="surrogateescape") == b"/lib/\xff.py"
    assert (effect.entry_id, effect.original_id) == ("9-1", "1-1")
    assert (effect.consumer, effect.at_ms, effect.counts) == ("pod:uid", 17, COUNTS)


def test_processing_a_copy_again_is_a_repetition_and_the_last_result_counts() -> None:
    first = Effect.parse(1, PAIRS | {b"entry": b"1-1"})
    again = Effect.parse(2, PAIRS | {b"counts": render_counts(FileCounts(lines=7)).encode()})
    other = Effect.parse(3, PAIRS | {b"original": b"1-2", b"path": b"/b.py"})
    assert not find_repeated([first, other])
    assert find_repeated([first, other, again]) == {"1-1"}
    assert results_of([first, other, again])[first.path].lines == 7
