"""The pace of looks when there are very many groups."""

from pelops.controller.scaling.pace import (
    BUSY_PER_S,
    IDLE_PER_S,
    MOST_FOR_IDLE,
    IdleGroups,
    Pace,
)
from pelops.redis_streams.scaling.idle_streams import Waker


def co_failed(count: int, *, is_idle: bool) -> Pace:
    """So many groups, all of one kind."""
    filled = Pace(IdleGroups(Waker(lambda _: None)))
    for number in range(count):
        filled.stretch(("shop", f"orders-{number}"), 1.0, is_idle=is_idle)
    return filled


def test_few_groups_are_looked_at_as_often_as_they_need() -> None:
    for is_idle in (True, False):
        assert co_failed(50, is_idle=is_idle).stretch(("shop", "one"), 2.0, is_idle=is_idle) == 2.0


def test_busy_groups_share_what_one_replica_can_do() -> None:
    waited = co_failed(10 * BUSY_PER_S, is_idle=False).stretch(
        ("shop", "orders-0"), 1.0, is_idle=False
    )
    assert waited == 10.0


def test_idle_groups_wait_longer_the_more_there_are_but_not_for_ever() -> None:
    many = co_failed(4 * IDLE_PER_S, is_idle=True)
    assert many.stretch(("shop", "orders-0"), 2.0, is_idle=True) == 4.0
    busy_groups = co_failed(100 * IDLE_PER_S, is_idle=True)
    assert busy_groups.stretch(("shop", "orders-0"), 2.0, is_idle=True) == 2.0 * MOST_FOR_IDLE


def test_neither_idle_nor_deleted_groups_slow_down_busy_groups() -> None:
    idle = co_failed(100 * IDLE_PER_S, is_idle=True)
    assert idle.stretch(("shop", "busy"), 1.0, is_idle=False) == 1.0
    busy = co_failed(10 * BUSY_PER_S, is_idle=False)
    for number in range(10 * BUSY_PER_S):
        busy.forget(("shop", f"orders-{number}"))
    assert busy.stretch(("shop", "one"), 1.0, is_idle=False) == 1.0
