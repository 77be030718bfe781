"""Which windows a run works on: those that were begun, then those that can be closed now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from pelops.clock import from_ms, to_ms
from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import parse_ledger_event
from pelops.domain.naming import derive_keys
from pelops.pipeline.records import Known
from pelops.pipeline.redis_reader import RedisReader, ServerSnapshot, StreamSnapshot
from pelops.pipeline.settings import AuditTarget, PipelineSettings
from pelops.pipeline.windows import (
    Checkpoint,
    Plan,
    Replacement,
    StreamRecord,
    Traces,
    beginning,
    close_windows,
    find_break,
    find_replacement,
    read_checkpoint,
)

_OVERLAP: Final = timedelta(minutes=1)  # of what two windows read of a ledger: clocks go back
_MOST_AT_ONCE: Final = 100  # windows of one stream in one run: the next run goes on


def plan_windows(
    watch: RedisReader,
    settings: PipelineSettings,
    stream: str,
    targets: Sequence[AuditTarget],
    known: Known,
) -> list[Plan]:
    """The windows of a stream to work on, in order: unfinished ones, then new ones."""
    new = list(_plan_new(watch, settings, stream, targets, known))
    return [*known.unfinished, *new][:_MOST_AT_ONCE]


def _plan_new(
    watch: RedisReader,
    settings: PipelineSettings,
    stream: str,
    targets: Sequence[AuditTarget],
    known: Known,
) -> Iterator[Plan]:
    last = known.last
    # Positions first: what they had passed then was there to be delivered.
    positions = {group: look.position for group, look in watch.groups(stream).items()}
    look = watch.stream(stream)
    now = Checkpoint(at_id=look.last_generated, added=look.added, at=from_ms(watch.now_ms(stream)))
    server = watch.server(stream)
    found = _find_break(watch, known, look, server)
    broken = found.broken
    begin = beginning(look, now) if last is None or broken is not None else last.end
    # After a failover to a server whose clock is behind, no window would be long enough for long.
    is_behind = now.at < begin.at
    span = None if last is None or broken is not None or is_behind else settings.window
    checkpoints = [now]
    if span is not None and targets and now.at - begin.at >= 2 * span:
        ledger = derive_keys(stream, targets[0].group).ledger
        reported = _reported_checkpoints(watch, ledger, stream, begin)
        # A window in which nothing was added is closed for what is open, which is looked at now.
        checkpoints += [one for one in reported if one.at <= now.at and one.added > begin.added]
    windows = close_windows(begin, checkpoints, span=span, number=known.next_number)
    basis = Plan(
        stream=stream,
        window=Window(
            number=0, from_id=EntryId.MIN, to_id=EntryId.MIN, from_added=0, to_added=0, at=now.at
        ),
        targets=tuple(targets),
        payload=settings.payload,
        business_key=settings.business_key,
        positions={t.group: positions[t.group] for t in targets if t.group in positions},
        ledger_from=_ledger_since(targets, last, begin, now),
        removed=look.removed,
        retention_margin=None if last is None else _margin(last, look),
        doubts=() if found.doubt is None else (found.doubt,),
        max_deleted=look.max_deleted,
        run_id=server.run_id,
    )
    for window in windows:
        plan = replace(basis, window=window, breaks=() if broken is None else (broken,))
        plan = replace(
            plan,
            retries=_retries(watch, plan, last),
            end_digest=_digest(watch, stream, window.to_id),
        )
        yield plan
        basis = replace(basis, ledger_from=_ledger_from(targets, plan.end), doubts=())
        last, broken = plan, None


def _find_break(
    watch: RedisReader, known: Known, look: StreamSnapshot, server: ServerSnapshot
) -> Replacement:
    """Whether the stream is another one than the newest window's, or may be."""
    last = known.last
    if last is None:
        return Replacement()
    broken = find_break(last.end, look)
    if broken is not None:
        return Replacement(broken=broken)
    is_same = _is_same(watch, last)
    if is_same:
        return Replacement()
    traces = Traces(
        was_there=last.end_digest is not None,
        is_same=is_same,
        max_deleted=last.max_deleted,
        restarted=last.run_id not in {"", server.run_id},
        began_empty=server.began_empty,
        ledger_is_left=_is_ledger_left(watch, known.record),
    )
    return find_replacement(last.end, look, traces)


def _is_same(watch: RedisReader, last: Plan) -> bool | None:
    """Whether the newest window's last entry is as it was; None when it is not there."""
    digest = _digest(watch, last.stream, last.window.to_id)
    if digest is None:
        return None
    # One that was not there when the window was planned had been deleted, and is another one.
    return digest == last.end_digest if last.run_id else True


def _digest(watch: RedisReader, stream: str, entry_id: EntryId) -> str | None:
    """Of the fields of an entry; None when it is not there."""
    digest = blake2b(digest_size=16)
    for _, flat in watch.ask(stream, "XRANGE", stream, str(entry_id), str(entry_id)):
        for part in flat:
            digest.update(b"%d:%b" % (len(part), part))
        return digest.hexdigest()
    return None


def _is_ledger_left(watch: RedisReader, record: StreamRecord | None) -> bool | None:
    """Whether an event that was archived is still in a ledger: then no data was lost.

    None when the newest window saw no event.
    """
    is_left = None
    for group, end in ({} if record is None else record.ledgers).items():
        assert record is not None
        ledger, event = derive_keys(record.plan.stream, group).ledger, str(end.last)
        if end.exists and end.last > EntryId.MIN:
            is_left = bool(watch.ask(ledger, "XRANGE", ledger, event, event))
        if is_left:
            return True
    return is_left


def _reported_checkpoints(
    watch: RedisReader, ledger: str, stream: str, begin: Checkpoint
) -> Iterator[Checkpoint]:
    """The operator's checkpoints since `begin`."""
    after = EntryId(to_ms(begin.at), 0)
    for entry_id, flat in watch.entries(ledger, after, EntryId.MAX):
        pairs = dict(zip(flat[::2], flat[1::2], strict=True))
        checkpoint = read_checkpoint(parse_ledger_event(entry_id, pairs), stream)
        if checkpoint is not None:
            yield checkpoint


def _ledger_since(
    targets: Sequence[AuditTarget], last: Plan | None, begin: Checkpoint, now: Checkpoint
) -> dict[str, EntryId]:
    """From where each ledger is read: all of it for the first window."""
    if last is not None and now.at < begin.at:
        # IDs go on from where they were, however far the clock went back.
        return last.ledger_from
    return _ledger_from(targets, None if last is None else begin)


def _ledger_from(targets: Sequence[AuditTarget], begin: Checkpoint | None) -> dict[str, EntryId]:
    if begin is None:
        return {}
    at = EntryId(max(0, to_ms(begin.at - _OVERLAP)), 0)
    return {target.group: at for target in targets}


def _margin(last: Plan, look: StreamSnapshot) -> float | None:
    """What of the retained part lies between what is trimmed and what is archived."""
    if look.length == 0 or look.removed == 0 or look.added <= last.window.to_added:
        return 1.0
    return round((last.window.to_added - look.removed) / look.length, 6)


def _retries(
    watch: RedisReader, plan: Plan, last: Plan | None
) -> dict[str, tuple[EntryId, EntryId]]:
    """What of each group's retry stream belongs to the window: all since the last one."""
    found = {}
    known: Mapping[str, tuple[EntryId, EntryId]] = {} if last is None else last.retries
    for target in plan.targets:
        look = watch.stream(derive_keys(plan.stream, target.group).retry)
        if look.exists:
            _, after = known.get(target.group, (EntryId.MIN, EntryId.MIN))
            found[target.group] = (min(after, look.last_generated), look.last_generated)
    return found
