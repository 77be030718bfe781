"""Whether a stream and its groups are as the last window left them: then there is nothing to audit.

Only counters are compared: a few commands for each group, the same small files of the last window,
and neither a job nor a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import parse_ledger_event
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import WindowPlace
from pelops.pipeline.archive.plan import Plan
from pelops.pipeline.archive.snapshot import parse_snapshot, parse_stream_snapshot
from pelops.pipeline.archive.window_selection import is_complete
from pelops.pipeline.archive.windows import Checkpoint, read_checkpoint
from pelops.pipeline.reconcile.previous import look_back
from pelops.pipeline.redis_reader import GroupSnapshot, RedisReader, StreamSnapshot
from pelops.pipeline.settings import AuditTarget, PipelineSettings
from pelops.pipeline.stages import PipelineRun, WindowWork

_MOST_CHECKPOINTS: Final = 100  # after the last event that was archived


def is_unchanged(run: PipelineRun, plan: Plan | None, targets: Sequence[AuditTarget]) -> bool:
    """Whether an audit now would report each group what the window of the plan told of it.

    It would not where entries are pending: they may have become stuck, with no counter changed.
    """
    if plan is None or not _asks_the_same(run.settings, plan, targets):
        return False
    if not is_complete(run, plan) or _is_damaged(run, plan):
        return False
    snapshot = run.storage.read_json(_place(run, plan).part("snapshot.json"))
    acts = run.storage.read_json(_place(run, plan).part("acts.json"))
    if snapshot is None or acts is None or not _is_stream_unchanged(run, plan, snapshot):
        return False
    groups = run.watch.groups(plan.stream)
    return all(
        _is_at_rest(snapshot["before"], snapshot["after"], groups, target.group)
        and _are_retries_unchanged(run.watch, plan, snapshot, target.group)
        and _is_ledger_unchanged(run.watch, plan, acts["groups"][target.group], target.group)
        for target in targets
    )


def _asks_the_same(settings: PipelineSettings, plan: Plan, targets: Sequence[AuditTarget]) -> bool:
    tables = settings.sent is not None or settings.effects is not None
    wished = (tuple(targets), settings.payload, settings.business_key)
    # Tables of the user's own change without a word to Redis.
    return not tables and wished == (plan.targets, plan.payload, plan.business_key)


def _is_damaged(run: PipelineRun, plan: Plan) -> bool:
    """Whether the next window would find that files of the archive are missing."""
    following = replace(plan, window=replace(plan.window, number=plan.window.number + 1))
    return bool(look_back(WindowWork(run=run, plan=following, place=_place(run, following))).damage)


def _is_stream_unchanged(run: PipelineRun, plan: Plan, snapshot: Mapping[str, Any]) -> bool:
    if plan.run_id not in {"", run.watch.server(plan.stream).run_id}:
        return False  # what was restarted may have come back with less, and been filled again
    look = run.watch.stream(plan.stream)
    ends_there = (look.last_generated, look.added) == (plan.window.to_id, plan.window.to_added)
    return look.exists and ends_there and look == parse_stream_snapshot(snapshot["stream"])


def _is_at_rest(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    now: Mapping[str, GroupSnapshot],
    group: str,
) -> bool:
    """Whether a group is as it was both when the look began and when it ended; nothing pending."""
    there = now.get(group)
    if there is None or there.pending:
        return False
    looks = [parse_snapshot(reported.get(group)) for reported in (before, after)]
    # When a consumer was last given an entry is asked for in an audit only.
    return all(one is not None and replace(one, given_ms=None) == there for one in looks)


def _are_retries_unchanged(
    watch: RedisReader, plan: Plan, snapshot: Mapping[str, Any], group: str
) -> bool:
    stream = derive_keys(plan.stream, group).retry
    look = watch.stream(stream)
    known = plan.retries.get(group)
    if known is None or not look.exists:
        return known is None and not look.exists
    reported = snapshot["retries"].get(group) or {}
    now = watch.groups(stream)
    if look.last_generated != known[1]:
        return False
    if not reported.get("before"):
        return group not in now and not look.length
    is_read = group in now and now[group].position >= look.last_generated
    return is_read and _is_at_rest(
        {group: reported["before"]}, {group: reported["after"]}, now, group
    )


def _is_ledger_unchanged(
    watch: RedisReader, plan: Plan, reported: Mapping[str, Any], group: str
) -> bool:
    """Whether nothing was recorded since but counters as they were."""
    ledger = derive_keys(plan.stream, group).ledger
    look: StreamSnapshot = watch.stream(ledger)
    archived = parse_entry_id(reported["archived"])
    if look.exists != reported["exists"] or look.last_generated < archived:
        return False
    return look.last_generated == archived or _are_checkpoints(
        watch, ledger, archived, plan.end, plan
    )


def _are_checkpoints(
    watch: RedisReader, ledger: str, after: EntryId, end: Checkpoint, plan: Plan
) -> bool:
    page = watch.ask(ledger, "XRANGE", ledger, f"({after}", "+", "COUNT", _MOST_CHECKPOINTS)
    found = [
        read_checkpoint(
            parse_ledger_event(
                parse_entry_id(entry_id), dict(zip(flat[::2], flat[1::2], strict=True))
            ),
            plan.stream,
        )
        for entry_id, flat in page
    ]
    return len(page) < _MOST_CHECKPOINTS and all(
        one is not None and (one.at_id, one.added) == (end.at_id, end.added) for one in found
    )


def _place(run: PipelineRun, plan: Plan) -> WindowPlace:
    return WindowPlace(root=run.settings.archive, stream=plan.stream, number=plan.window.number)
