"""Invariant 7: in the steady state replicas write nothing, however many there are."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import Process
from local_cluster.redis_servers import StandaloneServers
from tests.api_objects import empty_namespace
from tests.audit import LEASES, AuditTrail, Request, writes
from tests.cluster_fixtures import own_node
from tests.control_plane.counting import await_members, await_quiet, await_ready
from tests.operators import (
    SERVICE_ACCOUNT,
    Operators,
    Resources,
    sleeping_template,
)

# Without stabilization windows, whose end would have to be reported.
ONE_WORKER = {
    "minReplicas": 1,
    "cooldownSeconds": 0,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many resources, and how long they are watched."""

    per_kind: int  # of each of four kinds, in each of two namespaces
    observed_each_s: int
    numbers_after_s: int  # after which numbers that moved are written
    watched_s: float  # in which nothing is written

    @property
    def quiet_s(self) -> float:
        """Without a write for so long, all is settled."""
        return 1.5 * self.numbers_after_s

    @property
    def environment(self) -> dict[str, str]:
        """Settings of the operators."""
        return {
            "PELOPS_OBSERVE_INTERVAL": str(self.observed_each_s),
            "PELOPS_STATUS_INTERVAL": str(self.numbers_after_s),
        }


FEW = Size(per_kind=5, observed_each_s=2, numbers_after_s=4, watched_s=10.0)
# With the intervals that the operator has by default.
MANY = Size(per_kind=25, observed_each_s=5, numbers_after_s=10, watched_s=60.0)


@pytest.fixture(scope="module")
def light_node(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    with own_node(plane, tmp_path_factory.mktemp("light"), light=True):
        yield plane


@pytest.mark.parametrize(
    "size",
    [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.full)],
)
def test_settled_resources_are_not_written_and_replicas_add_no_writes(
    light_node: ControlPlane,
    redis_86: StandaloneServers,
    key_prefix: str,
    tmp_path: Path,
    size: Size,
) -> None:
    plane = light_node
    trail = AuditTrail(plane, SERVICE_ACCOUNT)
    with Operators(plane, tmp_path, environment=size.environment) as operators:
        operators.start(1)
        alone = _settle(plane, trail, "alone", redis_86.url, key_prefix, size)
        operators.start(2)
        await_members(operators, 3)
        together = _settle(plane, trail, "together", redis_86.url, key_prefix, size)

        before = [_Usage.of(process) for process in operators.processes]
        trail.read()
        time.sleep(size.watched_s)
        requests = trail.read()
        after = [_Usage.of(process) for process in operators.processes]

        operators.start(1)  # it knows nothing yet, and takes over its share
        await_members(operators, 4)
        taking_over = writes(await_quiet(trail, size.quiet_s))
        for name in ("alone", "together"):
            empty_namespace(plane, f"{name}-{size.per_kind}")

    for one, other in zip(before, after, strict=True):
        print(f"idle: {other.since(one)}")
    leases = [one for one in requests if one.resource == LEASES and one.verb == "patch"]
    assert len({one.name for one in leases}) == 3, "the audit log sees all three replicas"
    assert [str(one) for one in writes(requests)] == []
    assert [str(one) for one in taking_over] == []
    # Three that write whatever they see write three times as much. On a slow machine the first in
    # rank is sometimes too late.
    assert len(together) <= 1.5 * len(alone), f"{_count(together)} instead of {_count(alone)}"


def _count(requests: list[Request]) -> dict[str, int]:
    return dict(Counter(f"{one.verb} {one.resource} {one.code}" for one in requests))


def _settle(
    plane: ControlPlane, trail: AuditTrail, name: str, url: str, prefix: str, size: Size
) -> list[Request]:
    """Apply resources of every kind and wait until all is quiet: the writes that it took."""
    namespace = f"{name}-{size.per_kind}"
    plane.kubectl("create", "namespace", namespace)
    resources = Resources(plane, namespace)
    resources.apply_raw(*_manifests(url, prefix + namespace, size.per_kind))
    await_ready(plane, namespace, 4 * size.per_kind)
    written = writes(await_quiet(trail, size.quiet_s))
    return [one for one in written if one.namespace == namespace]


def _manifests(url: str, prefix: str, per_kind: int) -> list[dict[str, Any]]:
    manifests = []
    for number in range(per_kind):
        owned = {"template": sleeping_template(), "replicas": 1}
        asleep = {"template": sleeping_template(), "scaling": {}}
        manifests.append(_resource(f"owns-{number}", url, prefix, owned))
        manifests.append(_resource(f"sleeps-{number}", url, prefix, asleep))
        adopted = {"adopts": {}, "scales": {"scaling": ONE_WORKER}}
        for kind, scaling in adopted.items():
            workers = f"workers-{kind}-{number}"
            manifests.append(_deployment(workers))
            target = {"targetRef": {"name": workers}, **scaling}
            manifests.append(_resource(f"{kind}-{number}", url, prefix, target))
    return manifests


def _resource(name: str, url: str, prefix: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": name},
        "spec": {"redis": {"url": url}, "stream": f"{prefix}:{name}", **spec},
    }


def _deployment(name: str) -> dict[str, Any]:
    template = sleeping_template()
    template["metadata"] = {"labels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


@dataclass(frozen=True, slots=True)
class _Usage:
    at: float
    cpu_s: float
    rss_mib: float

    @classmethod
    def of(cls, process: Process) -> _Usage:
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return cls(
            at=time.monotonic(),
            cpu_s=(int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
            rss_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        )

    def since(self, before: _Usage) -> str:
        share = (self.cpu_s - before.cpu_s) / (self.at - before.at)
        return f"{share:.1%} of a core, {self.rss_mib:.0f} MiB resident"
