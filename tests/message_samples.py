"""Situations that show every reason: the examples of `docs/reference/messages.md`.

The texts come from the code that writes conditions and Events; here are only the facts, one
situation for each reason. `tools/messages.py` renders them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from redis import exceptions

from pelops import errors
from pelops.api.group.group_status_model import DryRunAction
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.api.redis import RedisSpec
from pelops.api.redrive.stream_redrive import StreamRedrive
from pelops.controller.audit.audit_observer import backend_missing, name_taken, secret_missing
from pelops.controller.audit.audit_status import render_audit_status, report_windows
from pelops.controller.group.group_actions import build_creation_event
from pelops.controller.group.group_deletion import describe_destroyed, report_removed
from pelops.controller.group.group_observer import find_name_taken
from pelops.controller.group.upkeep import report_expired, warn_of_possible_loss
from pelops.controller.group.workload_actions import report_budget_conflict, report_budget_refused
from pelops.controller.recovery.dry_runs import report_dry_run
from pelops.controller.recovery.findings import Findings, OwnerTally
from pelops.controller.recovery.lock_expiry import PROBLEM
from pelops.controller.recovery.scan import explain_idle
from pelops.controller.redrive.redrive_status import report_progress
from pelops.controller.runtime.connections import explain_unreachable
from pelops.controller.runtime.events import list_transitions
from pelops.controller.runtime.gate import report_timeout, report_unexpected
from pelops.controller.runtime.kind import PreviousStatus
from pelops.controller.scaling.scale_writes import report_scaled
from pelops.controller.workload.targets import scale_forbidden
from pelops.domain.condition import Finding, render_conditions
from pelops.domain.destinations import parse_address_rules
from pelops.domain.endpoint import build_endpoint, confine_credentials
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import check_slots
from pelops.domain.records.audit import AuditVerdict
from pelops.domain.records.ledger import CreationReason, GroupCreation
from pelops.domain.records.state import (
    DroppedConsumers,
    GroupState,
    Loss,
    PossibleLoss,
    RetryWait,
    ScanReport,
    WentBack,
)
from pelops.domain.recovery import FormerPod, PodEvidence, Trigger
from pelops.domain.stream_observation import RetryObservation
from pelops.kube.audit_spark import SCHEDULED_SPARK_APPLICATION
from pelops.kube.client import CRON_JOB
from pelops.kube.event_recorder import EventContent
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.audit.audit_facts import AuditFacts, Runs, StreamEnds
from pelops.policy.audit.notices import AuditNotice
from pelops.policy.audit.plan import AuditPlan, plan_audit
from pelops.policy.group.provisioning import decide_cleanup, decide_conflict
from pelops.policy.recovery.dry_run import decide_dry_run
from pelops.policy.recovery.liveness import decide_cutoff
from pelops.policy.recovery.retry_stream import UNREAD_AFTER
from pelops.policy.redrive.redrive_conditions import (
    OUTCOME_WAIT,
    decide_redrive_conditions,
    decide_verdict,
    find_changed_origin,
    find_group_problem,
    report_duplicates,
    report_exhausted,
    report_group_missing,
    report_slow_search,
)
from pelops.policy.redrive.redrive_facts import Origin, Phase, RedriveFacts
from pelops.policy.scaling.decision import ScalingDecision, decide_fixed
from pelops.policy.scaling.demand import GroupDemand
from pelops.policy.scaling.replica_writes import report_fight
from pelops.policy.scaling.sharing import Claim, decide_sharing
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.facts import Facts
from pelops.policy.status.health import PROGRESS_DEADLINE, decide_health
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, Reason
from pelops.redis_core.errors import permission_denied, translate_failure, translate_reply
from pelops.redis_core.replies.shapes import invalid
from pelops.redis_core.resolution import resolve
from pelops.redis_streams.group.group_observation import wrong_type
from pelops.redis_streams.group.lifecycle import key_in_use
from pelops.redis_streams.recovery.keyspace_events import NOT_ENABLED
from pelops.redis_streams.recovery.scan_calls import refused
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import newer_format
from tests import audit_facts
from tests.audits import a_summary
from tests.builders import (
    NOW,
    TARGET,
    TEMPLATE,
    empty_redis,
    facts,
    group,
    keys,
    later,
    owner,
    ownership,
    pod,
    resource,
    stream,
    workload,
)
from tests.pod_states import finished
from tests.redrive_facts import STARTED, a_redrive, some_counts
from tests.scaling_cases import SECOND, auto, knowing, observe, owing, wanting

EVENT: Final = "Event"  # in place of a condition type


@dataclass(frozen=True, slots=True)
class Example:
    """One message of a StreamConsumerGroup, a StreamAudit or a StreamRedrive."""

    kind: str
    shown_in: str  # a type of condition, or EVENT
    status: str  # of the condition; Normal or Warning of an Event
    reason: str
    message: str


def list_examples() -> list[Example]:
    """All examples: conditions of groups, of audits and of redrives, and Events."""
    examples = [
        *(one for seen in _groups() for one in _conditions("StreamConsumerGroup", seen)),
        *(one for seen in _audits() for one in _conditions("StreamAudit", seen)),
        *(one for seen in _redrives() for one in _conditions("StreamRedrive", seen)),
        *(Example(kind, EVENT, event.type, event.reason, event.note) for kind, event in _events()),
    ]
    return list(dict.fromkeys(examples))


def _conditions(kind: str, seen: Facts | AuditFacts | RedriveFacts) -> Iterator[Example]:
    """The conditions, and Reconciling or Stalled as the API server has them later."""
    if isinstance(seen, Facts):
        decided = decide_conditions(seen)
    elif isinstance(seen, AuditFacts):
        decided = decide_audit_conditions(seen, now=audit_facts.after(minutes=5))
    else:
        decided = decide_redrive_conditions(seen)
    ready = decided[0]
    health = decide_health(ready, (), generation=1, now=NOW)
    overdue = decide_health(
        ready,
        render_conditions(health, (), generation=1, now=NOW),
        generation=1,
        now=NOW + PROGRESS_DEADLINE,
    )
    for one in (*decided, *health, *overdue):
        yield Example(kind, one.type, one.status, one.reason, one.message)


def _caught(call: Callable[[], object]) -> errors.PelopsError:
    """The error that a call raises."""
    try:
        call()
    except errors.PelopsError as error:
        return error
    raise AssertionError("no error")


# --- errors, as the adapters word them


def _reply(text: str, *, writes: bool = True) -> errors.PelopsError:
    """What Pelops makes of an error that Redis answers."""
    error = exceptions.ResponseError(text)
    error.status_code = text.split(" ", maxsplit=1)[0]
    return translate_reply(error, command="XADD", key="orders:events", writes=writes)


def _redis_errors() -> Iterator[errors.PelopsError]:
    """Errors that become the problem of GroupReady."""
    address = "redis.shop.svc:6379"
    of_group = keys()
    elsewhere = replace(of_group, dead_letter="dead-letters")
    yield _caught(lambda: build_endpoint(url="redis://redis:6379", secret={"username": b"u"}))
    yield _caught(lambda: check_slots(elsewhere))
    yield key_in_use(of_group, of_group.dead_letter, "fields", "order")
    yield key_in_use(of_group, of_group.ledger, "", "")
    yield _caught(
        lambda: confine_credentials(
            build_endpoint(url="redis://redis:6379", secret={"password": b"p"}),
            {"password": b"p"},
            name="shop/orders-redis",
        )
    )
    local = build_endpoint(url="redis://127.0.0.1:6379").node
    yield _caught(lambda: asyncio.run(_resolve(local)))
    yield translate_failure(ConnectionRefusedError(), address=address, sent=False, writes=False)
    yield invalid("XINFO GROUPS", "a list is missing")
    yield _reply("OOM command not allowed when used memory > 'maxmemory'.")
    yield _reply("READONLY You can't write against a read only replica.")
    yield _reply("LOADING Redis is loading the dataset in memory")
    yield _reply("WRONGPASS invalid username-password pair or user is disabled.")
    yield permission_denied("xautoclaim", "orders:events")
    yield wrong_type("orders:events", "list", "stream")
    yield newer_format(key="{orders:events}:order-processing:state", version=2)
    yield _reply("CROSSSLOT Keys in request don't hash to the same slot")
    yield _reply("ERR unknown command 'XAUTOCLAIM'")
    yield refused(of_group, Refusal("no-group", ("orders:events",)))
    yield _reply("ERR something else", writes=False)
    yield errors.KubernetesUnavailable("the API server returned HTTP status 503: shutting down")
    yield errors.Forbidden('secrets "orders-redis" is forbidden')
    yield errors.KubernetesError("the server could not complete the request")
    yield report_timeout("reconcile streamconsumergroups", "shop/order-processing", 30.0)
    yield report_unexpected("scan", "shop/order-processing", KeyError())


async def _resolve(node: Any) -> object:
    return await resolve(node, parse_address_rules("", ""))


# --- conditions of a StreamConsumerGroup


def _groups() -> Iterator[Facts]:
    yield facts()
    for error in _redis_errors():
        yield facts(redis_problem=diagnose(error))
    named = RedisSpec.model_validate({"secretRef": {"name": "orders-redis"}})
    missing = explain_unreachable(errors.NotFound("secrets"), named, "shop")
    yield facts(redis_problem=missing)
    yield facts(stream=empty_redis())
    yield facts(
        redis_problem=decide_conflict(
            ownership(owner=owner(uid="uid-0", name="orders")), owner(created=later(hours=1)), NOW
        )
    )
    yield from _dry_or_suspended()
    yield from _workloads()
    yield from _scalings()
    yield from _recoveries()
    yield from _alarms()


def _dry_or_suspended() -> Iterator[Facts]:
    limits = {"maxLength": 100_000}
    yield facts(resource=resource(retention=limits))
    yield facts(resource=resource(retention=limits), stream=empty_redis())
    yield facts(resource=resource(suspend=True, retention=limits))
    dry = resource(recovery={"dryRun": True}, retention=limits)
    yield facts(resource=dry)
    yield facts(resource=dry, stream=empty_redis())


def _workloads() -> Iterator[Facts]:
    gone = workload(exists=False, wished=None, current=0, ready=0, pods=())
    owned = resource(template=TEMPLATE)
    yield facts(resource=resource(target_ref=None))
    yield facts(workload=workload(wished=0, current=0, ready=0, pods=()))
    yield facts(workload=gone)
    yield facts(resource=owned, workload=gone)
    yield facts(resource=owned, workload=gone, stream=empty_redis())
    yield facts(resource=owned, workload_problem=find_name_taken(owned, workload()))
    forbidden = errors.Forbidden('deployments.apps "order-workers" is forbidden')
    yield facts(workload_problem=scale_forbidden(TARGET, forbidden))
    rejected = errors.Rejected('Deployment "order-processing-workers" is invalid: spec.x: Required')
    for error in (
        rejected,
        errors.Conflict("the object has been modified"),
        errors.NotFound("the API server does not serve the kind Rollout of argoproj.io/v1alpha1"),
    ):
        yield facts(workload_problem=diagnose(error))
    yield facts(workload=workload(ready=1))
    yield facts(workload=workload(ready=0, failure="exceeded quota: pods=10"))
    yield facts(workload=workload(ready=1, unready_nodes=frozenset({"node-2"})))
    overdue = 'ReplicaSet "order-workers-5d8f" has timed out progressing.'
    yield facts(workload=workload(ready=1, overdue=overdue))
    crashed = pod(is_ready=False, waiting_reason="CrashLoopBackOff", exit_code=137)
    yield facts(workload=workload(ready=1, pods=(pod(), crashed)))
    for reason, message in (
        ("ImagePullBackOff", 'Back-off pulling image "orders:2"'),
        ("ErrImagePull", "manifest unknown"),
        ("InvalidImageName", "invalid reference format"),
        ("CreateContainerConfigError", 'secret "orders" not found'),
        ("CreateContainerError", "context deadline exceeded"),
        ("RunContainerError", 'exec: "worker": executable file not found in $PATH'),
        ("waiting for a sidecar", ""),
    ):
        waits = pod(is_ready=False, waiting_reason=reason, waiting_message=message or None)
        yield facts(workload=workload(ready=1, pods=(pod(), waits)))


def _scalings() -> Iterator[Facts]:
    automatic = resource(scaling={"mode": "Auto"})
    for decision in _decisions():
        yield facts(resource=automatic, scaling=decision)
    yield facts(resource=resource(template=TEMPLATE, replicas=2))
    yield facts(workload=workload(autoscaler="order-workers"))
    lead = Claim(name="orders", uid="uid-0", created="2026-05-01", mode=auto().scaling.mode)  # type: ignore[union-attr]
    follow = Claim(
        name="order-processing",
        uid="uid-1",
        created="2026-05-02",
        mode=auto(mode="Follow").scaling.mode,  # type: ignore[union-attr]
    )
    for own, claims in (
        (follow, (lead, follow)),
        (follow, (follow,)),
        (replace(lead, name="order-processing", uid="uid-1", created="2026-05-02"), (lead,)),
    ):
        part = decide_sharing(own, {own, *claims})
        spec = resource(scaling={"mode": own.mode}).spec
        yield facts(scaling=decide_fixed(spec, workload(), part))


def _decisions() -> Iterator[ScalingDecision]:
    """Decisions of automatic scaling, with at most 10 workers."""

    yield _decide(owing(undelivered=300, held=20), 4, wanting(4))
    yield _decide(owing(undelivered=1_000, held=240), 10, wanting(10))
    measured = wanting(10, meter=knowing(arrivals=0, per_replica=2))
    yield _decide(
        owing(undelivered=1_000, held=240), 10, measured, spec=auto(drainWithinSeconds=62)
    )
    yield _decide(owing(), 0)
    yield _decide(None, 4)
    yield _decide(owing(undelivered=700, is_exact=False), 8)
    flooded = replace(knowing(arrivals=0, per_replica=1), finished=40.0, dead_lettered=30.0)
    yield _decide(owing(undelivered=900), 2, wanting(2, meter=flooded))
    mails = GroupDemand(name="mails", backlog=owing(undelivered=280), by_backlog=2.8)
    most = auto(combine="Max")
    yield _decide(owing(undelivered=300), 3, wanting(3), spec=most, name="orders", others=(mails,))
    yield ScalingDecision(
        replicas=None, reason=Reason.SCALED_BY_OTHERS, message=report_fight(TARGET)
    )


def _decide(
    backlog: Any,
    current: int,
    memory: Any = None,
    *,
    spec: StreamConsumerGroupSpec | None = None,
    **shared: Any,
) -> ScalingDecision:
    """A decision of automatic scaling; every worker is ready."""
    shown = workload(wished=current, current=current, ready=current)
    known = memory or wanting(0)
    return observe(known, spec or auto(), shown, backlog, now=SECOND, **shared)[0]


def _recoveries() -> Iterator[Facts]:
    yield facts(stream=stream(groups=2))
    yield facts(stream=stream(group=group(last_delivered_id=EntryId(1800000000000))))
    locked = resource(recovery={"locks": {"keyTemplate": "lock:$id"}})
    yield facts(resource=locked, topology="Cluster")
    for error in (_reply("TRYAGAIN Multiple keys request during rehashing of slot"),):
        found = diagnose(error)
        yield facts(stream=_reporting(reason=found.reason, message=found.message))
    unseen = Reason.KEYSPACE_NOTIFICATIONS_UNAVAILABLE
    yield facts(stream=_reporting(reason=unseen, message=PROBLEM.format(NOT_ENABLED)))


def _reporting(**report: Any) -> Any:
    return stream(state=GroupState(report=ScanReport(**report)))


def _alarms() -> Iterator[Facts]:
    first = EntryId(int(NOW.timestamp() * 1000) - 40_000)
    for state in (
        GroupState(loss=Loss(at_least=3, at_most=5, position=EntryId(1700000000000), seen=NOW)),
        GroupState(loss=Loss(at_least=3, at_most=None, position=EntryId(1700000000000), seen=NOW)),
        GroupState(
            back=WentBack(
                since=NOW,
                before=EntryId(1700000000000),
                after=EntryId(1699999990000),
                delay_until=later(seconds=300),
            )
        ),
        GroupState(dropped=DroppedConsumers(at_most=11, consumer="w-1", consumers=1, observed=NOW)),
    ):
        yield facts(stream=stream(state=state))
    yield facts(stream=_reporting(unmovable=1, unmovable_example="1700000000000-1"))
    yield facts(evicts_any_key=True)
    yield facts(stream=stream(dead_letter_groups=1))
    yield facts(stream=_reporting(unmatched=("batch-1", "batch-2")))
    retry = RetryObservation(exists=True, length=3, lag=3, first_undelivered=first)
    noted = RetryWait(
        first_undelivered=first, position=EntryId(1700000000000), at=NOW - UNREAD_AFTER
    )
    yield facts(
        resource=resource(recovery={"strategy": "RetryStream"}),
        stream=stream(retry=retry, state=GroupState(retry_wait=noted)),
    )
    yield facts(stream=stream(retry=replace(retry, is_former=True)))
    release = resource(recovery={"strategy": "Release"})
    yield facts(resource=release, stream=_reporting(offered=3, is_not_taken=True))
    notices = AuditNotice(
        audit="nightly", lost=2, is_behind=True, is_failing=True, failure=Reason.RUN_FAILED
    )
    yield facts(audits=(notices,))


# --- conditions of a StreamAudit


def _audits() -> Iterator[AuditFacts]:
    usual, a_group = audit_facts.facts, audit_facts.a_group
    audit = audit_facts.an_audit(groups=["order-processing", "mailing"])
    yield usual([a_group()])
    yield usual(audit=audit_facts.an_audit(suspend=True))
    yield usual(runs=Runs())
    plan = plan_audit(audit, {"order-processing": resource()})
    yield usual(plan_problem=plan.problem if isinstance(plan, AuditPlan) else plan)
    yield usual(job_problem=secret_missing("spec.jobSecretRef", "shop/auditor", ()))
    yield usual(job_problem=name_taken(CRON_JOB, "nightly-audit"))
    absent = errors.NotFound("the server could not find the requested resource")
    yield usual(job_problem=backend_missing(SCHEDULED_SPARK_APPLICATION, absent))
    yield usual([a_group(lost=2)])
    yield usual([a_group(ends=StreamEnds(added=100, length=50))])
    yield usual([a_group()], runs=audit_facts.some_runs(last_success=None))
    waits = StreamEnds(added=12, length=12, first_unaudited=EntryId(1700000000000))
    yield usual([a_group(ends=waits)])
    failing = a_summary(verdict=AuditVerdict.FAILING, sentence="The ledger was trimmed.")
    yield usual([a_group(failing)])
    unreadable = Finding(reason=Reason.INVALID_SPEC, message="The summary is not valid JSON")
    yield usual([a_group(record=None, problem=unreadable)])


# --- conditions of a StreamRedrive


def _changes(redrive: StreamRedrive) -> Iterator[Finding]:
    started = Origin(server="redis:6379/0", stream="orders:events:dlq", group_uid="uid-1")
    for changed in (
        {"group_uid": "uid-2"},
        {"server": "redis-2:6379/0"},
        {"stream": "orders:events:failed"},
    ):
        finding = find_changed_origin(redrive, started, replace(started, **changed))
        assert finding is not None
        yield finding


def _redrives() -> Iterator[RedriveFacts]:
    usual, stream = a_redrive(), "orders:events"
    for phase in (Phase.COUNTING, Phase.MOVING, Phase.OUTCOMES):
        yield RedriveFacts(redrive=usual, phase=phase)
    yield RedriveFacts(redrive=a_redrive(trial={}), phase=Phase.TRIAL)
    yield RedriveFacts(redrive=a_redrive(maxBacklog=1000), phase=Phase.BACKLOG)
    yield RedriveFacts(redrive=a_redrive(suspend=True))
    yield RedriveFacts(redrive=a_redrive(approval="Required"))
    yield RedriveFacts(redrive=a_redrive(approval="Required", approved=True), phase=Phase.MOVING)
    yield RedriveFacts(redrive=usual, waits_for="older")
    duplicates = report_duplicates(
        f"the stream {stream} has 2 consumer groups, and each of them would receive the redriven "
        "entries"
    )
    for problem in (
        report_group_missing(usual),
        report_exhausted(stream),
        duplicates,
        *_changes(usual),
        report_slow_search(usual, some_counts(moved=7), 60.0),
        find_group_problem(usual, resource(suspend=True)),
    ):
        yield RedriveFacts(redrive=usual, problem=problem)
    for redrive, counts in (
        (usual, some_counts(failed_again=1, unprocessed=2)),
        (usual, some_counts(unknown=3)),
        (usual, some_counts(lost=5)),
        (a_redrive(mode="DryRun"), some_counts(moved=0, has_outcomes=False)),
        (usual, some_counts(selected=100, failed_again=20)),
    ):
        verdict = decide_verdict(redrive, counts, is_handled=True, last_moved=STARTED)
        late = replace(counts, now=counts.now + OUTCOME_WAIT)
        verdict = verdict or decide_verdict(redrive, late, is_handled=True, last_moved=STARTED)
        yield RedriveFacts(redrive=redrive, verdict=verdict)


# --- Events


def _events() -> Iterator[tuple[str, EventContent]]:
    for event in (*_transitions(), *_scans(), *_lives(), *_budgets()):
        yield "StreamConsumerGroup", event
    audited = audit_facts.facts([audit_facts.a_group()])
    now = audit_facts.after(minutes=5)
    decided = decide_audit_conditions(audited, now=now)
    status = render_audit_status(audited, decided, PreviousStatus(status={}, generation=1), now)
    window = report_windows({}, status)
    assert window is not None
    yield "StreamAudit", window
    before = {"selected": 30, "moved": 2, "skipped": 0}
    for event in report_progress(before, {"selected": 30, "moved": 14, "skipped": 1}):
        yield "StreamRedrive", event


def _transitions() -> Iterator[EventContent]:
    """The Events of a Ready that changes its reason, and of an alarm that begins."""
    seen = facts(evicts_any_key=True)
    after = {"conditions": render_conditions(decide_conditions(seen), (), generation=1, now=NOW)}
    yield from list_transitions({}, after, (*ALARMS, *AUDIT_ALARMS))


def _scans() -> Iterator[EventContent]:
    former = FormerPod(
        name="w-1",
        uid="pod-1",
        absent_since=NOW - timedelta(seconds=120),
        are_all_nodes_ready=True,
    )
    evidence = PodEvidence(consumer="w-1", live=None, formers=(former,))
    ended = finished(phase="Failed")
    why = [
        decide_cutoff(one, server_time=NOW, skew=timedelta(seconds=2)).message
        for one in (
            evidence,
            replace(evidence, formers=(replace(former, last=ended),)),
            replace(evidence, live=ended, formers=()),
        )
    ]
    for each in (*why, explain_idle(timedelta(minutes=5))):
        tally = OwnerTally(requeued=36, why=each, first=EntryId(1700000000000), at=NOW)
        requeued = Findings(trigger=Trigger.POD_DEATH, at=NOW, by_owner={"w-1": tally})
        yield from requeued.list_events()
    moved = Findings(
        trigger=Trigger.POD_DEATH,
        at=NOW,
        by_owner={"w-2": OwnerTally(dead=1), "w-3": OwnerTally(gone=2)},
        offered=4,
        removed=["w-1"],
        dangling=2,
        lowest_dangling=EntryId(1700000000000),
    )
    yield from moved.list_events()
    outcomes = [
        (DryRunAction.REQUEUE, "PodGone", 2_970),
        (DryRunAction.DEAD_LETTER, "MaxRetriesExceeded", 30),
    ]
    for some in (outcomes, outcomes[:1]):
        yield report_dry_run(decide_dry_run(some, {}, waiting=0, report=ScanReport()))


def _lives() -> Iterator[EventContent]:
    """How groups and dead letters begin and end, and workers come and go."""
    position = EntryId(1700000000000)
    for cause, repeats in ((CreationReason.FIRST, 0), (CreationReason.CONTINUES, 12)):
        event = build_creation_event(GroupCreation(position=position, why=cause, repeats=repeats))
        assert event is not None
        yield event
    ended: dict[str, Any] = {"deleted_at": NOW, "now": later(seconds=31)}
    kept = decide_cleanup(deletes_group=False, failure=None, **ended)
    yield report_removed(kept, kept.message, is_loss=False)
    gone = decide_cleanup(deletes_group=True, failure=None, **ended)
    yield report_removed(gone, describe_destroyed(keys(), 0), is_loss=False)
    unreachable = "Redis at redis.shop.svc:6379 cannot be reached: connection refused"
    left = decide_cleanup(deletes_group=True, failure=unreachable, **ended)
    yield report_removed(left, left.message, is_loss=False)
    possible = PossibleLoss(after=EntryId(7), before=EntryId(19), at_most=11)
    yield warn_of_possible_loss(keys(), possible)
    yield report_expired(keys(), 12, 1_209_600, occurrence="")
    for backlog, before in ((owing(undelivered=320), 1), (owing(), 4)):
        scaled = _decide(backlog, before)
        assert scaled.replicas is not None
        yield report_scaled(TARGET, before, scaled, occurrence="")


def _budgets() -> Iterable[EventContent]:
    name = "order-processing-workers"
    refused = errors.Forbidden("poddisruptionbudgets.policy is forbidden: exceeded quota")
    return (
        report_budget_conflict(name, "shop-workers", occurrence=""),
        report_budget_refused(name, refused),
    )
