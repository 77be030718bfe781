"""The report of a scan: in the state of the group, as metrics, and as Events.

All replicas read the report from the state. It is written when it differs from the last one. The
time of a completed scan is written every 30 s at most.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pelops.api.schema.base import ObjectMeta
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.scan import GroupScan
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.domain.records.state import render_report
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.redis_streams.recovery.scan_calls import finish_scan

# The shortest time between two writes of that time: one costs Redis as much as an idle scan.
NOTED_EVERY: Final = timedelta(seconds=30)


class ScanCloser:
    """Reports scans.

    For each resource it remembers where it stopped deleting records of former suspects, and when it
    last wrote the time of a completed scan.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._cursors: dict[Name, str] = {}
        self._noted: dict[Name, datetime] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._cursors.pop(name, None)
        self._noted.pop(name, None)

    async def close(self, scan: GroupScan) -> None:
        """Write the report if it differs from the last one. Raises as `finish_scan`."""
        observation, keys = scan.observation, scan.keys
        report = render_findings(scan.findings)
        tries_cursor = self._cursors.get(scan.name, "0")
        resolved = "" if observation.retry_batch.under_way else observation.retry_batch.written
        is_news = report != observation.report or scan.new_records or resolved
        noted = self._noted.get(scan.name)
        is_noted = noted is not None and timedelta() <= observation.now - noted < NOTED_EVERY
        done = observation.now if scan.findings.is_complete and not is_noted else None
        if not is_news and not scan.findings.moved and tries_cursor == "0" and done is None:
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
            done=done,
            resolved=resolved,
            tries_cursor=tries_cursor,
            new_records=scan.new_records,
        )
        if done is not None:
            self._noted[scan.name] = done

    async def report(self, metadata: ObjectMeta, findings: Findings) -> None:
        """Count what a scan did in metrics, and create its Events. Does not raise."""
        findings.measure(metadata.namespace, metadata.name)
        for event in findings.list_events():
            await self._reporter.report(metadata, event)


def render_findings(findings: Findings) -> str:
    """The report as the state of the group has it."""
    return render_report(findings.report())
