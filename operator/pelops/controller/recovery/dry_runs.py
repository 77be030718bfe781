"""The dry runs of a replica: the last one of each group, and how it is reported."""

from __future__ import annotations

from collections.abc import Callable

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.schema.base import ObjectMeta
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.kube.event_recorder import EventContent
from pelops.metrics import DRY_RUN_ENTRIES
from pelops.policy.recovery.dry_run import DryRun
from pelops.policy.status.reasons import Reason


class DryRuns:
    """Remembers what dry runs found. It is kept here alone: a dry run writes nothing to Redis."""

    def __init__(self, reporter: Reporter, make_due: Callable[[Name], None]) -> None:
        """`make_due`: the status of this resource is worth a pass."""
        self._reporter = reporter
        self._make_due = make_due
        self._found: dict[Name, tuple[str, DryRun]] = {}

    def get(self, metadata: ObjectMeta) -> DryRun | None:
        """The last dry run of this resource; None when this replica has made none."""
        uid, dry_run = self._found.get((metadata.namespace, metadata.name), ("", None))
        return dry_run if uid == metadata.uid else None

    def forget(self, name: Name) -> None:
        """Drop the result: another replica makes the dry runs, or the mode has changed."""
        _, dry_run = self._found.pop(name, ("", None))
        if dry_run is not None:
            _measure(name, dry_run, DryRun())

    async def record(self, resource: StreamConsumerGroup, dry_run: DryRun) -> None:
        """Keep a dry run, and report it if it is news. Does not raise."""
        metadata = resource.metadata
        name, before = (metadata.namespace, metadata.name), self.get(metadata)
        self._found[name] = (metadata.uid, dry_run)
        if before == dry_run:
            return
        _measure(name, before or DryRun(), dry_run)
        self._make_due(name)
        if dry_run.outcomes and (before is None or before.outcomes != dry_run.outcomes):
            await self._reporter.report(metadata, report_dry_run(dry_run))


def report_dry_run(dry_run: DryRun) -> EventContent:
    """The Event for a dry run."""
    return EventContent(
        type="Normal",
        reason=Reason.DRY_RUN,
        action="DryRun",
        note=dry_run.describe(),
        occurrence="",
    )


def _measure(name: Name, before: DryRun, after: DryRun) -> None:
    for action, reason in before.outcomes.keys() - after.outcomes.keys():
        DRY_RUN_ENTRIES.forget(*name, action.value, reason)
    for action, reason, count in after.rows():
        DRY_RUN_ENTRIES.set(count, *name, action.value, reason)
