"""The queue of keys: when each is due, and never twice at once."""

from __future__ import annotations

import asyncio

import pytest

from pelops.controller.runtime.queue import KeyedQueue
from tests.virtual_time import virtually


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def queue() -> KeyedQueue[str]:
    return KeyedQueue(now)


@virtually
async def test_keys_come_when_they_are_due(queue: KeyedQueue[str]) -> None:
    for key, delay_s in (("late", 7.0), ("soon", 2.0), ("now", 0.0)):
        queue.add(key, delay_s=delay_s)
    taken = [(await queue.take(), now()) for _ in range(3)]
    assert taken == [("now", 0.0), ("soon", 2.0), ("late", 7.0)]
    assert len(queue) == 0


@virtually
async def test_keys_that_are_due_at_once_keep_their_insertion_order(queue: KeyedQueue[str]) -> None:
    for key in "bac":
        queue.add(key)
    assert [await queue.take() for _ in range(3)] == ["b", "a", "c"]


@virtually
async def test_only_untaken_keys_whose_time_came_count_as_due(queue: KeyedQueue[str]) -> None:
    for key, delay_s in (("late", 7.0), ("soon", 2.0), ("now", 0.0)):
        queue.add(key, delay_s=delay_s)
    assert queue.count_due() == 1
    await asyncio.sleep(3)
    assert queue.count_due() == 2
    await queue.take()
    assert queue.count_due() == 1


@pytest.mark.parametrize("delays_s", [(5.0, 1.0), (1.0, 5.0), (1.0, 1.0)])
@virtually
async def test_a_key_added_twice_comes_once_at_the_earlier_time(
    queue: KeyedQueue[str], delays_s: tuple[float, float]
) -> None:
    for delay_s in delays_s:
        queue.add("key", delay_s=delay_s)
    assert len(queue) == 1
    assert (await queue.take(), now()) == ("key", 1.0)
    queue.done("key")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 100)


@virtually
async def test_a_waiting_key_can_be_postponed_without_adding_others(queue: KeyedQueue[str]) -> None:
    queue.add("key", delay_s=1.0)
    queue.postpone("key", delay_s=5.0)
    queue.postpone("other", delay_s=1.0)
    assert len(queue) == 1
    assert (await queue.take(), now()) == ("key", 5.0)


@virtually
async def test_a_waiting_taker_wakes_up_for_a_key_due_earlier(queue: KeyedQueue[str]) -> None:
    queue.add("late", delay_s=60)
    worker = asyncio.create_task(queue.take())
    await asyncio.sleep(3)
    queue.add("now")
    assert (await worker, now()) == ("now", 3.0)


@virtually
async def test_many_workers_share_the_keys_and_none_waits_longer_than_it_must(
    queue: KeyedQueue[str],
) -> None:
    async def work() -> None:
        while True:
            key = await queue.take()
            seen.append((now(), key))
            await asyncio.sleep(1)
            queue.done(key)

    seen: list[tuple[float, str]] = []
    workers = [asyncio.create_task(work()) for _ in range(3)]
    for key, delay_s in (("a", 0.0), ("b", 0.0), ("c", 0.5), ("d", 0.5), ("e", 9.0)):
        queue.add(key, delay_s=delay_s)
    await asyncio.sleep(20)
    assert seen == [(0.0, "a"), (0.0, "b"), (0.5, "c"), (1.0, "d"), (9.0, "e")]
    for worker in workers:
        worker.cancel()


@virtually
async def test_a_key_added_while_taken_is_due_again_when_done(queue: KeyedQueue[str]) -> None:
    queue.add("key")
    key = await queue.take()
    queue.add("key")
    other = asyncio.create_task(queue.take())
    await asyncio.sleep(50)
    assert not other.done()
    queue.done(key)
    assert (await other, now()) == ("key", 50.0)


@pytest.mark.parametrize(
    ("added_s", "again_s", "due_s"), [(None, 5.0, 5.0), (2.0, 5.0, 2.0), (9.0, 5.0, 5.0)]
)
@virtually
async def test_a_returned_key_is_due_at_the_earlier_of_both_times(
    queue: KeyedQueue[str], added_s: float | None, again_s: float, due_s: float
) -> None:
    queue.add("key")
    key = await queue.take()
    if added_s is not None:
        queue.add(key, delay_s=added_s)
    queue.done(key, again_s=again_s)
    assert (await queue.take(), now()) == ("key", due_s)


@virtually
async def test_a_worker_that_gives_up_takes_no_key_along(queue: KeyedQueue[str]) -> None:
    queue.add("key", delay_s=5)
    impatient = asyncio.create_task(queue.take())
    patient = asyncio.create_task(queue.take())
    await asyncio.sleep(1)
    impatient.cancel()
    assert (await patient, now()) == ("key", 5.0)
