"""What Sentinels answer: the master is found, others are learned, nonsense is refused."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from pelops.domain.endpoint import Node
from pelops.errors import InvalidReply
from pelops.redis_core.masters import end_tasks
from pelops.redis_core.sentinel_answers import (
    MasterUnknown,
    SentinelAnswers,
    is_replica,
    usable_replicas,
)

ONE, TWO = Node("one", 1), Node("two", 2)
MASTER = [b"10.0.0.1", b"6379"]


def described(port: int, **facts: str) -> list[bytes]:
    reported = {"ip": "10.0.0.9", "port": str(port), **facts}
    return [part.encode() for pair in reported.items() for part in pair]


def answers() -> SentinelAnswers:
    return SentinelAnswers("orders", [ONE, TWO])


def test_the_one_that_answered_is_asked_first_next_time() -> None:
    sentinels = answers()
    assert sentinels.master(TWO, MASTER) == Node("10.0.0.1", 6379)
    assert sentinels.order == (TWO, ONE)


def test_others_are_learned_once() -> None:
    sentinels = answers()
    for _ in range(2):
        sentinels.master(ONE, MASTER, [described(7), described(8)])
    assert sentinels.order == (ONE, TWO, Node("10.0.0.9", 7), Node("10.0.0.9", 8))


def test_no_more_are_learned_than_can_be_asked() -> None:
    sentinels = answers()
    sentinels.master(ONE, MASTER, [described(port) for port in range(1, 10_000)])
    assert len(sentinels.order) == 32


@pytest.mark.parametrize(
    "others",
    [None, b"OK", ValueError(), [None], [[]], [[b"ip"]], [[b"ip", b"x"]], [described(0)], [[7, 8]]],
)
def test_the_master_counts_whatever_is_said_of_others(others: object) -> None:
    sentinels = answers()
    assert sentinels.master(ONE, MASTER, others) == Node("10.0.0.1", 6379)
    assert sentinels.order == (ONE, TWO)


@pytest.mark.parametrize(
    "address",
    [b"", 7, [], [b"a"], [b"a", b"b"], [b"", b"1"], [b"a", b"0"], [b"a", b"70000"], [b"\xff", b"1"],
     [b"a", b"1", b"2"], ["a", b"1"], [None, None]],
)  # fmt: skip
def test_what_is_no_address_is_refused(address: object) -> None:
    sentinels = answers()
    with pytest.raises(InvalidReply, match="invalid address of orders") as refused:
        sentinels.master(TWO, address)
    assert not isinstance(refused.value, MasterUnknown)
    assert sentinels.order == (ONE, TWO)


def test_a_master_that_is_not_watched_is_unknown() -> None:
    with pytest.raises(MasterUnknown, match="does not know the master orders"):
        answers().master(ONE, None)


def test_a_failure_reports_what_each_one_said() -> None:
    reported = str(
        answers().failure([(ONE, MasterUnknown("knows it not")), (TWO, OSError("gone"))])
    )
    assert (
        reported
        == "no Sentinel returned the address of the master orders: one:1: knows it not; two:2: gone"
    )


def test_replicas_that_are_down_or_behind_are_left_out() -> None:
    reply = [
        described(1, flags="slave", **{"master-link-status": "err"}),
        described(2, flags="s_down,slave", **{"master-link-status": "ok"}),
        described(3, flags="slave", **{"master-link-status": "ok"}),
        described(4),
        [b"nonsense"],
    ]
    assert usable_replicas(reply) == (Node("10.0.0.9", 3),)
    assert usable_replicas(ValueError()) == ()


def test_who_is_a_replica_says_so() -> None:
    assert is_replica(b"# Replication\r\nrole:slave\r\n")
    assert not any(map(is_replica, (b"role:master\r\n", None, PermissionError())))


# --- Tasks that listen to masters are ended


async def _swallow(times: int) -> None:
    """Wait for ever, and swallow so many cancellations first, as redis-py may."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_tasks_end_though_their_end_is_cancelled_meanwhile() -> None:
    task = asyncio.create_task(_swallow(3))
    ending = asyncio.create_task(end_tasks([task]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it waits for the task now
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    assert task.cancelled()
