"""Runs the checks of `pelops doctor` that need Redis: on this machine, or in the operator."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pelops.cli.doctor.cluster import ClusterReader
from pelops.cli.doctor.cluster_observation import (
    observe_node_clocks,
    observe_pods,
    read_resource,
)
from pelops.cli.doctor.examination import DEFAULT_SKEW, Subject
from pelops.domain.naming import GroupKeys
from pelops.domain.stream_observation import ConsumerObservation
from pelops.policy.doctor.check import Category, CheckResult, Fact, Unanswered, run_checks
from pelops.policy.doctor.facts import ClockFacts, NodeClock, WorkerFacts
from pelops.policy.doctor.group_checks import CLOCK_CHECKS, GROUP_CHECKS, WORKER_CHECKS
from pelops.policy.doctor.server_checks import SERVER_CHECKS
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature
from pelops.redis_streams.doctor.server_observation import (
    ServerClock,
    answer,
    observe_consumers,
    observe_group_facts,
    observe_server,
    read_clock,
)


def features_of(subject: Subject) -> frozenset[Feature]:
    """Return the features of the ACL that the resource uses; the defaults without a resource."""
    if subject.manifest is None:
        return frozenset({Feature.RECOVERY, Feature.SCALING})
    return _features_of(subject.manifest.get("spec") or {})


def _features_of(spec: Mapping[str, Any]) -> frozenset[Feature]:
    recovery, scaling = spec.get("recovery") or {}, spec.get("scaling") or {}
    tuning = recovery.get("tuning") or {}
    is_auto = scaling.get("mode", "Auto") == "Auto"
    used = {
        Feature.RECOVERY: recovery.get("strategy") != "Disabled",
        Feature.RELEASE: recovery.get("strategy") == "Release",
        Feature.LOCKS: bool(recovery.get("locks")),
        Feature.EXPIRY_EVENTS: bool(tuning.get("keyspaceNotifications")),
        Feature.SCALING: is_auto,
        Feature.RETENTION: bool(spec.get("retention")),
        Feature.DELETE_POLICY: spec.get("deletionPolicy") == "Delete",
    }
    return frozenset(feature for feature, is_used in used.items() if is_used)


async def examine_redis(
    server: Fact[Server],
    subject: Subject,
    cluster: ClusterReader | None,
    *,
    reader: str,
    skew: timedelta = DEFAULT_SKEW,
) -> list[CheckResult]:
    """Run the checks that need Redis; `reader` names the machine that this process runs on."""
    clock = server if isinstance(server, Unanswered) else await answer(read_clock(server))
    ahead = clock if isinstance(clock, Unanswered) else clock.ahead
    facts = await observe_server(server, subject.keys, features_of(subject))
    results = run_checks(Category.REDIS, SERVER_CHECKS, facts)
    group, workers, nodes = None, None, None
    if subject.keys is not None:
        resource = None if subject.manifest is None else read_resource(subject.manifest)
        group = await observe_group_facts(server, subject.keys, resource)
        results += run_checks(Category.GROUP, GROUP_CHECKS, group)
    if subject.keys is not None and subject.manifest is not None and cluster is not None:
        pods, others = await observe_pods(cluster, subject.manifest)
        nodes = await observe_node_clocks(cluster, pods, ahead)
        workers = WorkerFacts(
            consumers=await _consumers(server, subject.keys),
            pods=pods,
            others=others,
            has_workload=bool(read_resource(subject.manifest).target),
        )
    results += run_checks(
        Category.CLOCKS, CLOCK_CHECKS, _clock_facts(clock, nodes, reader=reader, skew=skew)
    )
    if workers is not None:
        results += run_checks(Category.WORKERS, WORKER_CHECKS, workers)
    return results


async def _consumers(
    server: Fact[Server], keys: GroupKeys
) -> Fact[tuple[ConsumerObservation, ...]]:
    if isinstance(server, Unanswered):
        return server
    return await answer(observe_consumers(server, keys))


def _clock_facts(
    clock: Fact[ServerClock],
    nodes: Fact[tuple[NodeClock, ...]] | None,
    *,
    reader: str,
    skew: timedelta,
) -> ClockFacts:
    if isinstance(clock, Unanswered):
        return ClockFacts(
            reader=reader, ahead=clock, uncertainty=timedelta(0), nodes=nodes, allowed=skew
        )
    return ClockFacts(
        reader=reader,
        ahead=clock.ahead,
        uncertainty=clock.uncertainty,
        nodes=nodes,
        allowed=skew,
    )
