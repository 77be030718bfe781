"""The window before this one: what it has left, and whether anything has changed since.

What it has left counts as far as its files are whole. Where nothing has changed, there is nothing
to audit. To find that out only counters are compared: a few commands for each group, and the same
small files of the last window; neither a job nor a session is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pelops.domain.audit import AuditFinding
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import parse_ledger_event
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.damage import Damage, find_damage
from pelops.pipeline.archive.layout import WindowPlace, slug
from pelops.pipeline.archive.snapshot import parse_snapshot, parse_stream_snapshot
from pelops.pipeline.archive.window_selection import is_complete
from pelops.pipeline.archive.windows import Checkpoint, Plan, parse_plan, read_checkpoint
from pelops.pipeline.engine.sql import DataFrame
from pelops.pipeline.redis_reader import GroupSnapshot, RedisReader, StreamSnapshot
from pelops.pipeline.settings import AuditTarget, PipelineSettings
from pelops.pipeline.stages import PipelineRun, WindowWork

_STAGES: Final = (
    "entries", "retries", "letters", "snapshot", "acts", "evidence", "copies", "duplicates",
    "truth",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousWindow:
    """The window before the one that is worked on; there is none before window 0."""

    work: WindowWork  # of the window after it
    damage: tuple[Damage, ...] = ()

    @property
    def exists(self) -> bool:
        return self.work.plan.window.number > 0

    def marker(self, stage: str) -> dict[str, Any]:
        """What the marker of a stage says; empty without one."""
        if not self.exists:
            return {}
        return self.work.run.storage.read_json(_marker(self.work, stage)) or {}

    def table(self, group: str, name: str) -> DataFrame | None:
        """A table of a group's results; None when it holds nothing, or cannot be trusted."""
        stage = _stage(group)
        if not self.exists or any((one.stage, one.part) == (stage, name) for one in self.damage):
            return None
        path = self.work.place.before.part(f"{stage}/{name}")
        if not self.work.run.storage.exists(path) or not self.work.count(path):
            return None
        return self.work.load(path)

    def findings(self, group: str) -> list[AuditFinding]:
        """What keeps a group's entries from being accounted for: one finding, or none."""
        stages = {f"group={slug(target.group)}" for target in self.work.plan.targets}
        others = stages - {_stage(group)}
        found = [one for one in self.damage if one.stage not in others]
        if not found:
            return []
        number = self.work.plan.window.number
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        root = f"{self.work.place.root.rstrip('/')}/"
        sentence = (
            f"the archive is damaged: entries that window {number - 1} left open may be "
            "missing in this audit. Restore the files from a backup, remove all archived files "
            "of window "
            f"{number}, and audit again. Damaged: {str(found[0]).removeprefix(root)}{more}"
        )
        return [AuditFinding(kind="archive-damaged", count=len(found), sentence=sentence)]


def look_back(work: WindowWork) -> PreviousWindow:
    """The window before, and what is damaged of it. Raises ArchiveUnusable."""
    if work.plan.window.number == 0:
        return PreviousWindow(work=work)
    return PreviousWindow(work=work, damage=tuple(_find_damage(work)))


def _find_damage(work: WindowWork) -> Iterator[Damage]:
    """What is damaged of the window before, which was audited to its end."""
    storage, place = work.run.storage, work.place.before
    plan = storage.read_json(place.record("plan.json"))
    manifest = storage.read_json(place.record("manifest.json"))
    if plan is None or manifest is None:
        yield _without_marker(work, "manifest")
        return
    before = WindowWork(run=work.run, plan=parse_plan(plan, place.record("plan.json")), place=place)
    groups = [_stage(group) for group in manifest["groups"]]
    for stage in (*_STAGES, *groups):
        marker = storage.read_json(_marker(work, stage))
        if marker is not None:
            yield from find_damage(storage, before.target, stage, marker)
        elif stage in groups:
            yield _without_marker(work, stage)


def _without_marker(work: WindowWork, stage: str) -> Damage:
    return Damage(stage=stage, part="", path=_marker(work, stage), problem="is missing")


def _marker(work: WindowWork, stage: str) -> str:
    """The marker of a stage of the window before."""
    return work.place.before.record(f"{stage}.json")


def _stage(group: str) -> str:
    return f"group={slug(group)}"


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
    keys = derive_keys(plan.stream, group)
    ledger = keys.ledger
    if str(watch.stream(keys.worker_ledger).last_generated) != reported.get("of_workers"):
        return False
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
