"""How a scan ends: what it found is written for all replicas, and people are informed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.meta import ObjectMeta
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.scan import Ground
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.domain.locks import lock_slot_problem
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import ScanObservation
from pelops.domain.state import BOOT, POD, render_report
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.redis_core.server import Server, Topology
from pelops.redis_streams.recovery.lock_expiry import read_lifetimes
from pelops.redis_streams.recovery.scan import finish_scan, read_fields

SOONEST_LOCK: Final = timedelta(milliseconds=50)
LOCKS_ASKED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScan:
    """One scan of a group while it goes on."""

    resource: StreamConsumerGroup
    server: Server
    keys: GroupKeys
    observation: ScanObservation
    findings: Findings
    learnt: dict[str, str] = field(default_factory=dict)  # fields of the state to be written

    @property
    def name(self) -> Name:
        """The resource's."""
        return self.resource.metadata.namespace, self.resource.metadata.name


class Closing:
    """Ends scans. Remembers where it stopped forgetting suspects that are done with."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._cursors: dict[Name, str] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._cursors.pop(name, None)

    async def close(self, scan: GroupScan) -> None:
        """Write the report if it is news. Raises as `finish_scan`."""
        observation, keys = scan.observation, scan.keys
        report = json.dumps(render_report(scan.findings.report()), sort_keys=True)
        tries_cursor = self._cursors.get(scan.name, "0")
        resolved = "" if observation.retry_batch.under_way else observation.retry_batch.written
        is_news = report != observation.report or scan.learnt or resolved
        if not is_news and not scan.findings.moved and tries_cursor == "0":
            return
        with_retry = needs_retry_stream(scan.resource.spec)
        target = keys.retry if with_retry else keys.stream
        streams = (keys.stream, *(() if observation.retry is None else (keys.retry,)))
        self._cursors[scan.name] = await finish_scan(
            scan.server,
            keys,
            uid=scan.resource.metadata.uid,
            target=target,
            others=tuple(stream for stream in streams if stream != target),
            report=report,
            resolved=resolved,
            tries_cursor=tries_cursor,
            learnt=scan.learnt,
        )

    async def report(self, metadata: ObjectMeta, findings: Findings) -> None:
        """Measure what a scan did and tell people, once, however far it came. Does not raise."""
        findings.measure(metadata.namespace, metadata.name)
        for happening in findings.happenings():
            await self._reporter.report(metadata, happening)


async def read_records(ground: Ground, owners: list[str]) -> dict[str, str]:
    """What the state knows of these consumers."""
    names = [f"{kind}{owner}" for kind in (POD, BOOT) for owner in owners]
    values = await read_fields(ground.server, ground.act.keys, names)
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


async def until_unlocked(scan: GroupScan, longest: timedelta) -> timedelta:
    """When the first of the locks that kept entries runs out, as far as Redis knows now."""
    left = await read_lifetimes(scan.server, scan.findings.locked[:LOCKS_ASKED])
    return min([longest, *(one + SOONEST_LOCK for one in left)])


def find_unusable_locks(scan: GroupScan) -> str | None:
    """Why nobody can tell whether locks exist; None when it can be told."""
    locks = scan.resource.spec.recovery.locks
    if locks is None or scan.server.kind.topology is not Topology.CLUSTER:
        return None
    return lock_slot_problem(locks.key_template, scan.keys)
