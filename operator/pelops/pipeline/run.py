"""A whole run: every stream, every window that can be closed, what is reported at the end.

Also decided here, for each run: which windows the driver works on without Spark, and which groups
are gone. A pattern does not find a stream that was deleted or flushed. The archive still names its
groups, so that they are reported and their audits do not just end.
"""

from __future__ import annotations

import json
import logging
import re
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
from pelops.domain.naming import derive_keys, parse_derived_key
from pelops.errors import PelopsError
from pelops.pipeline.archive.compaction import merge_closed_spans
from pelops.pipeline.archive.layout import (
    WindowPlace,
    check_layout,
    records_path,
    slug,
    stream_path,
    window_numbers,
)
from pelops.pipeline.archive.previous_window import is_unchanged
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.archive.window_selection import (
    BYTES_OF_A_PAGE,
    last_plan,
    page_size,
    plan_windows,
    remove_old_windows,
)
from pelops.pipeline.archive.windows import Plan, parse_plan
from pelops.pipeline.engine.spark_session import LazySession, as_lazy
from pelops.pipeline.engine.sql import SparkSession, on_driver
from pelops.pipeline.publication import publish_index, publish_windows
from pelops.pipeline.redis_reader import RedisReader
from pelops.pipeline.settings import BALANCED, ArchivedPayload, AuditTarget, PipelineSettings
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
            log.error("not recorded in %s: %s; archiving continues", where, error)
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
    log.info("window %d of %s is the last: no new entries", plan.window.number, plan.stream)
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


_MOST_BYTES: Final = 256 * 2**20  # of payloads, which are archived in full


def is_small(run: PipelineRun, plan: Plan) -> bool:
    """Whether the driver works on a window by itself.

    By counters alone: what was added, what is pending, what ledgers and retry streams hold. Tables
    of the user's own are read by Spark, whatever their format.
    """
    settings = run.settings
    if settings.sent is not None or settings.effects is not None:
        return False
    if plan.payload is ArchivedPayload.FULL and not _fits(plan.produced, plan.page_size):
        return False
    return plan.produced < settings.spark_from and count_rows(run, plan) < settings.spark_from


def is_small_stream(run: PipelineRun, stream: str) -> bool:
    """Whether all entries of a stream, with all their fields, are read without Spark."""
    number = run.watch.stream(stream).length
    if number >= run.settings.spark_from:
        return False
    return not number or _fits(number, page_size(run.watch, stream))


def count_rows(run: PipelineRun, plan: Plan) -> int:
    """About as many rows as its stages look at."""
    groups = run.watch.groups(plan.stream)
    pending = sum(groups[one.group].pending for one in plan.targets if one.group in groups)
    return plan.produced + pending + sum(_rows_of_group(run, plan, one) for one in plan.targets)


def _rows_of_group(run: PipelineRun, plan: Plan, target: AuditTarget) -> int:
    keys = derive_keys(plan.stream, target.group)
    return sum(
        [
            run.watch.stream(keys.ledger).length,
            run.watch.stream(keys.worker_ledger).length,
            run.watch.stream(keys.retry).length,
            _open_before(run, plan, target),
        ]
    )


def _open_before(run: PipelineRun, plan: Plan, target: AuditTarget) -> int:
    """Entries that the window before has left open: they are looked at again."""
    if not plan.window.number:
        return 0
    number = plan.window.number - 1
    before = WindowPlace(root=run.settings.archive, stream=plan.stream, number=number)
    reported = run.storage.read_json(before.of_group(target.group, "audit.json"))
    return 0 if reported is None else int(reported["summary"].get("open", 0))


def _fits(entries: int, entries_of_a_page: int) -> bool:
    """Whether the bodies of so many entries fit into memory, by the largest of a few."""
    return entries * BYTES_OF_A_PAGE // max(1, entries_of_a_page) <= _MOST_BYTES


_MISSING: Final = {"group-missing", "stream-missing"}  # findings
_TIMES_REPORTED: Final = 2  # that it is told: by the run that finds it, and once more


def find_gone(
    run: PipelineRun, found: Mapping[str, Sequence[AuditTarget]]
) -> Iterator[AuditTarget]:
    """Of the groups that the archive knows, those that are missing among `found`, for a while.

    Raises ArchiveUnusable.
    """
    fits = glob_expression(run.settings.pattern or "*")
    for plan in _newest_plans(run):
        if fits.fullmatch(plan.stream):
            there = {target.group for target in found.get(plan.stream, ())}
            yield from (
                target
                for target in plan.targets
                if target.group not in there and not _is_reported(run, plan, target.group)
            )


def glob_expression(pattern: str) -> re.Pattern[str]:
    """What Redis' glob-style patterns match, as a regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        part, at = _next_part(pattern, at)
        parts.append(part)
    return re.compile("".join(parts), re.DOTALL)


def _next_part(pattern: str, at: int) -> tuple[str, int]:
    """An expression for what begins here, and where the next part begins."""
    sign = pattern[at]
    if sign == "[":
        return _set_of_letters(pattern, at + 1)
    if sign == "\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1]), at + 2
    return {"*": ".*", "?": "."}.get(sign, re.escape(sign)), at + 1


def _set_of_letters(pattern: str, at: int) -> tuple[str, int]:
    """A set goes to its bracket, or else to the end."""
    is_negated = pattern.startswith("^", at)
    at += is_negated
    letters = ""
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\" and at + 1 < len(pattern):
            at += 1
        elif pattern[at + 1 : at + 2] == "-" and at + 2 < len(pattern):
            letters += "-".join(map(re.escape, sorted(pattern[at : at + 3 : 2])))
            at += 3
            continue
        letters += re.escape(pattern[at])
        at += 1
    if not letters:
        return "." if is_negated else "(?!)", at + 1
    return f"[{'^' * is_negated}{letters}]", at + 1


def _newest_plans(run: PipelineRun) -> Iterator[Plan]:
    """The newest plan of every stream of the archive."""
    storage, base = run.storage, records_path(run.settings.archive)
    for name in storage.list_names(base):
        for number in reversed(window_numbers(storage.list_names(f"{base}/{name}"))):
            path = f"{base}/{name}/window={number}/plan.json"
            found = storage.read_json(path)
            if found is not None:
                yield parse_plan(found, path)
                break


def _is_reported(run: PipelineRun, plan: Plan, group: str) -> bool:
    """Whether the newest windows say that it is missing."""
    base = stream_path(run.settings.archive, plan.stream)
    for number in range(plan.window.number, plan.window.number - _TIMES_REPORTED, -1):
        reported = run.storage.read_json(f"{base}/window={number}/group={slug(group)}.json") or {}
        findings = reported.get("audit", {}).get("summary", {}).get("findings", [])
        if not _MISSING & {one["kind"] for one in findings}:
            return False
    return True
