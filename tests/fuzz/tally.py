"""What a fuzz test takes and what it has done: the seed, how many, and how they ended."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

SEED: Final = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)


class Tally:
    """Prints what a test has done, and hands it to `python -m tests.fuzz`, which adds it up."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def __call__(self, of: str, count: int, where: str, ends: Counter[str]) -> None:
        """So many specs or replies were sent there, and ended so."""
        print(f"FUZZ_SEED={SEED} {where}: {count} {of}, {dict(ends)}")
        self._record(of, count)


def numbers_of(variable: str, short: int, long: int) -> list[Any]:
    """How many a test takes: few always, many in `make test-full`, or what the variable says."""
    if variable in os.environ:
        return [pytest.param(int(os.environ[variable]), marks=pytest.mark.timeout(3600))]
    return [short, pytest.param(long, marks=[pytest.mark.full, pytest.mark.timeout(3600)])]


def also_in_full(short: str, *long: str) -> list[Any]:
    """One case always, the others in `make test-full`."""
    return [short, *(pytest.param(one, marks=pytest.mark.full) for one in long)]


def replies_of(short: int, long: int) -> list[Any]:
    """How many spoilt replies a test takes."""
    return numbers_of("FUZZ_REPLIES", short, long)
