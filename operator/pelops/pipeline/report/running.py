"""The command `report`: from the newest windows of an archive to `audit.html` and `audit.json`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from pelops import __version__
from pelops.domain.naming import derive_keys
from pelops.pipeline.engine import SparkSession
from pelops.pipeline.errors import WrongSettings
from pelops.pipeline.layout import WindowPlace, stream_path, window_numbers
from pelops.pipeline.report.document import render_document
from pelops.pipeline.report.gather import gather_group
from pelops.pipeline.report.model import GroupReport, Letters, Report
from pelops.pipeline.report.page import render_page
from pelops.pipeline.run import find_targets, open_run
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import Settings, Target
from pelops.pipeline.triage_run import triage_target
from pelops.pipeline.work import Run
from pyspark_redis_streams.errors import RedisStreamsError

log: Final = logging.getLogger(__name__)
DIRECTORY: Final = "report"  # of the archive
BY_HAND: Final = "by hand"


def run_report(session: SparkSession | LazySession, settings: Settings) -> int:
    """Write the report of all groups; the exit code is 0 however grave what it tells.

    Raises WrongSettings when none of them was audited: a page that is there stays as it was.
    """
    run = open_run(session, settings)
    try:
        groups = _gather(run)
        if not groups:
            raise WrongSettings(f"nothing of this was audited into {settings.archive}")
        print(_write(run, groups))
    finally:
        run.watch.close()
    return 0


def write_report(run: Run) -> str:
    """Write `audit.html` and `audit.json` into the archive; answers the path of the page.

    Groups that were not audited yet are left out.
    """
    found = find_targets(run)
    page = f"{run.settings.archive}/{DIRECTORY}/audit.html"
    if _is_current(run, [target for targets in found.values() for target in targets]):
        return page
    return _write(run, _gather(run))


def _is_current(run: Run, targets: Sequence[Target]) -> bool:
    """Whether the page tells of the newest window of each group, and of as many dead letters."""
    base = f"{run.settings.archive}/{DIRECTORY}"
    told = run.storage.read_json(f"{base}/audit.json")
    if told is None or not run.storage.exists(f"{base}/audit.html"):
        return False
    if (told.get("audit"), told.get("pelops")) != (run.settings.name or BY_HAND, __version__):
        return False
    known = {
        (one["summary"]["stream"], one["summary"]["group"]): (
            one["summary"]["window"]["number"],
            (one.get("dead_letters") or {}).get("count"),
        )
        for one in told["groups"]
    }
    return known == {(one.stream, one.group): _newest(run, one) for one in targets}


def _newest(run: Run, target: Target) -> tuple[int | None, int]:
    """The newest window that was audited for a group, and how many dead letters it has."""
    keys = derive_keys(target.stream, target.group, dead_letter=target.dead_letter)
    numbers = window_numbers(
        run.storage.list_names(stream_path(run.settings.archive, target.stream))
    )
    places = (
        WindowPlace(root=run.settings.archive, stream=target.stream, number=number)
        for number in reversed(numbers)
    )
    newest = (
        place.number
        for place in places
        if run.storage.exists(place.of_group(target.group, "audit.json"))
    )
    return next(newest, None), run.watch.stream(keys.dead_letter).length


def _write(run: Run, groups: Sequence[GroupReport]) -> str:
    report = Report(
        audit=run.settings.name or BY_HAND,
        at=datetime.now(UTC),
        pelops=__version__,
        archive=run.settings.archive,
        groups=tuple(groups),
    )
    base = f"{run.settings.archive}/{DIRECTORY}"
    run.storage.write_text(f"{base}/audit.json", render_document(report))
    run.storage.write_text(f"{base}/audit.html", render_page(report))
    return f"{base}/audit.html"


def _gather(run: Run) -> list[GroupReport]:
    found = []
    for targets in find_targets(run).values():
        for target in targets:
            group = gather_group(run, target, partial(_letters, run, target))
            if group is None:
                log.warning("%s / %s was not audited yet", target.stream, target.group)
            else:
                found.append(group)
    return found


def _letters(run: Run, target: Target) -> Letters | None:
    """The dead letters as they are now; None when the server cannot be asked."""
    try:
        triage, plan = triage_target(run, target)
    except RedisStreamsError as error:
        log.warning("dead letters of %s were not looked at: %s", target.group, error)
        return None
    return Letters(count=triage.letters, clusters=triage.clusters, plan=plan)
