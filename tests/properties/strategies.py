"""What Hypothesis may find in the world: any facts that the adapters can observe."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from pelops import errors
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import (
    OWNERSHIP_LIFETIME,
    GroupState,
    Loss,
    OwnerRecord,
    OwnershipRecord,
    ScanReport,
    Totals,
    WentBack,
)
from pelops.domain.stream_observation import GroupObservation, StreamObservation
from pelops.domain.workload import PodObservation, WorkloadObservation
from pelops.policy.scaling.decision import NOT_DECIDED, ScalingDecision, decide_fixed
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import ALARMS, Reason
from tests.builders import NOW, TARGET, TEMPLATE, keys, resource

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LONG = st.integers(0, 200_000).map(lambda n: "boom " * (n // 5))
# Names as Redis and an environment variable can hold them, rich in what means something to others.
NAME = st.one_of(
    st.lists(
        st.sampled_from(["$", "$(", ")", "$$", "(", "A", "é", "😀", "{", "}", ":", "%", " ", "\\"]),
        min_size=1,
        max_size=8,
    ).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
)
COUNT = st.one_of(st.integers(0, 5), st.integers(0, 2**53 - 1))
# XSETID ... ENTRIESADDED lets any client give a stream more entries than any memory holds.
LAG = st.one_of(st.integers(0, 5), st.integers(0, 2**63 - 1))
HALF_ID = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
ENTRY_ID = st.builds(EntryId, HALF_ID, HALF_ID)
MOMENT = st.integers(-3600, 3600).map(lambda s: NOW + timedelta(seconds=s))
OWNER = st.builds(
    OwnerRecord,
    uid=st.sampled_from(["uid-1", "uid-2", "uid-3"]),
    cluster=st.sampled_from(["", "c1", "c2"]),
    namespace=st.sampled_from(["shop", "store"]),
    name=st.sampled_from(["order-processing", "orders"]),
    created=st.integers(-2, 2).map(lambda s: NOW + timedelta(seconds=s)),
)
UNTIL = st.integers(-3, 3).map(lambda n: NOW + n * OWNERSHIP_LIFETIME)
TOTAL = st.one_of(st.just(0), st.integers(-(2**63), 2**63 - 1))
# A client that may write to the state key in Redis may have written anything.
WRITTEN = st.one_of(TEXT, LONG, st.sampled_from(["\udcff", "\ud800", "\0", ""]))
REPORT = st.builds(
    ScanReport,
    reason=st.sampled_from(["", "", *Reason, "no word", "x" * 999]),
    message=WRITTEN,
    unmovable=st.sampled_from([0, 0, 1, 2**70]),
    unmovable_example=WRITTEN,
    unmatched=st.lists(WRITTEN, max_size=7).map(tuple),
    waiting=st.sampled_from([0, 1, 2**70]),
    offered=st.sampled_from([0, 1, 2**70]),
    is_not_taken=st.booleans(),
)
STATE = st.builds(
    GroupState,
    back=st.none()
    | st.builds(WentBack, since=MOMENT, before=ENTRY_ID, after=ENTRY_ID, delay_until=MOMENT),
    loss=st.none()
    | st.builds(Loss, at_least=COUNT, at_most=st.none() | COUNT, position=ENTRY_ID, seen=MOMENT),
    totals=st.builds(
        Totals,
        requeued=TOTAL,
        released=TOTAL,
        dead_lettered=TOTAL,
        payload_gone=TOTAL,
        trimmed=TOTAL,
    ),
    report=REPORT,
    scanned_at=st.none() | MOMENT,
)
OWNERSHIP_RECORD = st.builds(OwnershipRecord, owner=OWNER, owned_until=st.one_of(UNTIL, MOMENT))
GROUP = st.builds(
    GroupObservation,
    last_delivered_id=ENTRY_ID,
    pending=COUNT,
    lag=st.none() | LAG,
    consumers=COUNT,
    entries_read=st.none() | COUNT,
    lowest_pending=st.none() | ENTRY_ID,
)
STREAM = st.builds(
    StreamObservation,
    server_time=st.just(NOW),
    exists=st.booleans(),
    length=COUNT,
    last_generated_id=ENTRY_ID,
    first_id=st.none() | ENTRY_ID,
    entries_added=st.none() | COUNT,
    groups=st.integers(0, 3),
    group=st.none() | GROUP,
    dead_letters=COUNT,
    dead_letter_exists=st.booleans(),
    owns_dead_letters=st.booleans(),
    dead_letter_groups=COUNT,
    ledger_exists=st.booleans(),
    ownership=st.none() | OWNERSHIP_RECORD,
    state=STATE,
)
POD = st.builds(
    PodObservation,
    name=st.sampled_from(["w-1", "w-2"]),
    uid=st.sampled_from(["pod-1", "pod-2"]),
    node=st.sampled_from([None, "n1"]),
    phase=st.sampled_from(["Pending", "Running", "Failed", "Unknown"]),
    is_ready=st.booleans(),
    is_deleting=st.booleans(),
    waiting_reason=st.sampled_from(
        [
            None,
            "",
            "CrashLoopBackOff",
            "ImagePullBackOff",
            "ContainerCreating",
            "no word",
            "x" * 999,
        ]
    ),
    waiting_message=st.none() | TEXT | LONG,
    exit_code=st.none() | st.integers(0, 255),
)
WORKLOAD = st.builds(
    WorkloadObservation,
    target=st.just(TARGET),
    exists=st.booleans(),
    uid=st.none() | st.just("dep-1"),
    wished=st.none() | st.integers(0, 3),
    current=st.integers(0, 3),
    ready=st.integers(0, 3),
    selector=st.sampled_from(["", "app=orders"]),
    is_rolled_out=st.booleans(),
    failure=st.none() | TEXT | LONG,
    autoscaler=st.none() | st.just("orders"),
    pods=st.lists(POD, max_size=2).map(tuple),
    unready_nodes=st.frozensets(st.sampled_from(["n1", "n2"])),
)


def _errors() -> list[type[errors.PelopsError]]:
    found: list[type[errors.PelopsError]] = [errors.PelopsError]
    for kind in found:
        found += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


@st.composite
def pelops_errors(draw: st.DrawFn) -> errors.PelopsError:
    """Any error of Pelops, with any text."""
    kind, text = draw(st.sampled_from(_errors())), draw(TEXT | LONG)
    if kind is errors.WrongType:
        return errors.WrongType(text, key="k", found="list")
    if kind is errors.AnotherRedriveRuns:
        return errors.AnotherRedriveRuns(text, redrive="first/uid")
    return kind(text)


PROBLEM: st.SearchStrategy[Finding] = pelops_errors().map(diagnose)


RECOVERIES: list[dict[str, Any]] = [
    {"strategy": "Disabled"},
    {"strategy": "Requeue"},
    {"strategy": "RetryStream"},
    {"strategy": "Release", "unmatchedConsumerTimeoutSeconds": 5},
    # The last template breaks a rule that only the API server checks.
    *({"locks": {"keyTemplate": template}} for template in ("lock:{$tag}:$id", "l:$id", "l:id")),
]
# The status of an earlier turn, in which some alarms were reported.
REPORTED = st.lists(st.sampled_from([*ALARMS]), unique=True).map(
    lambda kinds: {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": kind,
                "message": "reported before",
                "lastTransitionTime": "2026-05-04T03:00:00Z",
            }
            for kind in kinds
        ]
    }
)


# What the replica that scales has decided, or that another one does.
DECISION = st.sampled_from([None, NOT_DECIDED]) | st.builds(
    ScalingDecision,
    replicas=st.none() | st.integers(0, 20),
    reason=st.sampled_from([Reason.SCALED, Reason.IDLE, Reason.SCALING_INEFFECTIVE]),
    message=TEXT.filter(bool),
)


@st.composite
def resources(draw: st.DrawFn) -> Any:
    """Resources that differ in what conditions depend on."""
    spec: dict[str, Any] = {"stream": draw(NAME), "group": draw(st.none() | NAME)}
    if draw(st.booleans()):
        spec["template"] = TEMPLATE
    if draw(st.booleans()):
        spec["scaling"] = {"mode": draw(st.sampled_from(["Auto", "Manual", "Disabled"]))}
    spec["recovery"] = draw(st.sampled_from(RECOVERIES))
    spec["retention"] = draw(st.sampled_from([None, {"maxLength": 5}, {"maxAgeSeconds": 60}]))
    spec["suspend"] = draw(st.booleans())
    return resource(**spec, status=draw(st.none() | REPORTED))


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    """Any facts of a resource that one pass may observe."""
    asked, seen = draw(resources()), draw(WORKLOAD)
    return Facts(
        resource=asked,
        workload=seen,
        scaling=decide_fixed(asked.spec, seen) or draw(DECISION),
        keys=draw(st.sampled_from([None, keys(asked)])),
        stream=draw(st.none() | STREAM),
        server_version=draw(st.sampled_from([None, "8.6.0", "Valkey 9.0.1"])),
        topology=draw(st.sampled_from([None, "Cluster"])),
        evicts_any_key=draw(st.booleans()),
        redis_problem=draw(st.none() | PROBLEM),
        workload_problem=draw(st.none() | PROBLEM),
    )
