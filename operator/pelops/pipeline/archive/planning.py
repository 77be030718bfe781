"""Plans the windows of a run: unfinished ones, then those that can be closed now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from pelops.clock import from_ms, to_ms
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.audit import Window
from pelops.domain.records.ledger import parse_ledger_event
from pelops.pipeline.archive.records import Known
from pelops.pipeline.archive.redis_reader import RedisReader, ServerSnapshot, StreamSnapshot
from pelops.pipeline.archive.windows import (
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
from pelops.pipeline.settings import AuditTarget, PipelineSettings

_OVERLAP: Final = timedelta(minutes=1)  # of two windows' reads of a ledger, as clocks may go back
_MOST_AT_ONCE: Final = 100  # windows of one stream in one run; the next run continues


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
    # Positions first: entries that they had passed existed, to be delivered.
    positions = {group: snapshot.position for group, snapshot in watch.groups(stream).items()}
    snapshot = watch.stream(stream)
    now = Checkpoint(
        at_id=snapshot.last_generated, added=snapshot.added, at=from_ms(watch.now_ms(stream))
    )
    server = watch.server(stream)
    replacement = _find_break(watch, known, snapshot, server)
    broken = replacement.broken
    begin = beginning(snapshot, now) if last is None or broken is not None else last.end
    # After a failover to a server whose clock is behind, a span would keep windows open too long.
    is_behind = now.at < begin.at
    span = None if last is None or broken is not None or is_behind else settings.window
    checkpoints = [now]
    if span is not None and targets and now.at - begin.at >= 2 * span:
        ledger = derive_keys(stream, targets[0].group).ledger
        ledger_checkpoints = _reported_checkpoints(watch, ledger, stream, begin)
        # A window without new entries only audits open entries, so one that ends now is enough.
        checkpoints += [
            one for one in ledger_checkpoints if one.at <= now.at and one.added > begin.added
        ]
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
        removed=snapshot.removed,
        retention_margin=None if last is None else _margin(last, snapshot),
        doubts=() if replacement.doubt is None else (replacement.doubt,),
        max_deleted=snapshot.max_deleted,
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
    watch: RedisReader, known: Known, snapshot: StreamSnapshot, server: ServerSnapshot
) -> Replacement:
    """Whether the stream is not, or may not be, the one of the newest window."""
    last = known.last
    if last is None:
        return Replacement()
    broken = find_break(last.end, snapshot)
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
    return find_replacement(last.end, snapshot, traces)


def _is_same(watch: RedisReader, last: Plan) -> bool | None:
    """Whether the newest window's last entry is unchanged; None if it does not exist."""
    digest = _digest(watch, last.stream, last.window.to_id)
    if digest is None:
        return None
    # If it was already deleted when the window was planned, this entry is a different one.
    return digest == last.end_digest if last.run_id else True


def _digest(watch: RedisReader, stream: str, entry_id: EntryId) -> str | None:
    """A digest of the fields of an entry; None if it does not exist."""
    digest = blake2b(digest_size=16)
    for _, flat in watch.execute(stream, "XRANGE", stream, str(entry_id), str(entry_id)):
        for part in flat:
            digest.update(b"%d:%b" % (len(part), part))
        return digest.hexdigest()
    return None


def _is_ledger_left(watch: RedisReader, record: StreamRecord | None) -> bool | None:
    """Whether an archived event is still in a ledger, which shows that no data was lost.

    None if the newest window read no event.
    """
    is_left = None
    for group, end in ({} if record is None else record.ledgers).items():
        assert record is not None
        ledger, event = derive_keys(record.plan.stream, group).ledger, str(end.last)
        if end.exists and end.last > EntryId.MIN:
            is_left = bool(watch.execute(ledger, "XRANGE", ledger, event, event))
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
    """The ID after which each ledger is read; empty, for all of it, for the first window."""
    if last is not None and now.at < begin.at:
        # The IDs of a stream continue from the last one, even if the clock went back.
        return last.ledger_from
    return _ledger_from(targets, None if last is None else begin)


def _ledger_from(targets: Sequence[AuditTarget], begin: Checkpoint | None) -> dict[str, EntryId]:
    if begin is None:
        return {}
    at = EntryId(max(0, to_ms(begin.at - _OVERLAP)), 0)
    return {target.group: at for target in targets}


def _margin(last: Plan, snapshot: StreamSnapshot) -> float | None:
    """The archived share of the entries that the stream holds; negative: trimmed unarchived."""
    if snapshot.length == 0 or snapshot.removed == 0 or snapshot.added <= last.window.to_added:
        return 1.0
    return round((last.window.to_added - snapshot.removed) / snapshot.length, 6)


def _retries(
    watch: RedisReader, plan: Plan, last: Plan | None
) -> dict[str, tuple[EntryId, EntryId]]:
    """The range of each group's retry stream in this window: all since the last window."""
    ranges = {}
    known: Mapping[str, tuple[EntryId, EntryId]] = {} if last is None else last.retries
    for target in plan.targets:
        snapshot = watch.stream(derive_keys(plan.stream, target.group).retry)
        if snapshot.exists:
            _, after = known.get(target.group, (EntryId.MIN, EntryId.MIN))
            ranges[target.group] = (min(after, snapshot.last_generated), snapshot.last_generated)
    return ranges
