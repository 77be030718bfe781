"""A history lived and audited: what is untrue of it, and the smallest part of it that shows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.context import open_run
from pelops.pipeline.report.pages import write_new_reports
from pelops.pipeline.run import find_targets, run_archive, run_audit
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import AuditTarget, PipelineSettings, read_place
from tests.pipeline.oracle.findings import Judge, Record, Untrue
from tests.pipeline.oracle.histories import Files, History, Kind
from tests.pipeline.oracle.page import check_page
from tests.pipeline.oracle.reported import WindowReport, read_reported
from tests.pipeline.oracle.world import STREAM, STUCK_MS, World, open_world

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a history is lived."""

    has_page: bool = True  # write the page at the last audit, and read it
    node: int = 5  # entries of a node of a stream: they are trimmed together


def live(spark: LazySession, history: History, options: Options | None = None) -> list[Untrue]:
    """Live a history on a server of its own and audit it; what the audits say and is untrue."""
    with TemporaryDirectory(prefix="pelops-oracle-") as directory:
        return asyncio.run(_live(spark, history, Path(directory), options or Options()))


async def _live(
    spark: LazySession, history: History, directory: Path, options: Options
) -> list[Untrue]:
    found: list[Untrue] = []
    records: dict[str, Record] = {}
    audits = [at for at, act in enumerate(history.acts) if act.kind is Kind.AUDIT]
    async with open_world(history, node=options.node) as world:
        for at, act in enumerate(history.acts):
            if act.kind is Kind.ARCHIVE:
                _archive(spark, world, directory)
            elif act.kind is Kind.AUDIT:
                is_last = options.has_page and at == audits[-1]
                found += _audit(spark, world, directory, records, has_page=is_last)
            else:
                await world.act(act)
    return found


def settings_of(world: World, directory: Path) -> PipelineSettings:
    """An audit of all groups of the world."""
    files = world.files
    return PipelineSettings(
        place=read_place({}, f"redis://127.0.0.1:{world.servers.master().port}/0"),
        archive=str(directory / "archive"),
        targets=tuple(
            AuditTarget(stream=STREAM, group=group, stuck_after_ms=STUCK_MS)
            for group in world.groups
        ),
        aof_path=None if files is None else str(files),
    )


def _archive(spark: LazySession, world: World, directory: Path) -> None:
    if world.archived_breaks is None:
        world.archived_breaks = world.breaks
    run = open_run(spark, settings_of(world, directory))
    try:
        run_archive(run, find_targets(run))
    finally:
        run.watch.close()


def _audit(
    spark: LazySession,
    world: World,
    directory: Path,
    records: dict[str, Record],
    *,
    has_page: bool,
) -> list[Untrue]:
    settings = settings_of(world, directory)
    judges = [
        Judge(world, group, world.observation(group), records.setdefault(group, Record()))
        for group in world.groups
    ]
    run = open_run(spark, settings)
    try:
        summaries = run_audit(run, find_targets(run))
        page = Path(write_new_reports(run, find_targets(run), summaries)) if has_page else None
    finally:
        run.watch.close()
    reported = {judge.group: list(_read(settings, judge.group, summaries)) for judge in judges}
    found = [untrue for judge in judges for untrue in judge.judge(reported[judge.group])]
    if page is not None:
        found += check_page(page, judges, reported)
    return found


def _read(
    settings: PipelineSettings, group: str, summaries: Sequence[AuditSummary]
) -> Iterator[WindowReport]:
    for one in summaries:
        if one.group == group:
            yield read_reported(settings.archive, STREAM, group, one.window.number)


def shrink(history: History, fails: Callable[[History], bool]) -> History:
    """A smaller history that still fails: acts are dropped, then their numbers made small."""
    history = _drop_acts(history, fails)
    plain: tuple[dict[str, Any], ...] = (
        {"groups": 1},
        {"start": "0"},
        {"has_operator": False},
        {"files": Files.NONE},
    )
    for changes in plain:
        simpler = replace(history, **changes)
        if simpler != history and fails(simpler):
            history = simpler
    for at, act in enumerate(history.acts):
        for number in (1, 2, 5, 10):
            if number < act.number:
                acts = list(history.acts)
                acts[at] = replace(act, number=number)
                smaller = replace(history, acts=tuple(acts))
                if fails(smaller):
                    history = smaller
                    break
    return history


def _drop_acts(history: History, fails: Callable[[History], bool]) -> History:
    size = max(1, len(history.acts) // 2)
    while True:
        at = 0
        while at < len(history.acts):
            smaller = history.without(range(at, at + size))
            if len(smaller.acts) < len(history.acts) and fails(smaller):
                history = smaller
            else:
                at += size
        if size == 1:
            return history
        size //= 2
