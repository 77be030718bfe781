"""A whole run: every stream, every window that can be closed, what is reported at the end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Final

from pelops.domain.audit import (
    AuditSummary,
    AuditVerdict,
    parse_summary,
    worst_certainty,
    worst_verdict,
)
from pelops.domain.naming import parse_derived_key
from pelops.errors import PelopsError
from pelops.pipeline.archive.changes import is_unchanged
from pelops.pipeline.archive.compaction import merge_closed_spans
from pelops.pipeline.archive.layout import WindowPlace, slug
from pelops.pipeline.archive.plan import Plan
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.archive.tables import check_layout
from pelops.pipeline.archive.window_selection import last_plan, plan_windows, remove_old_windows
from pelops.pipeline.engine.functions import SparkSession, on_driver
from pelops.pipeline.engine.selection import is_small
from pelops.pipeline.engine.session import LazySession, as_lazy
from pelops.pipeline.gone_groups import find_gone
from pelops.pipeline.publish import publish_index, publish_windows
from pelops.pipeline.redis_reader import RedisReader
from pelops.pipeline.settings import BALANCED, AuditTarget, PipelineSettings
from pelops.pipeline.stages import PipelineRun, WindowWork
from pelops.pipeline.status_table import write_windows
from pelops.pipeline.window import archive_window, audit_window

log: Final = logging.getLogger(__name__)
_SPARE_S: Final = 60.0  # before the deadline nothing is begun any more


def open_run(session: SparkSession | LazySession, settings: PipelineSettings) -> PipelineRun:
    """What a run works with. Close its watch after use.

    Raises ArchiveUnusable for an archive of another layout.
    """
    spark = as_lazy(session)
    spare_s = _SPARE_S
    ends_at = None
    if settings.deadline is not None:
        given_s = settings.deadline.total_seconds()
        ends_at = time.monotonic() + given_s - min(spare_s, given_s / 10)
    storage = Storage(spark)
    check_layout(storage, settings.archive)
    return PipelineRun(
        spark=spark,
        storage=storage,
        watch=RedisReader(settings.place),
        settings=settings,
        ends_at=ends_at,
    )


def run_archive(run: PipelineRun) -> int:
    """Archive all windows that can be closed; answers the entries archived."""
    archived = 0
    for stream, targets in find_targets(run).items():
        for work in _windows(run, stream, targets):
            with engine_of(work):
                archived += archive_window(work)
    return archived


def run_audit(run: PipelineRun) -> list[AuditSummary]:
    """Audit all windows that can be closed; answers the summary of each group and window.

    Of a stream on which nothing has changed these are the summaries of its last window, when a
    window was to be closed in any case. What cannot be recorded in Redis is archived all the same;
    raises the reason at the end.
    """
    summaries: list[AuditSummary] = []
    recorder = _Recorder(run)
    found = find_targets(run)
    recorder.record_index([target for targets in found.values() for target in targets])
    for stream, targets in found.items():
        recorder.record(stream)
        last = last_plan(run, stream)
        if last is not None and is_unchanged(run, last, targets):
            summaries += _as_reported(run, last)
            remove_old_windows(run, stream)
            continue
        for work in _windows(run, stream, targets):
            with engine_of(work):
                audits = audit_window(work)
            summaries += [_summary(audits[target.group]) for target in work.plan.targets]
            recorder.record(stream)
        merge_closed_spans(run, stream)
        remove_old_windows(run, stream)
    recorder.raise_problem()
    return summaries


class _Recorder:
    """Records what is found in Redis and in a table; keeps why that cannot be done for the end."""

    def __init__(self, run: PipelineRun) -> None:
        self._run = run
        self._problems: dict[str, PelopsError] = {}

    def record(self, stream: str) -> None:
        run, name = self._run, self._run.settings.name
        if name is not None:
            self._try("Redis", lambda: publish_windows(run, name, stream))
        if run.settings.status_table is not None:
            self._try(run.settings.status_table.name, lambda: write_windows(run, stream))

    def record_index(self, targets: Sequence[AuditTarget]) -> None:
        settings, name = self._run.settings, self._run.settings.name
        if name is not None and settings.pattern is not None:
            self._try("Redis", lambda: publish_index(settings.place, name, targets))

    def raise_problem(self) -> None:
        for problem in self._problems.values():
            raise problem

    def _try(self, where: str, action: Callable[[], None]) -> None:
        if where in self._problems:
            return
        try:
            action()
        except PelopsError as error:
            log.error("not recorded in %s: %s; the archive goes on", where, error)
            self._problems[where] = error


def exit_code(settings: PipelineSettings, summaries: Sequence[AuditSummary]) -> int:
    """0 when every group is balanced, by acknowledgements that are as certain as is required."""
    verdict = worst_verdict([one.verdict for one in summaries]) or AuditVerdict.BALANCED
    certainty = worst_certainty(one.certainty for one in summaries)
    if verdict in {AuditVerdict.FINDINGS, AuditVerdict.FAILING}:
        return settings.findings_exit
    enough = worst_certainty([certainty, settings.require]) is settings.require
    return BALANCED if verdict is AuditVerdict.BALANCED and enough else settings.unproven_exit


def find_targets(run: PipelineRun) -> dict[str, list[AuditTarget]]:
    """The groups to audit by stream; of a pattern those that are there now, or were until now."""
    if run.settings.targets:
        return _by_stream(run.settings.targets)
    found = _by_stream(_match(run))
    gone = list(find_gone(run, found))
    return _by_stream([*chain.from_iterable(found.values()), *gone])


def _by_stream(targets: Iterable[AuditTarget]) -> dict[str, list[AuditTarget]]:
    found: dict[str, list[AuditTarget]] = {}
    for target in targets:
        found.setdefault(target.stream, []).append(target)
    return dict(sorted(found.items()))


def _match(run: PipelineRun) -> Iterator[AuditTarget]:
    """Every group of every stream that fits, but for the streams that Pelops keeps for a group."""
    for stream in run.watch.find_streams(run.settings.pattern or "*"):
        if parse_derived_key(stream) is None:
            for group in sorted(run.watch.groups(stream)):
                yield AuditTarget(
                    stream=stream, group=group, stuck_after_ms=run.settings.stuck_after_ms
                )


def _windows(run: PipelineRun, stream: str, targets: Sequence[AuditTarget]) -> Iterator[WindowWork]:
    for plan, path in plan_windows(run, stream, targets):
        _log_begin(plan, path)
        yield WindowWork(
            run=run,
            plan=plan,
            place=WindowPlace(root=run.settings.archive, stream=stream, number=plan.window.number),
        )


def engine_of(work: WindowWork) -> AbstractContextManager[None]:
    """Work on a window in this process when it is small, and with Spark when it is not."""
    small = is_small(work.run, work.plan)
    if not small:
        # Now, while it is known how much there is to do.
        work.run.spark.get(work.plan.produced)
    return on_driver(small)


def _as_reported(run: PipelineRun, plan: Plan) -> list[AuditSummary]:
    log.info("window %d of %s is the last: nothing new", plan.window.number, plan.stream)
    if run.settings.window is not None:
        return []
    place = WindowPlace(root=run.settings.archive, stream=plan.stream, number=plan.window.number)
    markers = (
        run.storage.read_json(place.part(f"group={slug(t.group)}.json")) for t in plan.targets
    )
    return [_summary(reported["audit"]) for reported in markers if reported is not None]


def _log_begin(plan: Plan, path: str) -> None:
    log.info(
        "window %d of %s: %d entries, %s to %s, in %s",
        plan.window.number, plan.stream, plan.produced, plan.window.from_id, plan.window.to_id,
        path,
    )  # fmt: skip


def _summary(audit: Mapping[str, Any]) -> AuditSummary:
    return parse_summary(json.dumps(audit["summary"]))
