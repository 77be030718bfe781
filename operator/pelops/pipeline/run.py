"""A whole run: all streams, all windows that can be closed, and the exit code.

It also detects deleted groups: a pattern does not match a stream that was deleted or flushed, but
the archive still names its groups. They are reported as missing, so that their audits do not end
silently.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from pelops.domain.naming import parse_derived_key
from pelops.domain.records.audit import (
    AuditSummary,
    AuditVerdict,
    worst_certainty,
    worst_verdict,
)
from pelops.errors import PelopsError
from pelops.pipeline.archive.planning import plan_windows
from pelops.pipeline.archive.records import (
    Journal,
    Known,
    WindowPhase,
    read_records,
    read_summaries,
)
from pelops.pipeline.archive.retention import remove_old_rows
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.context import PipelineRun
from pelops.pipeline.publication import publish_index, publish_windows
from pelops.pipeline.rounds import archive_round, audit_round
from pelops.pipeline.settings import BALANCED, AuditTarget, PipelineSettings
from pelops.pipeline.unchanged import is_unchanged

log: Final = logging.getLogger(__name__)
Targets = Mapping[str, Sequence[AuditTarget]]  # by stream


def run_archive(run: PipelineRun, all_targets: Targets) -> int:
    """Archive all windows of these groups that can be closed; return their number of entries."""
    archived = 0
    journal = Journal.read(run.archive)
    known = journal.know(list(all_targets))
    waiting = {
        stream: [
            plan
            for plan in plan_windows(run.watch, run.settings, stream, targets, known[stream])
            if plan.number not in known[stream].archived
        ]
        for stream, targets in all_targets.items()
    }
    for plans in _rounds(waiting):
        archive_round(run, plans, known, journal)
        archived += sum(plan.produced for plan in plans)
        journal = Journal.read(run.archive)
    return archived


def run_audit(run: PipelineRun, all_targets: Targets) -> list[AuditSummary]:
    """Audit all windows of these groups that can be closed; return their summaries.

    For a stream without changes, these are the summaries of its last window if no window length is
    set, and none otherwise. If results cannot be recorded in Redis, they are still archived, and
    the error is raised at the end.
    """
    recorder = _Recorder(run)
    recorder.record_index([target for targets in all_targets.values() for target in targets])
    recorder.record(list(all_targets))
    journal = Journal.read(run.archive)
    known = journal.know(list(all_targets))
    still = [
        stream
        for stream, targets in all_targets.items()
        if is_unchanged(run.watch, run.settings, known[stream], targets)
    ]
    summaries = _as_reported(run, [known[stream] for stream in still])
    waiting = {
        stream: plan_windows(run.watch, run.settings, stream, targets, known[stream])
        for stream, targets in all_targets.items()
        if stream not in still
    }
    for plans in _rounds(waiting):
        for plan in plans:
            _log_begin(plan)
        summaries += audit_round(run, plans, known, journal)
        streams = [plan.stream for plan in plans]
        recorder.record(streams)
        journal = Journal.read(run.archive)
        known = known | journal.know(streams)
    if run.archive.run:
        remove_old_rows(run, journal)
    recorder.raise_problem()
    return sorted(summaries, key=lambda one: (one.stream, one.window.number))


def _rounds(waiting: Mapping[str, Sequence[Plan]]) -> Iterator[list[Plan]]:
    """Yield rounds: the next window of each stream that has one."""
    for at in range(max(map(len, waiting.values()), default=0)):
        yield [plans[at] for plans in waiting.values() if at < len(plans)]


class _Recorder:
    """Records results in Redis; keeps the first error, to raise it at the end."""

    def __init__(self, run: PipelineRun) -> None:
        self._run = run
        self._problem: PelopsError | None = None

    def record(self, streams: Sequence[str]) -> None:
        """Record the windows of these streams that are not recorded."""
        name = self._run.settings.name
        if name is not None:
            self._record(lambda: publish_windows(self._run, name, streams))

    def record_index(self, targets: Sequence[AuditTarget]) -> None:
        """Record which groups match a pattern."""
        settings, name = self._run.settings, self._run.settings.name
        if name is not None and settings.pattern is not None:
            self._record(lambda: publish_index(settings.place, name, targets))

    def raise_problem(self) -> None:
        """Raise the error that prevented recording, if any."""
        if self._problem is not None:
            raise self._problem

    def _record(self, action: Callable[[], None]) -> None:
        if self._problem is not None:
            return
        try:
            action()
        except PelopsError as error:
            log.error("not recorded in Redis: %s; archiving continues", error)
            self._problem = error


def exit_code(settings: PipelineSettings, summaries: Sequence[AuditSummary]) -> int:
    """The exit code; 0 if all groups are balanced with at least the required certainty."""
    verdict = worst_verdict([one.verdict for one in summaries]) or AuditVerdict.BALANCED
    certainty = worst_certainty(one.certainty for one in summaries)
    if verdict in {AuditVerdict.FINDINGS, AuditVerdict.FAILING}:
        return settings.findings_exit
    enough = worst_certainty([certainty, settings.require]) is settings.require
    return BALANCED if verdict is AuditVerdict.BALANCED and enough else settings.unproven_exit


def find_targets(run: PipelineRun) -> dict[str, list[AuditTarget]]:
    """The groups to audit, by stream; for a pattern, also those that were deleted recently."""
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
    """All groups of all streams that match, except streams that Pelops creates for a group."""
    for stream in run.watch.find_streams(run.settings.pattern or "*"):
        if parse_derived_key(stream) is None:
            for group in sorted(run.watch.groups(stream)):
                yield AuditTarget(
                    stream=stream, group=group, stuck_after_ms=run.settings.stuck_after_ms
                )


def _as_reported(run: PipelineRun, known: Iterable[Known]) -> list[AuditSummary]:
    """The summaries of the last windows; empty if a window length is set."""
    chosen: dict[tuple[str, str], list[int]] = {}
    for known_stream in known:
        assert known_stream.record is not None
        plan = known_stream.record.plan
        log.info("window %d of %s is the last: no new entries", plan.number, plan.stream)
        chosen |= {(plan.stream, target.group): [plan.number] for target in plan.targets}
    if run.settings.window is not None:
        return []
    return list(chain.from_iterable(read_summaries(run.archive, chosen).values()))


def _log_begin(plan: Plan) -> None:
    log.info(
        "window %d of %s: %d entries, %s to %s",
        plan.number, plan.stream, plan.produced, plan.window.from_id, plan.window.to_id,
    )  # fmt: skip


_MISSING: Final = {"group-missing", "stream-missing"}  # findings
_TIMES_REPORTED: Final = 2  # number of windows that report a missing group


def find_gone(run: PipelineRun, all_targets: Targets) -> Iterator[AuditTarget]:
    """Groups of the archive that are not in `all_targets` and were not reported missing twice.

    Raises ArchiveUnusable.
    """
    fits = glob_expression(run.settings.pattern or "*")
    journal = Journal.read(run.archive)
    last = {
        stream: journal.numbers(stream, WindowPhase.AUDITED)[-1:]
        for stream in journal.streams
        if fits.fullmatch(stream)
    }
    for record in chain.from_iterable(read_records(run.archive, last).values()):
        there = {target.group for target in all_targets.get(record.plan.stream, ())}
        yield from (
            target
            for target in record.plan.targets
            if target.group not in there and not _is_reported(journal, record.plan, target)
        )


def _is_reported(journal: Journal, plan: Plan, target: AuditTarget) -> bool:
    """Whether the newest windows reported the group as missing."""
    key = (plan.stream, target.group)
    newest = journal.audited.get(key, ())[-_TIMES_REPORTED:]
    summaries = read_summaries(journal.archive, {key: newest})[key]
    missing = [one for one in summaries if _MISSING & {finding.kind for finding in one.findings}]
    return len(missing) == _TIMES_REPORTED


def glob_expression(pattern: str) -> re.Pattern[str]:
    """Convert a glob-style pattern of Redis to a regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        part, at = _next_part(pattern, at)
        parts.append(part)
    return re.compile("".join(parts), re.DOTALL)


def _next_part(pattern: str, at: int) -> tuple[str, int]:
    """The expression for the part that begins here, and the index of the next part."""
    sign = pattern[at]
    if sign == "[":
        return _set_of_letters(pattern, at + 1)
    if sign == "\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1]), at + 2
    return {"*": ".*", "?": "."}.get(sign, re.escape(sign)), at + 1


def _set_of_letters(pattern: str, at: int) -> tuple[str, int]:
    """The expression for a set, which ends at its bracket, or at the end without one."""
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
