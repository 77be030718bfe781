"""The processes of a cluster that outlives the command which started it, kept in a file."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from local_cluster.processes import Process, report_detached, settle

# A node ends its pods in order, and a pod's grace period is 30 s unless it says otherwise.
NODE_GRACE_S = 45.0
NODE_PREFIX = "node-"


class Records:
    """What was started and not yet stopped, by name; a later process of a name replaces it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Process]:
        """In the order in which they were started; empty when nothing was recorded."""
        try:
            rows = json.loads(self.path.read_text())
        except FileNotFoundError:
            return []
        return [
            Process(row["name"], row["pid"], Path(row["log"]), started=row["started"])
            for row in rows
        ]

    def add(self, process: Process) -> None:
        """Record a process, durably against the end of this one at any instant."""
        known = [other for other in self.read() if other.name != process.name]
        rows = [
            {"name": one.name, "pid": one.pid, "started": one.started, "log": str(one.log)}
            for one in [*known, process]
        ]
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(rows, indent=2))
        os.replace(fresh, self.path)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record every detached process that is started within the block."""
        report_detached(self.add)
        try:
            yield
        finally:
            settle()
            report_detached(None)

    def stop_all(self) -> None:
        """End all of them; nodes first and gently, for they end their pods."""
        processes = self.read()
        stop_nodes([one for one in processes if one.name.startswith(NODE_PREFIX)])
        for process in reversed(processes):
            process.kill()


def stop_nodes(nodes: Sequence[Process]) -> None:
    """End nodes side by side, and by force after their grace period."""
    for node in nodes:
        node.send(signal.SIGTERM)
    for node in nodes:
        node.stop(NODE_GRACE_S)
