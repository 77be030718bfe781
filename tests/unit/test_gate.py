"""How many turns run at once, whose comes next, and what becomes of one that fails or hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from pelops.controller.runtime.gate import (
    ENDING_S,
    STALL_LIMIT_S,
    Gate,
    Limits,
    Place,
    Progress,
)
from pelops.errors import DeadlineExceeded, InternalError, RedisUnavailable
from pelops.redis_core.sockets import TENANT
from tests.virtual_time import run_virtually, virtually

DEADLINE_S = 10.0
SMALL = Limits(deadline_s=DEADLINE_S, most=8, per_namespace=4, per_endpoint=2)


def now() -> float:
    return asyncio.get_running_loop().time()


async def hang() -> None:
    await asyncio.Event().wait()


async def cling() -> None:
    """Not to be cancelled."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def quick() -> float:
    return now()


@virtually
async def test_a_turn_returns_what_its_work_returns() -> None:
    assert await Gate("test", SMALL).run(Place("shop"), quick, what="shop/orders") == 0.0


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no number"),
        RecursionError("too deep"),
        MemoryError(),
        asyncio.CancelledError(),
        ExceptionGroup("several", [TypeError("one")]),
    ],
)
@virtually
async def test_whatever_a_turn_raises_arrives_as_an_error_of_its_resource(
    error: BaseException,
) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(InternalError, match=type(error).__name__):
        await Gate("test", SMALL).run(Place("shop"), fail, what="shop/orders")


@virtually
async def test_an_error_of_pelops_arrives_as_it_is() -> None:
    async def fail() -> None:
        raise RedisUnavailable("gone")

    with pytest.raises(RedisUnavailable, match="gone"):
        await Gate("test", SMALL).run(Place("shop"), fail, what="shop/orders")


@pytest.mark.parametrize("work", [hang, cling])
def test_a_turn_ends_at_its_deadline_even_if_it_cannot_be_cancelled(
    work: Callable[[], Coroutine[None, None, None]],
) -> None:
    async def scenario() -> float:
        with pytest.raises(DeadlineExceeded, match="within 10 s"):
            await Gate("test", SMALL).run(Place("shop"), work, what="shop/orders")
        return now()

    assert run_virtually(bounded(scenario())) <= DEADLINE_S + ENDING_S


async def bounded(work: Coroutine[None, None, float]) -> float:
    """Leave behind what cannot be cancelled: a loop that ends would wait for it."""
    result = await work
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.get_coro().close()
    return result


@virtually
async def test_a_caller_that_is_cancelled_takes_its_turn_along() -> None:
    ended = []

    async def note_end() -> None:
        try:
            await hang()
        finally:
            ended.append(now())

    gate = Gate("test", SMALL)
    turn = asyncio.create_task(gate.run(Place("shop"), note_end, what="shop/orders"))
    await asyncio.sleep(1)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert ended == [1.0]


def fill(gate: Gate, *places: Place) -> list[asyncio.Task[object]]:
    """Work that hangs, at these places."""
    return [asyncio.create_task(gate.run(one, hang, what=str(one))) for one in places]


@pytest.mark.parametrize(
    ("silent", "alive"),
    [
        ([Place("shop", "silent")] * 20, Place("shop", "alive")),
        ([Place("hostile", str(number)) for number in range(80)], Place("shop")),
    ],
    ids=["an endpoint", "all endpoints of a namespace"],
)
@virtually
async def test_what_is_silent_does_not_delay_others(silent: list[Place], alive: Place) -> None:
    gate = Gate("test", SMALL)
    hanging = fill(gate, *silent)
    await asyncio.sleep(1)
    assert await gate.run(alive, quick, what="shop/orders") == 1.0
    await end(hanging)


def test_the_next_free_place_goes_to_the_namespace_with_the_fewest() -> None:
    order: list[str] = []

    async def work(namespace: str, seconds: float) -> None:
        order.append(namespace)
        await asyncio.sleep(seconds)

    async def scenario() -> None:
        gate = Gate("test", Limits(deadline_s=100, most=3, per_namespace=3, per_endpoint=3))
        turns = [
            asyncio.create_task(
                gate.run(Place("many", str(number)), partial(work, "many", 5 + number), what="m")
            )
            for number in range(10)
        ]
        await asyncio.sleep(1)
        late = gate.run(Place("few"), partial(work, "few", 1), what="few")
        turns.append(asyncio.create_task(late))
        await asyncio.gather(*turns)

    run_virtually(scenario())
    assert order.index("few") == 3  # the first one after those that ran already


def test_a_place_that_work_clings_to_stays_taken() -> None:
    """Otherwise work that cannot be cancelled would pile up without any limit."""

    async def scenario() -> float:
        gate = Gate("test", SMALL)
        place = Place("shop", "clinging")
        await asyncio.gather(
            *(gate.run(place, cling, what="shop/orders") for _ in range(2)), return_exceptions=True
        )
        waiting = asyncio.create_task(gate.run(place, quick, what="shop/other"))
        await asyncio.sleep(1)
        assert gate.waiting == 1
        assert gate.has_waiting("shop") and not gate.has_waiting("other")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert gate.waiting == 0 and not gate.has_waiting("shop")
        return now()

    run_virtually(bounded(scenario()))


@virtually
async def test_turns_that_are_cancelled_while_they_wait_leave_no_trace() -> None:
    gate = Gate("test", SMALL)
    turns = fill(gate, *[Place("shop", "one")] * 10)
    await asyncio.sleep(1)
    assert gate.waiting == 8
    await end(turns)
    assert gate.waiting == 0
    assert await gate.run(Place("shop", "one"), quick, what="shop/orders") == now()


@virtually
async def test_work_knows_for_which_namespace_it_is_done() -> None:
    async def ask() -> str:
        return TENANT.get()

    gate = Gate("test", SMALL)
    assert await gate.run(Place("shop"), ask, what="shop/orders") == "shop"
    assert TENANT.get() == ""


@virtually
async def test_a_full_gate_with_waiters_is_reported_as_stalled() -> None:
    gate, progress = Gate("test", SMALL), Progress()
    progress.follow("test", gate.stalled_s)
    long = Limits(deadline_s=10 * STALL_LIMIT_S, most=1)
    stuck_gate = Gate("stuck", long)
    progress.follow("stuck", stuck_gate.stalled_s)
    turns = fill(stuck_gate, Place("a"), Place("b"))
    await asyncio.sleep(STALL_LIMIT_S / 2)
    assert progress.problem() == ""
    await asyncio.sleep(STALL_LIMIT_S)
    assert progress.problem() == "the stuck loop has made no progress for 90 s"
    await end(turns)
    assert progress.problem() == ""


@virtually
async def test_one_namespace_that_waits_for_itself_is_no_stall() -> None:
    gate = Gate("test", Limits(deadline_s=10 * STALL_LIMIT_S, per_endpoint=1))
    turns = fill(gate, *[Place("hostile", "silent")] * 50)
    await asyncio.sleep(2 * STALL_LIMIT_S)
    assert gate.waiting == 49
    assert gate.stalled_s() == 0
    await end(turns)


@virtually
async def test_a_failing_loop_is_restarted_and_reported_while_it_keeps_failing() -> None:
    begun: list[float] = []

    async def loop() -> None:
        begun.append(now())
        if len(begun) < 4:
            raise ValueError("a mistake of ours")
        await hang()

    progress = Progress()
    running = asyncio.create_task(progress.keep_running("test", loop))
    while len(begun) < 4:
        await asyncio.sleep(0.1)
    assert progress.problem() == "the test loop keeps failing: ValueError: a mistake of ours"
    await asyncio.sleep(STALL_LIMIT_S + 1)
    assert progress.problem() == ""
    await end([running])


async def end(tasks: list[asyncio.Task[object]] | list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
