"""What every act of the demo works with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from demo.checks import find_condition, is_ready, is_settled
from demo.declaration import MANIFEST, read_declarations, render_manifest
from demo.direct import ROOT
from demo.following import Following
from demo.notices import WATCH_EVENTS, Notices
from demo.playground import Playground
from demo.recovery import count_operator_moves, list_moves
from demo.sampling import Sampling
from demo.scaling import WATCH_REPLICAS, Count, read_counts
from demo.store import Store
from demo.team import Team
from demo.watching import Watch
from demo.workers import WATCH_PODS, History, read_history
from pelops.domain.records.ledger import LedgerKind
from pelops.policy.status.reasons import Reason

API_GROUPS = {
    "pods": "/api/v1",
    "deployments": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "cronjobs": "/apis/batch/v1",
    "streamconsumergroups": "/apis/pelops.dev/v1alpha1",
    "streamaudits": "/apis/pelops.dev/v1alpha1",
    "streamredrives": "/apis/pelops.dev/v1alpha1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A cluster that is up, what is declared there, and the eyes on it."""

    cluster: Playground
    manifest: str
    namespace: str
    sdk: Team  # scaled; the others are always as many
    plain: Team
    watch: Watch
    pods: Following
    replicas: Following
    sampling: Sampling

    @property
    def teams(self) -> tuple[Team, Team]:
        """Both."""
        return self.sdk, self.plain

    @classmethod
    @contextmanager
    def open(cls, cluster: Playground, scratch: Path) -> Iterator["Stage"]:
        """The stage for the block; nothing is applied yet. `scratch` is an empty directory."""
        text = MANIFEST.read_text()
        manifest = render_manifest(text, redis_url=cluster.redis_url, source_root=ROOT)
        sdk, plain = _form_teams(manifest, cluster.redis_url)
        where = ("-n", sdk.declaration.namespace)
        pods = cluster.follow("pods", *WATCH_PODS, *where, log=scratch / "pods.log")
        events = cluster.follow("events", *WATCH_EVENTS, *where, log=scratch / "events.log")
        replicas = cluster.follow("replicas", *WATCH_REPLICAS, *where, log=scratch / "replicas.log")
        sampling = Sampling(sdk.store.find_group)
        try:
            yield cls(
                cluster=cluster,
                manifest=manifest,
                namespace=sdk.declaration.namespace,
                sdk=sdk,
                plain=plain,
                watch=Watch(cluster, sdk.declaration.namespace, Notices(events)),
                pods=pods,
                replicas=replicas,
                sampling=sampling,
            )
        finally:
            sampling.stop()
            for following in (pods, events, replicas):
                following.stop()

    def get(self, resource: str, name: str = "", **query: str) -> dict[str, Any]:
        """An object of the demo's namespace; without a name, the list of those that fit."""
        path = f"{API_GROUPS[resource]}/namespaces/{self.namespace}/{resource}"
        return self.cluster.reader.get(
            path + f"/{name}" * bool(name) + f"?{urlencode(query)}" * bool(query)
        )

    def status(self, team: Team) -> dict[str, Any]:
        """The status of the team's resource; empty before the operator saw it."""
        status: dict[str, Any] = self.get("streamconsumergroups", team.declaration.name).get(
            "status", {}
        )
        return status

    def observe_workers(self, team: Team) -> History:
        """What the API server has reported of the team's workers so far."""
        return team.find_own(read_history(self.pods.lines))

    def count_workers(self, team: Team) -> list[Count]:
        """What the API server has reported of their number so far."""
        return read_counts(self.replicas.lines, team.declaration.deployment)

    def list_pods(self, team: Team) -> list[dict[str, Any]]:
        """The pods of its workers; those on their way out as well."""
        selector = self.status(team)["selector"]
        pods: list[dict[str, Any]] = self.get("pods", labelSelector=selector)["items"]
        return pods


def _form_teams(manifest: str, redis_url: str) -> tuple[Team, Team]:
    sdk, plain = read_declarations(manifest)
    return (
        Team(label="SDK", declaration=sdk, store=Store(redis_url, sdk), keeps_errors=False),
        Team(
            label="plain loop",
            declaration=plain,
            store=Store(redis_url, plain),
            keeps_errors=True,
        ),
    )


def is_asleep(stage: Stage, team: Team) -> bool:
    """Whether the resource is Ready, without workers, and said to stay so."""
    status = stage.status(team)
    scaling = find_condition(status, "ScalingActive")
    return (
        is_ready(status)
        and scaling.get("reason") == Reason.IDLE
        and (status.get("desiredReplicas"), status.get("readyReplicas")) == (0, 0)
        and not stage.list_pods(team)
    )


def is_complete(stage: Stage, team: Team) -> bool:
    """Whether the resource is Ready, with all of its workers."""
    status = stage.status(team)
    return is_ready(status) and status.get("readyReplicas") == team.declaration.most


def is_all_told(stage: Stage, team: Team) -> bool:
    """Whether the status reports all that happened, and that all is well."""
    status, moves = stage.status(team), list_moves(team.store.read_ledger())
    recovery = status.get("recovery") or {}
    return (
        is_settled(status)
        and is_ready(status)
        and recovery.get("requeued") == count_operator_moves(moves, LedgerKind.REQUEUED)
        and recovery.get("deadLettered") == count_operator_moves(moves, LedgerKind.DEAD_LETTERED)
    )
