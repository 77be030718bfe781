"""The input: Python source files that are on every machine that runs this."""

import os
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.counting import try_to_count

# Parsing is most of the work: fewer would be done before a worker can be killed, more would say
# nothing new and take minutes.
FILES_PER_PROCESSOR = 500
MOST_FILES = 4000
# Where Python keeps files that are wrong on purpose, to test itself with.
WRONG_ON_PURPOSE = ("lib2to3/tests/data/", "/bad")
# For a Python that comes without its tests.
BROKEN = {"half_written.py": "def half(\n", "merged.py": "<<<<<<< ours\nx = 1\n=======\n"}
OTHER_PACKAGES = frozenset({"site-packages", "dist-packages"})  # inside the standard library


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where files come from, all that are there and those that are taken."""

    label: str
    found: int
    every: int  # of those found each this-many-th is taken
    paths: tuple[Path, ...]


def choose_number(processors: int) -> int:
    """How many files a machine with so many processors indexes in some seconds."""
    return min(MOST_FILES, max(2, processors) * FILES_PER_PROCESSOR)


def find_corpus(most: int) -> tuple[Source, ...]:
    """About `most` files at most: half for the standard library, the rest for the packages."""
    library, packages = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    own = find_files(library, without=OTHER_PACKAGES)
    installed = find_files(packages)
    taken = take(own, max(1, most // 2))
    return (
        _source("standard library", own, taken),
        _source("installed packages", installed, take(installed, max(1, most - len(taken)))),
    )


def has_poison(sources: Iterable[Source]) -> bool:
    """Whether some of the files that are wrong on purpose are among these, and do not parse."""
    likely = [
        path
        for source in sources
        for path in source.paths
        if any(mark in str(path) for mark in WRONG_ON_PURPOSE)
    ]
    return any(try_to_count(path).error is not None for path in likely)


def write_poison(directory: Path) -> Source:
    """Files that do not parse, written to the directory."""
    for name, text in BROKEN.items():
        (directory / name).write_text(text)
    paths = tuple(directory / name for name in BROKEN)
    return Source(label="broken for the demo", found=len(paths), every=1, paths=paths)


def find_files(root: Path, *, without: Iterable[str] = ()) -> tuple[Path, ...]:
    """Every .py file below, sorted; directories of the names `without` are left out."""
    skipped = set(without)
    found = []
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if name not in skipped]
        found += [Path(directory, file) for file in files if file.endswith(".py")]
    return tuple(sorted(found))


def take(paths: Sequence[Path], most: int) -> tuple[Path, ...]:
    """All of them, or each n-th with the smallest n that gives at most `most`."""
    return tuple(paths[:: interval(len(paths), most)])


def interval(count: int, most: int) -> int:
    """The smallest n such that each n-th of `count` are at most `most`; `most` is above 0."""
    return max(1, -(-count // most))


def _source(label: str, found: Sequence[Path], taken: tuple[Path, ...]) -> Source:
    every = interval(len(found), max(1, len(taken)))
    return Source(label=label, found=len(found), every=every, paths=taken)


def describe(source: Source) -> str:
    """One line for people that hides nothing left out."""
    if source.every == 1:
        return f"{source.label}: all {source.found:,} files"
    return (
        f"{source.label}: {len(source.paths):,} of {source.found:,} files"
        f" (each {ordinal(source.every)}, to keep this short)"
    )


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st, ..."""
    tens = number % 100 in {11, 12, 13}
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
