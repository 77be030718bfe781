"""Checks that streams and groups exist before anything is written.

A window is planned once, together with its groups: a wrong name could not be corrected by a second
run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.records import Journal, WindowPhase
from pelops.pipeline.audit.user_tables import read_table
from pelops.pipeline.context import PipelineRun
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.run import Targets
from pelops.pipeline.settings import AuditTarget

log: Final = logging.getLogger(__name__)


def check_names(run: PipelineRun, all_targets: Targets) -> None:
    """Raise WrongPipelineSettings if a stream, a group or a table does not exist.

    A run that records its findings has its groups from resources. It reports a missing stream or
    group as a finding.
    """
    settings = run.settings
    for table in filter(None, (settings.sent, settings.effects)):
        read_table(run.spark.get(), table)
    if settings.name is not None:
        return
    if not all_targets:
        raise WrongPipelineSettings(f"no stream that has a group fits {settings.pattern!r}")
    journal = Journal.read(run.archive)
    for stream, targets in all_targets.items():
        _check_groups(run, journal, stream, targets)


def check_dead_letters(run: PipelineRun, all_targets: Targets) -> None:
    """As `check_names`, but accept a missing group whose dead-letter stream exists."""
    if run.settings.name is not None:
        return
    for stream, targets in all_targets.items():
        there = run.watch.groups(stream)
        for target in targets:
            key = derive_keys(stream, target.group, dead_letter=target.dead_letter).dead_letter
            if target.group not in there and not run.watch.stream(key).exists:
                raise WrongPipelineSettings(_missing(run, target, sorted(there)))


def _check_groups(
    run: PipelineRun, journal: Journal, stream: str, targets: Sequence[AuditTarget]
) -> None:
    # If a group was audited before and is missing now, that is a finding, not a wrong name.
    new = [one for one in targets if (stream, one.group) not in journal.audited]
    if not new:
        return
    there = run.watch.groups(stream)
    for target in new:
        if target.group not in there:
            raise WrongPipelineSettings(_missing(run, target, sorted(there)))
        if journal.numbers(stream, WindowPhase.AUDITED):
            log.warning(
                "group %r is in no archived window of %r: entries added before those windows ended"
                " are not audited for it. To audit them, use a separate archive",
                target.group, stream,
            )  # fmt: skip


def _missing(run: PipelineRun, target: AuditTarget, groups: Sequence[str]) -> str:
    if not run.watch.stream(target.stream).exists:
        return f"there is no stream {target.stream!r}"
    names = ", ".join(map(repr, groups)) or "none"
    return f"stream {target.stream!r} has no group {target.group!r}; it has {names}"
