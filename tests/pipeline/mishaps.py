"""All that can befall a group's entries, and a life of many entries in which it all does."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from pelops.domain.recovery import Action
from tests.integration.redis_adapter import connected, endpoint_of
from tests.pipeline.driving import Driver
from tests.pipeline.truth import End, Truth
from tests.pipeline.wire import Wire, Word

STREAM, GROUP = "orders:events", "processing"
_DAY_MS: Final = 86_400_000
# What is left stuck is made to look idle for a day; the rest is not for as long as any life lasts.
STUCK_MS: Final = _DAY_MS // 2
BATCH: Final = 100


@dataclass(slots=True)
class Life:
    """One group's life so far."""

    driver: Driver
    port: int
    chance: random.Random
    size: int  # entries of a round
    consumers: int = 0
    happened: dict[str, int] = field(default_factory=dict)

    def newcomer(self) -> str:
        """The name of a worker that was not there before."""
        self.consumers += 1
        return f"worker-{self.consumers}"

    def some(self, places: list[int], number: int) -> list[int]:
        return sorted(self.chance.sample(places, min(number, len(places))))


Mishap = Callable[[Life], Awaitable[None]]


async def _crash(life: Life) -> None:
    """A worker dies with all that it holds, or with a part; the operator copies it."""
    driver, worker = life.driver, life.newcomer()
    held = driver.read(worker, BATCH)
    driver.acknowledge(worker, held[: life.chance.choice((0, len(held) // 2))])
    await driver.recover(worker, charged=life.chance.random() < 0.5)


async def _crash_to_retry_stream(life: Life) -> None:
    """As a crash, but the copies go to a stream of the group's own."""
    driver, worker = life.driver, life.newcomer()
    driver.read(worker, BATCH)
    await driver.recover(worker, to_retry=True)
    copies = driver.read("worker-of-copies", 2 * BATCH, driver.retry)
    driver.acknowledge("worker-of-copies", copies[3:], driver.retry)


async def _poison(life: Life) -> None:
    """Entries that no worker survives: their copies fail again until they are dead-lettered."""
    driver, worker = life.driver, life.newcomer()
    held = driver.read(worker, BATCH)
    failing = life.some(held, 2)
    driver.acknowledge(worker, set(held) - set(failing))
    driver.main.failing.update(dict.fromkeys(failing, 0))
    await driver.recover(worker)
    await _work(life, leave=0)


async def _deleted_while_pending(life: Life) -> None:
    """Bodies are deleted under workers: one still acknowledges, the operator finds the others."""
    driver, worker = life.driver, life.newcomer()
    held = driver.read(worker, BATCH)
    gone = life.some(held, 9)
    driver.delete(gone)
    driver.acknowledge(worker, (set(held) - set(gone)) | set(gone[:3]))
    await driver.recover(worker)


async def _claims_drop(life: Life) -> None:
    """Workers that claim drop the pending records of deleted entries, which are never handled."""
    driver, worker, claimer = life.driver, life.newcomer(), life.newcomer()
    held = driver.read(worker, BATCH)
    gone = life.some(held, 6)
    driver.delete(gone)
    driver.claim_bodyless(claimer, worker, gone[:3])
    driver.claim_any(claimer, held[0], BATCH)
    driver.acknowledge(claimer, driver.main.held[claimer] & set(held))
    driver.acknowledge(worker, driver.main.held[worker])


async def _takeover(life: Life) -> None:
    """Workers renew what they hold, read their history again, and take over from others."""
    driver, worker, other = life.driver, life.newcomer(), life.newcomer()
    held = driver.read(worker, BATCH)
    driver.claim(worker, held, "JUSTID")
    history = ("XREADGROUP", "GROUP", driver.keys.group, worker, "COUNT", BATCH, "STREAMS")
    driver.wire.ask(*history, driver.main.stream, "0")
    driver.claim(other, held[::2])
    driver.acknowledge(worker, held[1::2])
    driver.acknowledge(other, held[::2])
    # To acknowledge again, or an ID that is not pending, changes nothing.
    ids = [driver.main.ids[place] for place in held[:5]]
    assert driver.wire.ask("XACK", driver.main.stream, driver.keys.group, *ids, "1-1") == 0


async def _careless_trim(life: Life) -> None:
    """A user trims by length what is pending, and what was not even delivered."""
    driver, worker = life.driver, life.newcomer()
    held = driver.read(worker, BATCH)
    ahead = len(driver.main) - driver.main.reached
    driver.trim("MAXLEN", max(ahead - BATCH // 2, 1))
    driver.acknowledge(worker, held[:30])
    await driver.recover(worker)


async def _consumer_removed(life: Life) -> None:
    """A user deletes a worker's consumer; what it held is acknowledged too late, with others."""
    driver, worker, other = life.driver, life.newcomer(), life.newcomer()
    held = driver.read(worker, BATCH)
    driver.acknowledge(worker, held[10:])
    driver.remove_consumer(worker)
    of_other = driver.read(other, 10)
    ids = [driver.main.ids[place] for place in held[:10] + of_other]
    assert driver.wire.ask("XACK", driver.main.stream, driver.keys.group, *ids) == len(of_other)
    driver.main.finish(other, of_other, End.ACKNOWLEDGED)


async def _deleted_before_delivery(life: Life) -> None:
    driver = life.driver
    ahead = list(range(driver.main.reached, len(driver.main)))
    driver.delete([place for place in life.some(ahead, 5) if driver.main.bodies[place]])


async def _skipped(life: Life) -> None:
    driver = life.driver
    driver.set_position(min(driver.main.reached + 20, len(driver.main) - 1))


async def _set_back(life: Life) -> None:
    """A user has entries delivered again that were acknowledged before."""
    driver, worker = life.driver, life.newcomer()
    held = driver.read(worker, BATCH)
    driver.acknowledge(worker, held)
    driver.set_position(held[-20])
    again = driver.read(worker, BATCH)
    driver.acknowledge(worker, again)


async def _read_without_record(life: Life) -> None:
    life.driver.read_without_record(life.newcomer(), BATCH // 2)


async def _acknowledged_in_transactions(life: Life) -> None:
    """A worker that writes its results and acknowledges in one transaction."""
    driver, worker = life.driver, life.newcomer()
    held = driver.read(worker, BATCH)
    ids = [driver.main.ids[place] for place in held]
    words: list[tuple[Word, ...]] = [("XADD", "results", "*", "of", one) for one in ids]
    words += [("XACK", driver.main.stream, driver.keys.group, *ids)]
    driver.wire.ask_all([("MULTI",), *words, ("EXEC",)])
    driver.main.finish(worker, held, End.ACKNOWLEDGED)


async def killed(life: Life) -> None:
    """A real process dies (SIGKILL) after it has acknowledged a part of what it was given."""
    driver, worker = life.driver, life.newcomer()
    where = (str(life.port), driver.main.stream, driver.keys.group, worker)
    program = [sys.executable, "-m", "tests.pipeline.crashing_worker", *where, "50", "20"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ids = [line.encode() for line in process.stdout.readline().split()]
        assert process.stdout.readline() == "acknowledged\n"
        process.kill()
    places = driver.main.places(ids)
    driver.main.reached = places[-1] + 1
    driver.main.give(worker, places)
    driver.main.finish(worker, places[:20], End.ACKNOWLEDGED)
    await driver.recover(worker)


MISHAPS: Final[tuple[Mishap, ...]] = (
    *(_crash, _crash_to_retry_stream, _poison, _deleted_while_pending, _claims_drop, _takeover),
    *(_careless_trim, _consumer_removed, _deleted_before_delivery, _skipped, _set_back),
    *(_read_without_record, _acknowledged_in_transactions),
)


async def live(
    life: Life, entries: int, *, pauses: int = 0, pause: Callable[[], None] | None = None
) -> None:
    """Let so many entries be added and go their way; at the end some of every kind are left.

    The last quarter is never trimmed. `pause` is called so many times, the last near the end and
    others from the beginning on, while entries are pending and others undelivered.
    """
    order = list(MISHAPS)
    rounds = max(entries // life.size, len(order))
    kept = max(len(order), rounds * 3 // 4)
    kills = {round(part * entries) // life.size for part in (0.2, 0.5, 0.8)}
    stops = {rounds * one // (pauses - 1) for one in range(pauses - 1)}
    for number in range(rounds):
        life.driver.add(life.size)
        if pause is not None and number in stops:
            await _paused(life, pause)
        if number % len(order) == 0:
            life.chance.shuffle(order)
        # The process first: some mishaps leave nothing to read.
        chosen = [*([killed] if number in kills else []), order[number % len(order)]]
        for mishap in chosen:
            if mishap is not _careless_trim or number < kept:
                await mishap(life)
                life.happened[mishap.__name__] = life.happened.get(mishap.__name__, 0) + 1
        await _work(life, leave=life.chance.choice((0, 0, BATCH)))
        if number < kept and life.chance.random() < 0.5:
            _trim_with_care(life)
    _leave_open(life)
    if pause is not None and pauses:
        await _paused(life, pause)


async def _paused(life: Life, pause: Callable[[], None]) -> None:
    """What is open in the pause ends in every way after it."""
    driver, worker, other = life.driver, life.newcomer(), life.newcomer()
    held, of_other = driver.read(worker, BATCH), driver.read(other, BATCH)
    pause()
    driver.acknowledge(worker, held[: BATCH // 2])
    await driver.recover(worker)
    driver.acknowledge(other, of_other[BATCH // 4 :])
    driver.remove_consumer(other)
    ahead = range(driver.main.reached, len(driver.main))
    driver.delete(life.some([place for place in ahead if driver.main.bodies[place]], 5))


def _trim_with_care(life: Life) -> None:
    driver = life.driver
    first = min(driver.main.oldest_owed(), len(driver.main) - 1)
    driver.trim("MINID", driver.main.ids[first])


async def _work(life: Life, leave: int) -> None:
    """Workers process all but the last entries; poison fails until it is dead-lettered."""
    driver = life.driver
    while len(driver.main) - driver.main.reached > leave:
        worker = f"steady-{life.chance.randrange(8)}"
        held = driver.read(worker, BATCH)
        if not held:
            break
        failing = [place for place in held if place in driver.main.failing]
        driver.acknowledge(worker, set(held) - set(failing))
        for place in failing:
            action = Action.DEAD if driver.main.failing[place] >= 2 else Action.FREE
            await driver.settle(worker, place, action)


def _leave_open(life: Life) -> None:
    """Some stay pending, for long or not, with bodies or without, and some undelivered."""
    driver, worker = life.driver, "slow-worker"
    driver.add(5 * BATCH)
    held = driver.read(worker, BATCH)
    driver.claim(worker, held[:20], "IDLE", _DAY_MS, "JUSTID")
    driver.main.stuck.update(held[:20])
    driver.delete(held[15:25])
    driver.acknowledge(worker, held[60:])
    ahead = list(range(driver.main.reached, len(driver.main)))
    driver.delete(life.some(ahead, 7))


@asynccontextmanager
async def open_life(servers: RedisServers, *, seed: int, size: int) -> AsyncIterator[Life]:
    """A new group on an empty server that asks for no password."""
    keys, port = derive_keys(STREAM, GROUP), servers.master().port
    async with connected(endpoint_of(servers)) as server:
        wire = Wire(port)
        try:
            driver = Driver(wire, server, keys, Truth(keys.stream), Truth(keys.retry))
            await driver.provision()
            yield Life(driver, port, random.Random(seed), size)
        finally:
            wire.close()
