"""Writes the reports of an archive, `audit.html` and `audit.json`, from the newest windows.

Each stream has its own report, with all of its groups. The report of all streams lists every group
of the archive, of any audit and run, the worst first. This module does not need Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pelops import __version__
from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.records import Journal, WindowPhase, read_summaries, read_texts
from pelops.pipeline.archive.tables import Archive
from pelops.pipeline.context import PipelineRun
from pelops.pipeline.errors import ArchiveUnusable, WrongPipelineSettings
from pelops.pipeline.files import Files
from pelops.pipeline.report.model import (
    DeadLetterCluster,
    DeadLetters,
    Engine,
    GroupReport,
    Report,
    Unproven,
)
from pelops.pipeline.report.overview import GroupLine, sort_lines
from pelops.pipeline.report.page import render_page
from pelops.pipeline.report.places import DOCUMENT, PAGE, anchor_of, page_of, report_path, slug
from pelops.pipeline.session import Work
from pelops.pipeline.settings import AuditTarget
from pelops.pipeline.triage.triage_command import triage_target
from pyspark_redis_streams.errors import RedisStreamsError

log: Final = logging.getLogger(__name__)
EARLIER: Final = 12  # windows before the newest one that are shown
_TRIES: Final = 3  # to write the report of all streams, which other runs also write


def write_reports(run: PipelineRun, all_targets: Mapping[str, Sequence[AuditTarget]]) -> str:
    """Write the reports of these streams and of all streams; return the path of the latter.

    Raises WrongPipelineSettings if none of the groups was audited; existing pages then remain.
    """
    journal = Journal.read(run.archive)
    audited = {
        target
        for targets in all_targets.values()
        for target in targets
        if (target.stream, target.group) in journal.audited
    }
    if not audited:
        raise WrongPipelineSettings(f"{run.settings.archive} has no audit of this stream and group")
    return _write(run, journal, all_targets)


def write_new_reports(
    run: PipelineRun,
    all_targets: Mapping[str, Sequence[AuditTarget]],
    summaries: Sequence[AuditSummary],
) -> str:
    """Write the reports that do not have the newest window, and that of all streams.

    Groups that were not audited are left out.
    """
    journal, files = Journal.read(run.archive), Files(run.archive.place)
    closed = _newly_closed(files, summaries)
    chosen = {
        stream: targets
        for stream, targets in all_targets.items()
        if stream in closed or not files.exists(_document(stream))
    }
    return _write(run, journal, chosen)


def _newly_closed(files: Files, summaries: Sequence[AuditSummary]) -> set[str]:
    closed_windows: dict[str, set[tuple[str, int]]] = {}
    for one in summaries:
        closed_windows.setdefault(one.stream, set()).add((one.group, one.window.number))
    known: dict[str, set[tuple[str, int]]] = {}
    for stream in closed_windows:
        report = _read(files, _document(stream))
        known[stream] = set() if report is None else {(g.group, g.window) for g in report.lines}
    return {stream for stream, windows in closed_windows.items() if not windows <= known[stream]}


def _read(files: Files, name: str) -> Report | None:
    """A report of the archive; None if it does not exist or cannot be read."""
    text = files.read(name)
    try:
        return None if text is None else Report.model_validate_json(text)
    except (ValueError, RecursionError) as error:
        log.warning("the report %s cannot be read: %s", files.path(name), error)
        return None


def _write(
    run: PipelineRun, journal: Journal, all_targets: Mapping[str, Sequence[AuditTarget]]
) -> str:
    """Write each stream's report, then that of all streams.

    If the run dies between, the next run writes the rest. Every report is replaced as a whole, so
    repeating is safe.
    """
    groups = _gather(run, journal, all_targets)
    files, work = Files(run.archive.place), run.spark.count_work()
    for stream, reports in groups.items():
        _write_one(files, _report(run, work, groups=tuple(reports), stream=stream))
    return _write_all(run, work, files, groups)


def _write_all(
    run: PipelineRun,
    work: Work | None,
    files: Files,
    groups: Mapping[str, Sequence[GroupReport]],
) -> str:
    """Write the report of all streams: details of this run's, lines from the others' reports."""
    page = f"{report_path()}/{PAGE}"
    ours = {slug(stream) for stream in groups}
    other_reports = _read_others(files, ours)
    if not groups and files.exists(page) and _is_current(files, other_reports):
        return files.path(page)
    gathered = tuple(group for reports in groups.values() for group in reports)
    for _ in range(_TRIES):
        others, unread = other_reports
        _write_one(files, _report(run, work, groups=gathered, others=others, unread=unread))
        # Another run may have replaced the report of another stream meanwhile.
        other_reports = _read_others(files, ours)
        if other_reports == (others, unread):
            break
    return files.path(page)


def _is_current(files: Files, other_reports: tuple[tuple[GroupLine, ...], tuple[str, ...]]) -> bool:
    """Whether the report of all streams agrees with the reports of the streams."""
    known = _read(files, f"{report_path()}/{DOCUMENT}")
    lines, unread = other_reports
    if known is None or unread:
        return False
    return _without_links(known.lines) == _without_links(lines)


def _without_links(lines: Iterable[GroupLine]) -> list[GroupLine]:
    return sort_lines(one.model_copy(update={"href": ""}) for one in lines)


def _read_others(
    files: Files, ours: Collection[str]
) -> tuple[tuple[GroupLine, ...], tuple[str, ...]]:
    """Lines from the reports of other streams, and paths of reports that cannot be read."""
    lines: list[GroupLine] = []
    unread: list[str] = []
    for name in files.list_names(report_path()):
        path = f"{report_path()}/{name}/{DOCUMENT}"
        if name not in {*ours, PAGE, DOCUMENT} and files.exists(path):
            known = _read(files, path)
            if known is None:
                unread.append(files.path(path))
            else:
                lines += [_link(group, page_of(name)) for group in known.groups]
    return tuple(lines), tuple(unread)


def _link(group: GroupReport, page: str) -> GroupLine:
    return group.line(f"{page}#{anchor_of(group.summary.stream, group.summary.group)}")


def _write_one(files: Files, report: Report) -> None:
    base = report_path(report.stream)
    files.write(f"{base}/{DOCUMENT}", report.model_dump_json(indent=1) + "\n")
    files.write(f"{base}/{PAGE}", render_page(report))


def _report(run: PipelineRun, work: Work | None, **parts: Any) -> Report:
    return Report(
        audit=run.settings.name or "by hand",
        at=datetime.now(UTC),
        pelops=__version__,
        engine=None
        if work is None
        else Engine(spark=work.spark, master=work.master, jobs=work.jobs, tasks=work.tasks),
        archive=run.settings.archive,
        **parts,
    )


def _document(stream: str) -> str:
    return f"{report_path(stream)}/{DOCUMENT}"


def _gather(
    run: PipelineRun, journal: Journal, all_targets: Mapping[str, Sequence[AuditTarget]]
) -> dict[str, list[GroupReport]]:
    """The groups of these streams: those of this run, and those of other audits."""
    targets: dict[tuple[str, str], AuditTarget] = {}
    for stream, some in all_targets.items():
        mine = {target.group: target for target in some}
        for group in dict.fromkeys([*mine, *journal.groups(stream)]):
            if (stream, group) in journal.audited:
                target = mine.get(group, AuditTarget(stream=stream, group=group))
                targets[stream, group] = target
            else:
                log.warning("%s / %s has not been audited", stream, group)
    numbers = {key: journal.audited[key] for key in targets}
    reports = read_reports(run.archive, {key: some[-1] for key, some in numbers.items()})
    earlier = read_summaries(
        run.archive, {key: some[-1 - EARLIER : -1] for key, some in numbers.items()}
    )
    gathered: dict[str, list[GroupReport]] = {}
    for key, target in targets.items():
        last = numbers[key][-1]
        newest = journal.numbers(target.stream, WindowPhase.PLANNED)[-1]
        not_audited = () if newest <= last else (_not_audited(last + 1, newest),)
        report = reports[key].model_copy(
            update={
                "earlier": tuple(earlier[key]),
                "dead_letters": _letters(run, target),
                "unproven": (*not_audited, *reports[key].unproven),
            }
        )
        gathered.setdefault(target.stream, []).append(report)
    return gathered


def read_reports(
    archive: Archive, chosen: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], GroupReport]:
    """Read the reports of these windows of groups. Raises ArchiveUnusable."""
    texts = read_texts(archive, "report", {key: [number] for key, number in chosen.items()})
    reports = {}
    for key, number in chosen.items():
        try:
            reports[key] = GroupReport.model_validate_json(texts[key][number])
        except (ValueError, KeyError) as error:
            raise ArchiveUnusable(
                f"the archive's report of window {number} of {' / '.join(key)} cannot be read: "
                f"{str(error).splitlines()[0]}. Restore the table windows from a backup"
            ) from error
    return reports


def _not_audited(first: int, last: int) -> Unproven:
    """A note about windows after the newest one that was audited for the group."""
    which = f"Window {first} was" if first == last else f"Windows {first} to {last} were"
    return Unproven(
        why="not-audited",
        entries=None,
        sentence=f"{which} not audited for this group yet: this report ends before it.",
    )


def _letters(run: PipelineRun, target: AuditTarget) -> DeadLetters | None:
    """The present dead letters; None if they cannot be read from the server."""
    try:
        triage, plan = triage_target(run, target)
    except RedisStreamsError as error:
        log.warning("dead letters of %s were not read: %s", target.group, error)
        return None
    clusters = tuple(map(DeadLetterCluster.model_validate, triage.clusters))
    return DeadLetters(count=triage.letters, clusters=clusters, plan=plan)
