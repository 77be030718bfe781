"""Audits of random histories say nothing that is untrue, by an oracle that has lived them.

PELOPS_TEST_ORACLE_SEEDS=200 lives so many at once. `python -m tests.pipeline.oracle --seed N
--shrink` lives one again and shows the smallest part of it that fails.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from pelops.pipeline.session import LazySession
from tests.pipeline.oracle.histories import make_history
from tests.pipeline.oracle.known import KNOWN
from tests.pipeline.oracle.lives import Options, live

SEEDS: Final = int(os.environ.get("PELOPS_TEST_ORACLE_SEEDS", "20"))
MORE: Final = 200  # of these, the rest runs in `make test-full`
LARGE: Final = int(os.environ.get("PELOPS_TEST_ORACLE_LARGE", "0"))
_SCALE: Final = 2000
# With whole files, without any, and with files that start over in between.
_LARGE_SEEDS: Final = (1006, 1009, 1004, 1001, 1005, 1011)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_audits_of_a_random_history_say_nothing_untrue(lazy_spark: LazySession, seed: int) -> None:
    found = live(lazy_spark, make_history(seed))
    assert not found, "\n".join(map(str, found))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(SEEDS, max(SEEDS, MORE)))
def test_audits_of_more_random_histories_say_nothing_untrue(
    lazy_spark: LazySession, seed: int
) -> None:
    found = live(lazy_spark, make_history(seed))
    assert not found, "\n".join(map(str, found))


@pytest.mark.full
@pytest.mark.parametrize("name", KNOWN)
def test_what_was_untrue_once_is_not_again(lazy_spark: LazySession, name: str) -> None:
    found = live(lazy_spark, KNOWN[name])
    assert not found, "\n".join(map(str, found))


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LARGE, reason="takes minutes: PELOPS_TEST_ORACLE_LARGE=3 asks for three")
@pytest.mark.parametrize("seed", _LARGE_SEEDS[: max(1, LARGE)])
def test_audits_of_many_entries_say_nothing_untrue(lazy_spark: LazySession, seed: int) -> None:
    found = live(lazy_spark, make_history(seed, scale=_SCALE), Options(node=100))
    assert not found, "\n".join(map(str, found))
