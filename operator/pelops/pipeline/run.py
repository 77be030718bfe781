"""A whole run: every stream, every window that can be closed, what is told at the end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from pelops.domain.audit import AuditSummary, Verdict, parse_summary
from pelops.domain.naming import parse_derived_key
from pelops.pipeline.acts import read_history
from pelops.pipeline.layout import WindowPlace
from pelops.pipeline.plan import Plan
from pelops.pipeline.planning import plan_windows, remove_old_windows
from pelops.pipeline.publish import Publication, publish
from pelops.pipeline.settings import Settings, Target
from pelops.pipeline.storage import Storage
from pelops.pipeline.watching import Watch
from pelops.pipeline.window_run import archive_window, audit_window
from pelops.pipeline.work import Run, Work

log: Final = logging.getLogger(__name__)
_SPARE_S: Final = 60.0  # before the deadline nothing is begun any more


def open_run(session: SparkSession, settings: Settings) -> Run:
    """What a run works with. Close its watch after use."""
    spare_s = _SPARE_S
    ends_at = None
    if settings.deadline is not None:
        given_s = settings.deadline.total_seconds()
        ends_at = time.monotonic() + given_s - min(spare_s, given_s / 10)
    return Run(
        session=session,
        storage=Storage(session),
        watch=Watch(settings.place),
        settings=settings,
        ends_at=ends_at,
    )


def run_archive(run: Run) -> int:
    """Archive all windows that can be closed; answers the entries archived."""
    archived = 0
    for stream, targets in find_targets(run).items():
        for work in _windows(run, stream, targets):
            archived += archive_window(work)
    return archived


def run_audit(run: Run) -> list[AuditSummary]:
    """Audit all windows that can be closed; answers the summary of each group and window."""
    summaries: list[AuditSummary] = []
    for stream, targets in find_targets(run).items():
        for work in _windows(run, stream, targets):
            audits = audit_window(work)
            publications = _publications(work, audits)
            summaries += [one.summary for one in publications]
            if run.settings.name is not None:
                publish(
                    run.settings.place, run.settings.name, publications,
                    index=run.settings.pattern is not None,
                )  # fmt: skip
        remove_old_windows(run, stream)
    return summaries


def exit_code(settings: Settings, summaries: Sequence[AuditSummary]) -> int:
    """0 when every entry is accounted for and none needs a look."""
    found = any(summary.verdict is not Verdict.BALANCED for summary in summaries)
    return settings.findings_exit if found else 0


def find_targets(run: Run) -> dict[str, list[Target]]:
    """The groups to audit by stream; of a pattern those that are there now."""
    settings = run.settings
    found: dict[str, list[Target]] = {}
    for target in settings.targets or _match(run):
        found.setdefault(target.stream, []).append(target)
    return dict(sorted(found.items()))


def _match(run: Run) -> Iterator[Target]:
    """Every group of every stream that fits, but for the streams that Pelops keeps for a group."""
    for stream in run.watch.find_streams(run.settings.pattern or "*"):
        if parse_derived_key(stream) is None:
            for group in sorted(run.watch.groups(stream)):
                yield Target(stream=stream, group=group, stuck_after_ms=run.settings.stuck_after_ms)


def _windows(run: Run, stream: str, targets: Sequence[Target]) -> Iterator[Work]:
    for plan, path in plan_windows(run, stream, targets):
        _log_begin(plan, path)
        yield Work(
            run=run,
            plan=plan,
            place=WindowPlace(root=run.settings.archive, stream=stream, number=plan.window.number),
        )


def _log_begin(plan: Plan, path: str) -> None:
    log.info(
        "window %d of %s: %d entries, %s to %s, in %s",
        plan.window.number, plan.stream, plan.produced, plan.window.from_id, plan.window.to_id,
        path,
    )  # fmt: skip


def _publications(work: Work, audits: dict[str, dict[str, Any]]) -> list[Publication]:
    acts = work.run.storage.read_json(work.place.part("acts.json")) or {}
    return [
        Publication(
            target=target,
            summary=parse_summary(json.dumps(audits[target.group]["summary"])),
            archived=read_history(acts, target.group).archived,
        )
        for target in work.plan.targets
    ]
