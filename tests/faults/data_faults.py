"""Faults by people with redis-cli: what is taken away is read in the same transaction."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError, ResponseError

from pelops.domain.naming import GroupKeys
from pelops.domain.records.state import SEEN_PENDING, SEEN_UNDELIVERED
from tests.faults.collecting import (
    Findings,
    rows_of,
    take_dead_letters,
    take_entries,
    take_ledger,
)
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import Disturbance, Source
from tests.faults.notes import DestroyNote, PlainNote
from tests.faults.scene import Scene, send
from tests.faults.world import World

ALL = 100_000
SEEN_WORK = 3  # entries: fewer may be finished between two observations
WORK_S = 8.0
REPORT_S = 30.0
OTHER_GROUP = "another"
RETRY_STREAM = "RetryStream"
RETURNED_S = 20.0
SWITCHES = 0.7  # of the times that a retry stream is not read, the strategy is changed and back


def flush_all(world: World, dice: random.Random) -> str:
    """FLUSHALL, after a look at all that goes."""
    server = world.connect()
    lost = 0
    with world.data_lock:
        at_ns = time.time_ns()
        pipeline = server.pipeline(transaction=True)
        for lane in world.lanes:
            _ask(pipeline, lane)
        pipeline.flushall()
        answers = pipeline.execute(raise_on_error=False)
        each = (len(answers) - 1) // len(world.lanes)  # the last one is that of FLUSHALL
        for number, lane in enumerate(world.lanes):
            names = _take(world, lane, answers[number * each : (number + 1) * each])
            _note(world, lane, "flush", at_ns, names)
            lost += len(names)
    return f"{lost} entries lost"


def destroy_group(world: World, dice: random.Random) -> str:
    """XGROUP DESTROY of a group in use."""
    lane = dice.choice(world.lanes)
    server = world.connect()
    with world.data_lock:
        at_ns = time.time_ns()
        seconds, microseconds = server.time()
        server.xgroup_destroy(lane.stream, lane.keys.group)
    at_ms = seconds * 1000 + microseconds // 1000
    world.notes.append(DestroyNote(lane=lane.name, at_ns=at_ns, at_ms=at_ms))
    return lane.name


def trim_stream(world: World, dice: random.Random) -> str:
    """XTRIM through what is pending and not yet delivered."""
    lane = dice.choice(world.lanes)
    server = world.connect()
    with world.data_lock:
        at_ns = time.time_ns()
        pipeline = server.pipeline(transaction=True)
        _ask(pipeline, lane)
        pipeline.xtrim(lane.stream, maxlen=dice.randrange(0, 30), approximate=False)
        pipeline.xrange(lane.stream)
        *answer, _, after = pipeline.execute(raise_on_error=False)
        owed = _take(world, lane, answer)
        left = {fields.get("unique") for _, fields in rows_of(after)}
        retry = {fields.get("unique") for _, fields in _rows(answer[1])}
        lost = owed - left - retry
        _note(world, lane, "trim", at_ns, lost)
    return f"{lane.name}: {len(lost)} entries lost"


def delete_stream(world: World, dice: random.Random) -> str:
    """DEL of a stream that the group has not finished; the operator must report what is lost.

    It is deleted when the operator has seen work to do: it cannot report what it never observed.
    """
    lane = dice.choice(world.lanes)
    server = world.connect()
    seen = _await_seen_work(server, lane)
    if not seen:
        return f"{lane.name}: no work was seen"
    with world.data_lock:
        at_ns = time.time_ns()
        pipeline = server.pipeline(transaction=True)
        pipeline.time()
        _ask(pipeline, lane)
        pipeline.delete(lane.stream)
        now, *answer, _ = pipeline.execute(raise_on_error=False)
        retry = {fields.get("unique") for _, fields in _rows(answer[1])}
        lost = _take(world, lane, answer) - retry
        _note(world, lane, "vanish", at_ns, lost)
    done = f"{lane.name}: {len(lost)} entries lost"
    if len(lost) >= SEEN_WORK and not _await_report(world, lane, now[0] * 1000 + now[1] // 1000):
        world.unreported.setdefault(lane.name, []).append(f"{done}, {seen} were seen before")
    return done


def _await_seen_work(server: Any, lane: GroupUnderFault) -> int:
    """The number of unfinished entries in the state; waits for one, and returns 0 without."""
    until = time.monotonic() + WORK_S
    while time.monotonic() < until:
        remembered = server.hmget(lane.keys.state, SEEN_PENDING, SEEN_UNDELIVERED)
        seen = sum(int(number or 0) for number in remembered)
        groups = server.xinfo_groups(lane.stream) if server.exists(lane.stream) else []
        pending = sum(one["pending"] for one in groups if one["name"] != OTHER_GROUP.encode())
        if seen >= SEEN_WORK and pending >= SEEN_WORK:
            return seen
        time.sleep(0.05)
    return 0


def _await_report(world: World, lane: GroupUnderFault, since_ms: int) -> bool:
    """Whether the operator records a loss in the ledger in time."""
    until = time.monotonic() + REPORT_S
    while time.monotonic() < until:
        with suppress(RedisError):
            events = world.connect().xrange(lane.keys.ledger, min=since_ms)
            if any(fields.get(b"kind") == b"data-loss" for _, fields in events):
                return True
        time.sleep(0.5)
    return False


def add_group(world: World, dice: random.Random) -> str:
    """A second group is created in mid-scan, and goes again."""
    lane = next(lane for lane in world.lanes if lane.strategy != RETRY_STREAM)
    server = world.connect()
    end_other_groups(world)
    world.signal_some(dice, signal.SIGKILL)
    time.sleep(dice.uniform(0, 0.5))
    server.xgroup_create(lane.stream, OTHER_GROUP, id="$", mkstream=True)
    began_ns = time.time_ns()
    world.signal_some(dice, signal.SIGKILL)
    time.sleep(dice.uniform(1.5, 4))
    ended_ns = time.time_ns()
    server.xgroup_destroy(lane.stream, OTHER_GROUP)
    if lane.strategy == "Requeue":
        world.other_groups.setdefault(lane.name, []).append((began_ns, ended_ns))
    return f"{lane.name} for {(ended_ns - began_ns) / 1e9:.1f} s"


def leave_retry_stream(world: World, dice: random.Random) -> str:
    """Workers read no new copies of their retry stream; the strategy may be another meanwhile."""
    lane = next(lane for lane in world.lanes if lane.strategy == RETRY_STREAM)
    switches = dice.random() < SWITCHES
    world.place.unread(lane).touch()
    try:
        _strand(world, lane, dice)
        if switches:
            world.ask_for(lane, strategy="Requeue")
            _strand(world, lane, dice)
            _await_returned(world, lane)
    finally:
        world.read_retry_streams()
    what = "the strategy was Requeue meanwhile" if switches else "the strategy stayed"
    return f"{lane.name}: {what}"


def _strand(world: World, lane: GroupUnderFault, dice: random.Random) -> None:
    """End workers of a lane, and leave the operators time to recover what they held."""
    for victim in dice.sample(living := world.living(lane), k=min(1, len(living))):
        send(victim, signal.SIGKILL)
    time.sleep(dice.uniform(1, 4))


def _await_returned(world: World, lane: GroupUnderFault) -> None:
    """Return once the retry stream has nothing for workers, none of which reads it.

    Raises TimeoutError: then copies are stranded there.
    """
    server, keys = world.connect(), lane.keys
    until = time.monotonic() + RETURNED_S
    while True:
        if not _waits(server, keys):
            return
        if time.monotonic() > until:
            raise TimeoutError(f"nothing moves what waits in {keys.retry}")
        time.sleep(0.2)


def _waits(server: Any, keys: GroupKeys) -> bool:
    """Whether the retry stream has a copy that is undelivered."""
    try:
        groups = server.xinfo_groups(keys.retry)
    except ResponseError:  # there is no such stream
        return False
    positions = [one["last-delivered-id"].decode() for one in groups]
    return bool(positions and server.xrange(keys.retry, f"({positions[0]}", "+", 1))


def end_other_groups(world: Scene) -> None:
    """Destroy what a lost sync of the server brought back: with it nothing is requeued."""
    server = world.connect()
    for lane in world.lanes:
        with suppress(ResponseError):  # there is no such stream
            server.xgroup_destroy(lane.stream, OTHER_GROUP)


def delete_consumer(world: World, dice: random.Random) -> str:
    """XGROUP DELCONSUMER by hand, with all that it holds."""
    lane = dice.choice(world.lanes)
    server = world.connect()
    with world.data_lock:
        consumers = server.xinfo_consumers(lane.stream, lane.keys.group)
        holders = sorted(one["name"] for one in consumers if one["pending"])
        if not holders:
            return "nobody holds anything"
        victim = dice.choice(holders)
        at_ns = time.time_ns()
        pipeline = server.pipeline(transaction=True)
        pipeline.xpending_range(lane.stream, lane.keys.group, "-", "+", ALL, victim)
        pipeline.xrange(lane.stream)
        pipeline.xgroup_delconsumer(lane.stream, lane.keys.group, victim)
        pending, entries, _ = pipeline.execute()
        names = {entry_id: fields.get("unique", "") for entry_id, fields in rows_of(entries)}
        lost = {names.get(one["message_id"].decode(), "") for one in pending} - {""}
        _note(world, lane, "delconsumer", at_ns, lost)
    return f"{victim.decode()} of {lane.name}: {len(lost)} entries lost"


def _ask(pipeline: Any, lane: GroupUnderFault) -> None:
    keys = lane.keys
    for key in (keys.stream, keys.retry, keys.dead_letter, keys.ledger, keys.worker_ledger):
        pipeline.xrange(key)
    pipeline.xpending_range(keys.stream, keys.group, "-", "+", ALL)
    pipeline.xpending_range(keys.retry, keys.group, "-", "+", ALL)
    pipeline.xinfo_groups(keys.stream)
    pipeline.xrange(keys.discarded)


def _take(world: World, lane: GroupUnderFault, answer: list[Any]) -> set[str]:
    """Remember what the streams of a lane held, and name the backlog."""
    findings, offset_ns = world.findings[lane.name], world.offset_ns
    stream, retry, letters, *ledgers = map(_rows, answer[:5])
    take_entries(stream, Source.STREAM, findings, offset_ns=offset_ns)
    take_entries(retry, Source.RETRY, findings, offset_ns=offset_ns)
    take_dead_letters(letters, Source.DEAD_LETTER, findings, offset_ns=offset_ns)
    take_dead_letters(_rows(answer[8]), Source.DISCARDED, findings, offset_ns=offset_ns)
    for ledger in ledgers:
        take_ledger(ledger, lane, findings, offset_ns=offset_ns)
    return _owed(findings, answer, stream, retry)


def _owed(findings: Findings, answer: list[Any], stream: Any, retry: Any) -> set[str]:
    pending = [(Source.STREAM, one) for one in _ids(answer[5])]
    pending += [(Source.RETRY, one) for one in _ids(answer[6])]
    names = {findings.names.get(place, "") for place in pending}
    position = _position(answer[7])
    undelivered = [fields for entry_id, fields in stream if _order(entry_id) > position]
    names |= {fields.get("unique", "") for fields in [*undelivered, *(f for _, f in retry)]}
    return names - {""}


def _position(groups: Any) -> tuple[int, int]:
    for one in groups if isinstance(groups, list) else ():
        if one["name"] != OTHER_GROUP.encode():
            return _order(one["last-delivered-id"].decode())
    return (0, 0)


def _order(entry_id: str) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence)


def _ids(pending: Any) -> Iterable[str]:
    return [one["message_id"].decode() for one in pending] if isinstance(pending, list) else []


def _rows(answer: Any) -> Any:
    return rows_of(answer) if isinstance(answer, list) else []


def _note(world: World, lane: GroupUnderFault, kind: str, at_ns: int, lost: set[str]) -> None:
    disturbance = Disturbance(kind=kind, at_ns=at_ns, lost=frozenset(lost))
    world.notes.append(PlainNote(lane=lane.name, disturbance=disturbance))
