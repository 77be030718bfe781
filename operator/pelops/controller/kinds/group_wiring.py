"""Puts the kind of StreamConsumerGroups together from its features, and connects these."""

from __future__ import annotations

from datetime import timedelta

from pelops.controller.group.group_actions import GroupActions
from pelops.controller.group.group_deletion import FINALIZER
from pelops.controller.group.group_observer import GroupMemories, GroupObserver
from pelops.controller.group.settled_groups import SettledGroups
from pelops.controller.group.upkeep import UpkeepActions
from pelops.controller.group.workload_actions import BudgetActions, WorkloadActions
from pelops.controller.inspection.inspector import Inspector
from pelops.controller.kinds.group_kind import GroupKind, Notices
from pelops.controller.recovery.lock_expiry import ExpiryListener
from pelops.controller.recovery.pod_evidence import LivenessEvidence, NodeClocks
from pelops.controller.recovery.scan_loop import ScanLoop
from pelops.controller.recovery.scanner import ScanAdapters, Scanner
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.kind import Finalizer, Services
from pelops.controller.scaling.loop import ScalingLoop
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.recovery import Trigger
from pelops.kube.client import STREAM_CONSUMER_GROUP


def build_group_kind(services: Services, *, cluster: str, notices: Notices) -> GroupKind:
    """A kind for groups, their workers, their recovery and their scaling.

    `cluster` identifies this Kubernetes cluster. `notices` returns the messages of audits about a
    group.
    """
    api, clock, members, settings = (
        services.api,
        services.clock,
        services.members,
        services.settings,
    )
    kind: GroupKind
    scans: ScanLoop

    def make_due(name: Name) -> None:
        kind.queue.add(name)

    def is_settled(name: Name) -> bool:
        return kind.is_settled(name)

    def wake(name: Name) -> None:
        scans.wake(name, Trigger.LOCK_EXPIRY)

    memories, cache = GroupMemories(), WorkloadCache(clock, services.cache)
    targets = Targets(api, cache, clock)
    observer = GroupObserver(cache, services.connections, targets, cluster=cluster)
    reporter = Reporter(api, STREAM_CONSUMER_GROUP, identity=settings.identity)
    finalizer = Finalizer(api, services.cache, STREAM_CONSUMER_GROUP, FINALIZER)
    actions = GroupActions(
        finalizer,
        WorkloadActions(api, cache, targets, observer),
        UpkeepActions(api, cache, identity=settings.identity),
        BudgetActions(api, cache),
    )
    clocks, skew = NodeClocks(api, clock), timedelta(seconds=settings.skew_s)
    evidence = LivenessEvidence(api, cache, cluster=cluster, clocks=clocks)
    listener = ExpiryListener(observer.connect, wake)
    scanner = Scanner(
        ScanAdapters(
            cache=cache,
            observer=observer,
            members=members,
            evidence=evidence,
            targets=targets,
            skew=skew,
            reporter=reporter,
            listening_problem=listener.problem,
            identity=settings.identity,
            make_due=make_due,
            is_settled=is_settled,
        ),
        clock,
    )
    scans = ScanLoop(scanner, cache, members, services.progress, clock)
    scaling = ScalingLoop(
        api,
        cache,
        members,
        observer,
        targets,
        reporter,
        services.progress,
        clock,
        make_due=make_due,
        note=memories.note,
    )
    kind = GroupKind(
        services,
        memories,
        cache,
        observer,
        actions,
        finalizer=finalizer,
        inspector=Inspector(cache, observer, evidence, targets, skew=skew),
        clocks=clocks,
        listener=listener,
        settled=SettledGroups(services.connections, make_due, services.progress, clock),
        dry_runs=scanner.dry_runs,
        scans=scans,
        scaling=scaling,
        notices=notices,
    )
    return kind
