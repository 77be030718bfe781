"""Audits of random histories say nothing that is untrue, by an oracle that has lived them.

PELOPS_TEST_ORACLE_SEEDS=200 lives so many at once. `python -m tests.pipeline.oracle --seed N
--shrink` lives one again and shows the smallest part of it that fails.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from pelops.pipeline.session import LazySession
from tests.pipeline.oracle.histories import Files, History, make_history, make_long_history
from tests.pipeline.oracle.known import KNOWN
from tests.pipeline.oracle.lives import Options, live
from tests.redis_fixtures import NEWEST_UNLESS_FULL

SEEDS: Final = int(os.environ.get("PELOPS_TEST_ORACLE_SEEDS", "20"))
MORE: Final = 200  # of these, the rest runs in `make test-full`
LARGE: Final = int(os.environ.get("PELOPS_TEST_ORACLE_LARGE", "0"))
# With whole files, without any, and with files that start over in between.
_LARGE_SEEDS: Final = (1006, 1009, 1004, 1001, 1005, 1011)


def _check(spark: LazySession, history: History, node: int = 5) -> None:
    found = live(spark, history, Options(node=node))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize(
    "seed",
    [
        *range(SEEDS),
        *(pytest.param(seed, marks=pytest.mark.full) for seed in range(SEEDS, max(SEEDS, MORE))),
    ],
)
def test_audits_of_a_random_history_say_nothing_untrue(lazy_spark: LazySession, seed: int) -> None:
    _check(lazy_spark, make_history(seed))


@pytest.mark.full
@pytest.mark.parametrize("name", KNOWN)
def test_what_was_untrue_once_is_not_again(lazy_spark: LazySession, name: str) -> None:
    _check(lazy_spark, KNOWN[name])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("files", [Files.WHOLE, Files.NONE])
@pytest.mark.parametrize("server", NEWEST_UNLESS_FULL)
@pytest.mark.parametrize("entries", [5000, pytest.param(50_000, marks=pytest.mark.full)])
def test_audits_of_a_long_history_say_nothing_untrue(
    lazy_spark: LazySession, server: str, files: Files, entries: int
) -> None:
    _check(lazy_spark, make_long_history(entries, files=files, server=server), node=100)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LARGE, reason="takes minutes: PELOPS_TEST_ORACLE_LARGE=3 asks for three")
@pytest.mark.parametrize("seed", _LARGE_SEEDS[: max(1, LARGE)])
def test_audits_of_many_entries_say_nothing_untrue(lazy_spark: LazySession, seed: int) -> None:
    _check(lazy_spark, make_history(seed, scale=2000), node=100)
