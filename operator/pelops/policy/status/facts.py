"""All that is known of one resource in one pass: the only input of its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pelops.api.group.recovery import RecoveryStrategy
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.condition import Finding, shorten
from pelops.domain.naming import GroupKeys
from pelops.domain.records.state import GroupState, ScanReport
from pelops.domain.stream_observation import StreamObservation
from pelops.domain.workload import WorkloadObservation
from pelops.policy.audit.notices import AuditNotice
from pelops.policy.recovery.dry_run import DryRun
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.scaling.sharing import Sharing
from pelops.policy.status.reasons import Reason

_NAMES_REPORTED: Final = 5
_NAME_LIMIT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The resource and what was observed; a problem is why something could not be observed."""

    resource: StreamConsumerGroup
    workload: WorkloadObservation
    sharing: Sharing | None = None  # its role in scaling the workers; None: there are no workers
    # The demand of each group with these workers, by resource; None: another replica knows it.
    demands: Mapping[str, float | None] | None = None
    # None: another replica of the operator decides, and the reported status is kept.
    scaling: ScalingDecision | None = None
    keys: GroupKeys | None = None
    stream: StreamObservation | None = None
    server_version: str | None = None
    topology: str | None = None
    evicts_any_key: bool = False  # maxmemory-policy allkeys-*
    redis_problem: Finding | None = None
    workload_problem: Finding | None = None
    audits: tuple[AuditNotice, ...] = ()  # what audits report about the group
    dry_run: DryRun | None = None  # what the last dry run found; None: there was none yet

    @property
    def is_group_ready(self) -> bool:
        """Whether the group exists with all its keys, and this resource manages it.

        In a dry run the group alone is enough, since nothing is created.
        """
        if self.redis_problem is not None or self.stream is None:
            return False
        return self.stream.group is not None if self.is_dry else self.stream.is_provisioned

    @property
    def is_dry(self) -> bool:
        """Whether nothing may be written to Redis and to the workers."""
        return self.resource.spec.recovery.dry_run

    @property
    def is_settled(self) -> bool:
        """Whether the next pass can wait until the group or an object changes, if nothing is
        missing. Workers that become ready are such a change.
        """
        stream, backlog = self.stream, None if self.stream is None else self.stream.backlog
        if stream is None or backlog is None or stream.ownership is None or self.is_dry:
            return False
        is_former = stream.retry is not None and stream.retry.is_former
        is_shared = self.sharing is not None and self.sharing.is_shared
        return backlog.lag == 0 and backlog.pending == 0 and not is_former and not is_shared

    @property
    def is_foreign(self) -> bool:
        """Whether another resource acts on the group, and reports its numbers."""
        return self.redis_problem is not None and self.redis_problem.reason == Reason.CONFLICT

    @property
    def state(self) -> GroupState:
        """The state of the group in Redis; empty if Redis could not be observed.

        In a dry run the scan report is that of the dry run, because the one in Redis is outdated.
        """
        state = GroupState() if self.stream is None else self.stream.state
        if not self.is_dry:
            return state
        report = self.dry_run.report if self.dry_run else ScanReport()
        return replace(state, report=report, scanned_at=None)

    @property
    def unmatched_consumers(self) -> tuple[str, ...]:
        """Names of consumers that match no pod: a few, sorted and printable."""
        names = self.state.report.unmatched if self.recovers else ()
        return tuple(sorted({printable(name, _NAME_LIMIT) for name in names} - {""}))[
            :_NAMES_REPORTED
        ]

    @property
    def has_ready_worker(self) -> bool:
        """Whether a worker is known to be ready."""
        return self.workload.exists and self.workload.ready > 0

    @property
    def may_read(self) -> bool:
        """Whether a worker may be reading: one is ready, or the workers are not declared."""
        return not self.resource.spec.has_workers or self.has_ready_worker

    @property
    def offers_fail(self) -> bool:
        """Whether stuck entries are offered and no worker takes them."""
        releases = self.resource.spec.recovery.strategy is RecoveryStrategy.RELEASE
        return releases and self.state.report.is_not_taken

    @property
    def recovers(self) -> bool:
        """Whether recovery is enabled; if not, scan reports are outdated."""
        return self.resource.spec.recovery.is_enabled


def printable(text: str, limit: int) -> str:
    """Return the text as valid UTF-8, with at most `limit` characters.

    Any client with access to the state key in Redis may have written it.
    """
    return shorten(text.encode(errors="replace").decode(), limit)
