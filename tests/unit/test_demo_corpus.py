"""The demo's input: the same files each time, and never fewer in silence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.corpus import (
    Source,
    choose_number,
    describe,
    find_corpus,
    find_files,
    has_poison,
    interval,
    ordinal,
    take,
    write_poison,
)
from demo.counting import try_to_count

pytestmark = pytest.mark.full


def test_files_are_found_in_order_and_other_peoples_packages_are_left_out(tmp_path: Path) -> None:
    for name in ("b.py", "a/c.py", "a/notes.txt", "site-packages/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_files(tmp_path, without=["site-packages"])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a/c.py", "b.py"]


@given(count=st.integers(0, 10_000), most=st.integers(1, 10_000))
def test_never_more_than_wished_and_all_where_they_fit(count: int, most: int) -> None:
    taken = take([Path(str(number)) for number in range(count)], most)
    assert len(taken) <= most
    assert len(taken) == count or count > most
    assert bool(taken) == bool(count)


@given(count=st.integers(1, 10_000), most=st.integers(1, 10_000))
def test_no_smaller_interval_would_do(count: int, most: int) -> None:
    every = interval(count, most)
    assert every == 1 or -(-count // (every - 1)) > most


@pytest.mark.parametrize("most", [1, 10, 500])
def test_the_corpus_is_deterministic_and_describes_what_it_leaves_out(most: int) -> None:
    sources = find_corpus(most)
    assert sources == find_corpus(most)
    for source in sources:
        assert len(source.paths) <= max(1, most)
        assert source.paths == find_all(source)[:: source.every]
        assert f"of {source.found:,} files" in describe(source)


def find_all(source: Source) -> tuple[Path, ...]:
    everything = find_corpus(10**9)
    return next(one.paths for one in everything if one.label == source.label)


def test_a_corpus_that_fits_is_reported_as_whole() -> None:
    assert describe(find_corpus(10**9)[0]).startswith("standard library: all ")


@pytest.mark.parametrize(
    ("number", "word"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd"), (4, "4th")]
)
def test_ordinals_read_well(number: int, word: str) -> None:
    assert ordinal(number) == word


def test_poison_that_is_written_does_not_parse(tmp_path: Path) -> None:
    source = write_poison(tmp_path)
    assert len(source.paths) == source.found == 2
    assert all(try_to_count(path).error for path in source.paths)


def test_only_files_that_do_not_parse_are_poison(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad_name.py").write_text("x = 1\n")
    fine = Source(label="fine", found=1, every=1, paths=(tmp_path / "bad_name.py",))
    assert not has_poison([fine])
    (tmp_path / "bad_name.py").write_text("print 1\n")
    assert has_poison([fine])


def test_more_processors_index_more_files_within_limits() -> None:
    assert [choose_number(count) for count in (1, 2, 4, 8, 64)] == [1000, 1000, 2000, 4000, 4000]
