"""What every act of the demo works with."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.checks import find_condition, is_ready, is_settled
from demo.declaration import MANIFEST, Declaration, render_declaration
from demo.direct import ROOT
from demo.following import Following
from demo.notices import Notices, watch_events
from demo.playground import Playground
from demo.recovery import count_moves, list_moves
from demo.sampling import Sampling
from demo.scaling import WATCH_REPLICAS, Count, read_counts
from demo.store import Store
from demo.watching import Watch
from demo.workers import WATCH_PODS, History, read_history
from pelops.domain.ledger import LedgerKind
from pelops.policy.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A cluster that is up, what is declared there, and the eyes on it."""

    cluster: Playground
    declaration: Declaration
    store: Store
    watch: Watch
    pods: Following
    replicas: Following
    sampling: Sampling

    @classmethod
    @contextmanager
    def open(cls, cluster: Playground, scratch: Path) -> Iterator["Stage"]:
        """The stage for the block; nothing is applied yet. `scratch` is an empty directory."""
        declaration = render_declaration(
            MANIFEST.read_text(), redis_url=cluster.redis_url, source_root=ROOT
        )
        namespace, name = declaration.namespace, declaration.name
        where = ("-n", namespace)
        pods = cluster.follow("pods", *WATCH_PODS, *where, log=scratch / "pods.log")
        events = cluster.follow("events", *watch_events(name), *where, log=scratch / "events.log")
        replicas = cluster.follow("replicas", *WATCH_REPLICAS, *where, log=scratch / "replicas.log")
        store = Store(cluster.redis_url, declaration)
        sampling = Sampling(store.find_group)
        try:
            yield cls(
                cluster=cluster,
                declaration=declaration,
                store=store,
                watch=Watch(cluster, namespace, name, Notices(events)),
                pods=pods,
                replicas=replicas,
                sampling=sampling,
            )
        finally:
            sampling.stop()
            for following in (pods, events, replicas):
                following.stop()

    def get(self, kind: str, *args: str) -> dict[str, Any]:
        """An object, or a list of them, of the demo's namespace."""
        where = ["-n", self.declaration.namespace, "-o", "json"]
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", kind, *args, *where))
        return found

    def status(self) -> dict[str, Any]:
        """The resource's status; empty before the operator saw it."""
        status: dict[str, Any] = self.get("scg", self.declaration.name).get("status", {})
        return status

    def observe_workers(self) -> History:
        """What the API server has told of the workers so far."""
        return read_history(self.pods.lines)

    def count_workers(self) -> list[Count]:
        """What the API server has told of their number so far."""
        return read_counts(self.replicas.lines, f"{self.declaration.name}-workers")

    def list_pods(self) -> list[dict[str, Any]]:
        """The pods of the workers; those on their way out as well."""
        selector = self.status().get("selector", "")
        pods: list[dict[str, Any]] = self.get("pods", "-l", selector)["items"]
        return pods


def is_asleep(stage: Stage) -> bool:
    """Whether the resource is Ready, without workers, and said to stay so."""
    status = stage.status()
    scaling = find_condition(status, "ScalingActive")
    return is_ready(status) and scaling.get("reason") == Reason.IDLE and not stage.list_pods()


def is_all_told(stage: Stage) -> bool:
    """Whether the status says all that happened, and that all is well."""
    status, moves = stage.status(), list_moves(stage.store.read_ledger())
    recovery = status.get("recovery") or {}
    return (
        is_settled(status)
        and is_ready(status)
        and recovery.get("requeued") == count_moves(moves, LedgerKind.REQUEUED)
        and recovery.get("deadLettered") == count_moves(moves, LedgerKind.DEAD_LETTERED)
    )
