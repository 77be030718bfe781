"""Checks of the categories `group`, `clocks` and `workers`: one consumer group and its workers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from pelops.domain.naming import key_slot
from pelops.domain.stream_observation import ConsumerObservation
from pelops.policy.doctor.check import (
    Check,
    CheckVerdict,
    NotAnswered,
    count,
    error,
    known,
    list_names,
    ok,
    warning,
)
from pelops.policy.doctor.facts import ClockFacts, GroupFacts, NodeClock, WorkerFacts
from pelops.policy.recovery.liveness import LEASE_PERIOD
from pelops.policy.recovery.owners import Owners

# A consumer that asked for entries within this time is in use, also if it holds none.
RECENT: Final = timedelta(minutes=5)
READER_ALLOWED: Final = timedelta(seconds=2)
# How late a Lease is renewed by a clock that is right: a period, and a retry.
LATE: Final = 2 * LEASE_PERIOD
_REQUEUE: Final = "Requeue"
_CLUSTER: Final = "cluster"


def _types(facts: GroupFacts) -> CheckVerdict:
    keys = facts.keys
    wanted = {key: "hash" if key in keys.hashes else "stream" for key in keys.by_name().values()}
    wrong = [
        f"{key} is a {type_name}, not a {wanted[key]}"
        for key, type_name in known(facts.types).items()
        if type_name != wanted[key]
    ]
    if not wrong:
        return ok("every key is absent, or has the type that Pelops needs")
    return error(
        list_names(wrong), "rename or delete the key, or choose another name in the resource"
    )


def _slots(facts: GroupFacts) -> CheckVerdict:
    keys = facts.keys
    other = [key for key in keys.by_name().values() if key_slot(key) != keys.slot]
    if not other:
        return ok(f"all keys are in hash slot {keys.slot}")
    message = f"{list_names(other)}: not in hash slot {keys.slot} of the stream"
    hint = f"use a name with the hash tag {{{keys.tag}}}"
    if known(facts.topology) == _CLUSTER:
        return error(f"{message}, and a Redis Cluster cannot write both in one step", hint)
    return warning(f"{message}: this fails on a Redis Cluster", hint)


def _exists(facts: GroupFacts) -> CheckVerdict:
    seen, keys = known(facts.stream), facts.keys
    hint = "check the names; Pelops creates what is missing when a resource names it"
    if not seen.exists:
        return warning(f"the stream {keys.stream} does not exist", hint)
    if seen.group is None:
        return warning(f"the group {keys.group} does not exist on the stream {keys.stream}", hint)
    if seen.group.last_delivered_id > seen.last_generated_id:
        return error(
            "the position of the group is ahead of the stream: new entries are not delivered until "
            "their IDs exceed it",
            f"set it back: XGROUP SETID {keys.stream} {keys.group} ID",
        )
    return ok(
        f"the group exists: {count(seen.group.pending, 'pending entry', 'pending entries')}, "
        f"{count(seen.group.consumers, 'consumer')}"
    )


def _other_groups(facts: GroupFacts) -> CheckVerdict:
    others = sorted(set(known(facts.groups)) - {facts.keys.group})
    if not others:
        return ok("no other group reads the stream")
    message = f"{count(len(others), 'other group')} of the stream: {list_names(map(repr, others))}"
    resource = facts.resource
    if resource is not None and resource.strategy != _REQUEUE:
        return ok(f"{message}; the strategy {resource.strategy} adds no copies to the stream")
    hint = "set spec.recovery.strategy to RetryStream or Release"
    if resource is None:
        return warning(f"{message}: with the strategy Requeue each would receive copies", hint)
    return error(f"{message}: stuck entries are not requeued, as each would receive copies", hint)


def _manager(facts: GroupFacts) -> CheckVerdict:
    seen, resource = known(facts.stream), facts.resource
    record = seen.ownership
    if record is None or record.owned_until <= seen.server_time:
        return ok("no other resource manages the group")
    owner = record.owner
    name = f"{owner.namespace}/{owner.name}"
    if resource is None:
        return ok(f"managed by the StreamConsumerGroup {name!r}")
    if owner.uid == resource.uid:
        return ok("managed by this resource")
    where = " of another cluster" if name == str(resource) else ""
    return error(
        f"the StreamConsumerGroup {name!r}{where} manages the group",
        "delete one of the two resources; the older one acts until then",
    )


GROUP_CHECKS: Final[tuple[Check[GroupFacts], ...]] = (
    Check("key-types", "types of the keys", _types),
    Check("slots", "hash slots of the keys", _slots),
    Check("group", "stream and group", _exists),
    Check("other-groups", "other groups of the stream", _other_groups),
    Check("manager", "resource that manages the group", _manager),
)


def _reader_clock(facts: ClockFacts) -> CheckVerdict:
    ahead = known(facts.ahead)
    proven = abs(ahead) - facts.uncertainty
    if proven <= READER_ALLOWED:
        return ok(f"the clock of {facts.reader} agrees with Redis")
    side = "behind" if ahead > timedelta(0) else "ahead of"
    return warning(
        f"the clock of {facts.reader} is {_seconds(proven)} {side} that of Redis",
        "synchronize both with NTP",
    )


def _node_clocks(facts: ClockFacts) -> CheckVerdict | None:
    if facts.nodes is None:
        return None
    nodes = known(facts.nodes)
    if not nodes:
        return ok("no worker runs on a node")
    ahead = [node for node in nodes if node.ahead > facts.allowed]
    if ahead:
        return error(
            f"the clock is ahead of that of Redis on {_list_nodes(ahead)}: entries of a container "
            "that restarts there are recovered later",
            "synchronize the nodes and Redis with NTP",
        )
    behind = [node for node in nodes if node.ahead < -(LATE + facts.allowed)]
    if behind:
        return warning(
            f"the Lease is old on {_list_nodes(behind)}: its kubelet does not renew it, or its "
            "clock is behind that of Redis",
            "check the node, and synchronize it with NTP",
        )
    return ok(f"the clocks of {count(len(nodes), 'node')} with workers agree with Redis")


CLOCK_CHECKS: Final[tuple[Check[ClockFacts], ...]] = (
    Check("clock", "clock of Redis", _reader_clock),
    Check("node-clocks", "clocks of nodes", _node_clocks),
)


def _consumer_names(facts: WorkerFacts) -> CheckVerdict | None:
    if not facts.has_workload:
        return None
    used = [one for one in known(facts.consumers) if one.pending or one.idle < RECENT]
    others = _or_none(facts)
    owners = Owners(known(facts.pods), is_stranger=lambda name: name in others)
    unmatched = [one for one in used if owners.match(one.name).is_unknown]
    if not unmatched:
        return ok(f"the names of {count(len(used), 'consumer')} in use match pods")
    holding = sum(one.pending for one in unmatched)
    return warning(
        f"{len(unmatched)} of {count(len(used), 'consumer')} in use match no pod of the workload: "
        f"{list_names(_names(unmatched))}; "
        f"{count(holding, 'pending entry', 'pending entries')} of theirs wait for the processing "
        "timeout",
        "let each worker use its pod's name as its consumer name",
    )


def _or_none(facts: WorkerFacts) -> frozenset[str]:
    try:
        return known(facts.others)
    except NotAnswered:
        return frozenset()


def _names(consumers: Iterable[ConsumerObservation]) -> Iterable[str]:
    # A consumer may have any name: what is not printable is escaped.
    return (repr(one.name) for one in consumers)


WORKER_CHECKS: Final[tuple[Check[WorkerFacts], ...]] = (
    Check("consumer-names", "consumer names that match pods", _consumer_names),
)


def _list_nodes(nodes: Iterable[NodeClock]) -> str:
    return list_names(f"node {one.node} ({_seconds(abs(one.ahead))})" for one in nodes)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.1f} s"
