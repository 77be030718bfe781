"""Decides by counters alone whether an audit of a stream would report anything new.

It takes a few commands for each group and the archive's record of the newest window, but no Spark
session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import parse_ledger_event
from pelops.pipeline.archive.records import Known
from pelops.pipeline.archive.redis_reader import GroupSnapshot, RedisReader, StreamSnapshot
from pelops.pipeline.archive.windows import LedgerEnd, Plan, StreamRecord, read_checkpoint
from pelops.pipeline.settings import AuditTarget, PipelineSettings

_MOST_CHECKPOINTS: Final = 100  # after the last archived event


def is_unchanged(
    watch: RedisReader, settings: PipelineSettings, known: Known, targets: Sequence[AuditTarget]
) -> bool:
    """Whether an audit would report the same for each group as the newest window's audit.

    False if entries are pending: they may have become stuck, although no counter has changed.
    """
    record = known.record
    if record is None or known.unfinished or not _has_same_settings(settings, record.plan, targets):
        return False
    if not _is_stream_unchanged(watch, record):
        return False
    groups = watch.groups(record.plan.stream)
    return all(
        _is_at_rest(
            record.before.get(target.group), record.after.get(target.group), groups, target.group
        )
        and _are_retries_unchanged(watch, record, target.group)
        and _is_ledger_unchanged(watch, record, target.group)
        for target in targets
    )


def _has_same_settings(
    settings: PipelineSettings, plan: Plan, targets: Sequence[AuditTarget]
) -> bool:
    tables = settings.sent is not None or settings.effects is not None
    wished = (tuple(targets), settings.payload, settings.business_key)
    # The user's tables may change without a change in Redis.
    return not tables and wished == (plan.targets, plan.payload, plan.business_key)


def _is_stream_unchanged(watch: RedisReader, record: StreamRecord) -> bool:
    plan = record.plan
    if plan.run_id not in {"", watch.server(plan.stream).run_id}:
        return False  # after a restart, the stream may have lost entries and received others
    snapshot = watch.stream(plan.stream)
    ends_there = (snapshot.last_generated, snapshot.added) == (
        plan.window.to_id,
        plan.window.to_added,
    )
    return snapshot.exists and ends_there and snapshot == record.stream


def _is_at_rest(
    before: GroupSnapshot | None,
    after: GroupSnapshot | None,
    now: Mapping[str, GroupSnapshot],
    group: str,
) -> bool:
    """Whether a group equals both snapshots of the audit, and nothing is pending."""
    there = now.get(group)
    if there is None or there.pending:
        return False
    # The time of the last delivery is only read in an audit.
    return all(one is not None and replace(one, given_ms=None) == there for one in (before, after))


def _are_retries_unchanged(watch: RedisReader, record: StreamRecord, group: str) -> bool:
    stream = derive_keys(record.plan.stream, group).retry
    snapshot = watch.stream(stream)
    known = record.plan.retries.get(group)
    if known is None or not snapshot.exists:
        return known is None and not snapshot.exists
    retry_record, now = record.retries.get(group), watch.groups(stream)
    if snapshot.last_generated != known[1]:
        return False
    if retry_record is None or retry_record.before is None:
        return group not in now and not snapshot.length
    is_read = group in now and now[group].position >= snapshot.last_generated
    return is_read and _is_at_rest(retry_record.before, retry_record.after, now, group)


def _is_ledger_unchanged(watch: RedisReader, record: StreamRecord, group: str) -> bool:
    """Whether both ledgers have no new events, except checkpoints with the same counters."""
    keys, end = derive_keys(record.plan.stream, group), record.ledgers.get(group)
    if end is None or watch.stream(keys.worker_ledger).last_generated != end.of_workers:
        return False
    snapshot: StreamSnapshot = watch.stream(keys.ledger)
    if snapshot.exists != end.exists or snapshot.last_generated < end.last:
        return False
    return snapshot.last_generated == end.last or _are_checkpoints(
        watch, keys.ledger, end, record.plan
    )


def _are_checkpoints(watch: RedisReader, ledger: str, end: LedgerEnd, plan: Plan) -> bool:
    command = ("XRANGE", ledger, f"({end.last}", "+", "COUNT", _MOST_CHECKPOINTS)
    page = watch.execute(ledger, *command)
    checkpoints = [
        read_checkpoint(
            parse_ledger_event(
                parse_entry_id(entry_id), dict(zip(flat[::2], flat[1::2], strict=True))
            ),
            plan.stream,
        )
        for entry_id, flat in page
    ]
    return len(page) < _MOST_CHECKPOINTS and all(
        checkpoint is not None
        and (checkpoint.at_id, checkpoint.added) == (plan.end.at_id, plan.end.added)
        for checkpoint in checkpoints
    )
