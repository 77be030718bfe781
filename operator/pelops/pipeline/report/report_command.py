"""The command `report`: from the newest windows of an archive to `audit.html` and `audit.json`.

Each stream has a report of its own, with all of its groups. The report of all streams lists every
group of the archive, the worst first, whichever audit and run it is of.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, Final

from pelops import __version__
from pelops.domain.audit import AuditSummary
from pelops.pipeline.archive.layout import DOCUMENT, PAGE, anchor_of, page_of, report_path, slug
from pelops.pipeline.engine.spark_session import LazySession
from pelops.pipeline.engine.sql import SparkSession
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.report.archive_reader import find_audits, find_groups, read_group
from pelops.pipeline.report.model import (
    DeadLetterCluster,
    DeadLetters,
    GroupLine,
    GroupReport,
    Report,
    sort_lines,
)
from pelops.pipeline.report.page import render_page
from pelops.pipeline.run import find_targets, open_run
from pelops.pipeline.settings import AuditTarget, PipelineSettings
from pelops.pipeline.stages import UNFINISHED, PipelineRun
from pelops.pipeline.triage.triage_command import triage_target
from pyspark_redis_streams.errors import RedisStreamsError

log: Final = logging.getLogger(__name__)
_TRIES: Final = 3  # to write a report of all streams that other runs have a part in


def run_report(session: SparkSession | LazySession, settings: PipelineSettings) -> int:
    """Write the reports of all groups; the exit code is 0 however grave what they tell.

    Raises WrongSettings when none of them was audited: pages that are there stay as they were.
    """
    run = open_run(session, settings)
    try:
        print(_write(run, find_targets(run), must_find=True))
    finally:
        run.watch.close()
    return 0


def write_report(run: PipelineRun, summaries: Sequence[AuditSummary] | None = None) -> str:
    """Write the reports into the archive; answers the path of the page of all streams.

    With the summaries of a run, only streams with a window of which their report does not tell
    are looked at again, and those without a report. Groups that were not audited yet are left out.
    """
    found = find_targets(run)
    if summaries is not None:
        closed = _newly_closed(run, summaries)
        found = {
            stream: targets
            for stream, targets in found.items()
            if stream in closed or not run.storage.exists(_document_path(run, stream))
        }
    return _write(run, found)


def _newly_closed(run: PipelineRun, summaries: Sequence[AuditSummary]) -> set[str]:
    """Streams with a window of which their report does not tell yet."""
    reported: dict[str, set[tuple[str, int]]] = {}
    for one in summaries:
        reported.setdefault(one.stream, set()).add((one.group, one.window.number))
    return {stream for stream, windows in reported.items() if not windows <= _windows(run, stream)}


def _windows(run: PipelineRun, stream: str) -> set[tuple[str, int]]:
    """The groups and windows of which a stream's report tells; none without a report."""
    known = _read(run, _document_path(run, stream))
    return set() if known is None else {(one.group, one.window) for one in known.lines}


def _read(run: PipelineRun, path: str) -> Report | None:
    """A report of the archive; None when it is not there or cannot be read."""
    text = run.storage.read_text(path)
    try:
        return None if text is None else Report.model_validate_json(text)
    except (ValueError, RecursionError) as error:
        log.warning("the report %s cannot be read: %s", path, error)
        return None


def _write(
    run: PipelineRun, found: Mapping[str, Sequence[AuditTarget]], *, must_find: bool = False
) -> str:
    """Each stream's report before that of all: a run that dies between leaves the rest to the next.

    Every report is replaced as a whole, so that it is safe to repeat.
    """
    if must_find and not any(map(partial(_is_audited, run), chain.from_iterable(found.values()))):
        raise WrongPipelineSettings(f"{run.settings.archive} has no audit of this stream and group")
    groups = {stream: _gather(run, stream, targets) for stream, targets in found.items()}
    for stream, gathered in groups.items():
        if gathered:
            _write_one(run, _report(run, groups=tuple(gathered), stream=stream))
    return _write_all(run, {stream: reported for stream, reported in groups.items() if reported})


def _write_all(run: PipelineRun, groups: Mapping[str, Sequence[GroupReport]]) -> str:
    """The report of all streams: of those of this run in detail, of others what their own say."""
    base = report_path(run.settings.archive)
    page = f"{base}/{PAGE}"
    ours = {slug(stream) for stream in groups}
    reported = _read_others(run, ours)
    if not groups and run.storage.exists(page) and _is_current(run, reported):
        return page
    gathered = tuple(group for found in groups.values() for group in found)
    for _ in range(_TRIES):
        others, unread = reported
        _write_one(run, _report(run, groups=gathered, others=others, unread=unread))
        # Another run may have replaced the report of another stream, and this one before.
        reported = _read_others(run, ours)
        if reported == (others, unread):
            break
    return page


def _is_current(run: PipelineRun, reported: tuple[tuple[GroupLine, ...], tuple[str, ...]]) -> bool:
    """Whether the page of all streams says of each group what the report of its stream says."""
    known = _read(run, f"{report_path(run.settings.archive)}/{DOCUMENT}")
    lines, unread = reported
    if known is None or unread:
        return False
    return _without_links(known.lines) == _without_links(lines)


def _without_links(lines: Iterable[GroupLine]) -> list[GroupLine]:
    return sort_lines(one.model_copy(update={"href": ""}) for one in lines)


def _read_others(
    run: PipelineRun, ours: Collection[str]
) -> tuple[tuple[GroupLine, ...], tuple[str, ...]]:
    """What the reports of other streams of the archive say; and those that cannot be read."""
    base = report_path(run.settings.archive)
    lines: list[GroupLine] = []
    unread: list[str] = []
    for name in run.storage.list_names(base):
        path = f"{base}/{name}/{DOCUMENT}"
        is_stream = name not in {*ours, PAGE, DOCUMENT} and not name.endswith(UNFINISHED)
        if is_stream and run.storage.exists(path):
            known = _read(run, path)
            if known is None:
                unread.append(path)
            else:
                lines += [_link(group, page_of(name)) for group in known.groups]
    return tuple(lines), tuple(unread)


def _link(group: GroupReport, page: str) -> GroupLine:
    return group.line(f"{page}#{anchor_of(group.summary.stream, group.summary.group)}")


def _write_one(run: PipelineRun, report: Report) -> None:
    base = report_path(run.settings.archive, report.stream)
    run.storage.write_text(f"{base}/{DOCUMENT}", report.model_dump_json(indent=1) + "\n")
    run.storage.write_text(f"{base}/{PAGE}", render_page(report))


def _report(run: PipelineRun, **parts: Any) -> Report:
    return Report(
        audit=run.settings.name or "by hand",
        at=datetime.now(UTC),
        pelops=__version__,
        archive=run.settings.archive,
        **parts,
    )


def _document_path(run: PipelineRun, stream: str) -> str:
    return f"{report_path(run.settings.archive, stream)}/{DOCUMENT}"


def _gather(run: PipelineRun, stream: str, targets: Sequence[AuditTarget]) -> list[GroupReport]:
    """The groups of a stream: those of this run, and those that other audits look after."""
    found = []
    mine = {target.group for target in targets}
    for target in find_groups(run, stream, targets):
        group = read_group(run, target, partial(_letters, run, target))
        if group is not None:
            found.append(group)
        elif target.group in mine:
            log.warning("%s / %s has not been audited", target.stream, target.group)
    return found


def _is_audited(run: PipelineRun, target: AuditTarget) -> bool:
    return next(find_audits(run, target), None) is not None


def _letters(run: PipelineRun, target: AuditTarget) -> DeadLetters | None:
    """The dead letters as they are now; None when the server cannot be asked."""
    try:
        triage, plan = triage_target(run, target)
    except RedisStreamsError as error:
        log.warning("dead letters of %s were not read: %s", target.group, error)
        return None
    clusters = tuple(map(DeadLetterCluster.model_validate, triage.clusters))
    return DeadLetters(count=triage.letters, clusters=clusters, plan=plan)
