"""The requests of one user in the audit log of the API server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from local_cluster.plane import ControlPlane

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEASES = "leases"
LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was answered, or a watch that began."""

    answered: datetime
    verb: str
    api_group: str
    resource: str  # with its subresource: deployments/scale
    namespace: str
    name: str
    code: int

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.namespace}/{self.name} -> {self.code}"


class AuditTrail:
    """The requests of one user since this object was made; `read` continues where it ended."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        self._path = plane.audit_log
        self._user = user
        self._offset = _end_of_lines(self._path)

    def read(self) -> list[Request]:
        """What was answered since the last call, the oldest first."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            # The last line may be half written.
            whole = log.read().rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        ours = self._user.encode()  # most lines are others', and cost less unread
        events = (json.loads(line) for line in whole.splitlines() if ours in line)
        return [
            _request(event)
            for event in events
            if event["user"]["username"] == self._user and "objectRef" in event
        ]


def _end_of_lines(log: Path) -> int:
    """Where the last whole line ends: one that is half written is read when it is whole."""
    with log.open("rb") as opened:
        begin = max(0, opened.seek(0, os.SEEK_END) - LONGEST_LINE)
        opened.seek(begin)
        return begin + opened.read().rfind(b"\n") + 1


def _request(event: dict[str, Any]) -> Request:
    subject = event["objectRef"]
    suffix = f"/{subject['subresource']}" if "subresource" in subject else ""
    return Request(
        answered=datetime.fromisoformat(event["stageTimestamp"]),
        verb=event["verb"],
        api_group=subject.get("apiGroup", ""),
        resource=f"{subject['resource']}{suffix}",
        namespace=subject.get("namespace", ""),
        name=subject.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
    )


def writes(requests: Iterable[Request]) -> list[Request]:
    """The writes among them, the Leases of the members aside."""
    return [one for one in requests if one.verb in WRITES and one.resource != LEASES]
