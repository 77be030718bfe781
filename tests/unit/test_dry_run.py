"""What a dry run reports: counts by action and reason, conditions that say so, and no action."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pelops.api.group.group_status_model import DryRunAction, RecoveryStatus
from pelops.controller.group.group_actions import GroupActions
from pelops.controller.group.group_deletion import GroupDeletion
from pelops.controller.group.group_observer import GroupMemory, ObservedGroup
from pelops.controller.group.group_status import compare, render_status
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.scanner import ScanAdapters, Scanner
from pelops.controller.runtime.kind import Difference, PreviousStatus
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, ScanReport
from pelops.domain.recovery import Action, Cutoff, EntryVerdict, LivenessReason, Trigger
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.kube.container_environment import WorkerAccess
from pelops.policy.recovery.attempts import OwnerPlan, Settlement
from pelops.policy.recovery.dry_run import DryRun, decide_dry_run, find_reason, read_dry_run
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.recovery.stuck_entries import Recovered, Stay
from pelops.redis_streams.recovery.suspects import Settled
from tests.builders import (
    NOW,
    TEMPLATE,
    empty_redis,
    facts,
    manifest,
    owner,
    resource,
    stream,
    workload,
)
from tests.leases import KnownMembers

DRY = {"recovery": {"dry_run": True}}
UNTOUCHED: dict[str, Any] = {
    "dead_letter_exists": False,
    "ledger_exists": False,
    "owns_dead_letters": False,
    "ownership": None,
}
FOUND = DryRun(
    outcomes={
        (DryRunAction.REQUEUE, "PodGone"): 500,
        (DryRunAction.REQUEUE, "NoPod"): 1,
        (DryRunAction.DEAD_LETTER, "MaxRetriesExceeded"): 2,
    },
    report=ScanReport(reason="PermissionDenied", message="XADD", unmatched=("a",), waiting=3),
)


def dry_facts(found: DryRun | None = None, **changes: Any) -> Any:
    asked = changes.pop("resource", resource(**DRY))
    return replace(facts(resource=asked, **changes), dry_run=found)


def conditions(of: Any) -> dict[str, tuple[str, str, str]]:
    return {one.type: (one.status, one.reason, one.message) for one in decide_conditions(of)}


# -- the decision


def recovered(moved: int, *, gone: int = 0, stays: Sequence[Stay] = ()) -> Recovered:
    return Recovered("done", NOW, "", moved, None, gone, list(stays), [], None)


def test_what_a_scan_would_do_is_counted_by_action_and_reason() -> None:
    gone = Cutoff(at=NOW, reason=LivenessReason.GONE, message="its pod is gone")
    found = Findings(trigger=Trigger.SCAN, at=NOW, unmatched=["batch"], waiting=4)
    locked = [Stay(EntryId(1), EntryVerdict.LOCKED), Stay(EntryId(2), EntryVerdict.TOO_YOUNG)]
    found.count_batch("web", gone, recovered(10, gone=3, stays=locked))
    found.count_batch("batch", None, recovered(5))
    found.count_batch("slow", None, recovered(6))
    found.count_batch("", None, recovered(7))
    settlement = Settlement(
        entry_id=EntryId(9), action=Action.DEAD, attempts=4, isolated_failures=1
    )
    plan = OwnerPlan(owner="web", cutoff=NOW, settlements=(settlement,), co_failed=None)
    found.count_settled(plan, Settled("done", NOW, 2, 1, [], ""))
    found.count_offered(plan, Settled("done", NOW, 8, 0, [], ""))
    assert found.dry_run().outcomes == {
        (DryRunAction.REQUEUE, "PodGone"): 12,
        (DryRunAction.REQUEUE, "NoPod"): 5,
        (DryRunAction.REQUEUE, "ProcessingTimeout"): 6,
        (DryRunAction.REQUEUE, "GivenBack"): 7,
        (DryRunAction.RELEASE, "PodGone"): 8,
        (DryRunAction.DEAD_LETTER, "PayloadGone"): 3,
        (DryRunAction.DEAD_LETTER, "MaxRetriesExceeded"): 1,
        (DryRunAction.KEEP, "Locked"): 1,
        (DryRunAction.KEEP, "OtherSuspects"): 4,
    }


def test_entries_of_live_workers_or_new_owners_are_not_stuck() -> None:
    kinds = (EntryVerdict.TOO_YOUNG, EntryVerdict.NOT_PENDING, EntryVerdict.OTHER_OWNER)
    found = decide_dry_run((), dict.fromkeys(kinds, 5), waiting=0, report=ScanReport())
    assert (found.stuck, found.outcomes) == (0, {})


@pytest.mark.parametrize(
    ("consumer", "cutoff", "reason"),
    [
        ("web", "PodGone", "PodGone"),
        ("web", "", "ProcessingTimeout"),
        ("job", "", "NoPod"),
        ("", "", "GivenBack"),
    ],
)
def test_the_reason_is_that_of_the_pod_before_that_of_the_name(
    consumer: str, cutoff: str, reason: str
) -> None:
    assert find_reason(consumer, cutoff, {"job"}) == reason


def test_the_sentence_names_every_action_with_its_reasons() -> None:
    assert FOUND.describe() == (
        "Dry run: 503 stuck entries found; recovery would requeue 501 (NoPod 1, PodGone 500), "
        "dead-letter 2 (MaxRetriesExceeded 2). Nothing was written"
    )


# -- the status


def status_of(of: Any) -> dict[str, Any]:
    previous = PreviousStatus(status={}, generation=1)
    return render_status(of, decide_conditions(of), previous, datetime.now(UTC))


def test_other_replicas_read_from_the_status_what_one_has_found() -> None:
    status = status_of(dry_facts(FOUND))["recovery"]
    assert status["dryRun"]["stuck"] == 503
    assert read_dry_run(RecoveryStatus.model_validate(status)) == FOUND
    assert read_dry_run(RecoveryStatus()) is read_dry_run(None) is None


def test_all_that_a_dry_run_finds_is_stuck() -> None:
    moved = [(DryRunAction.REQUEUE, "PodGone", 500)]
    kept = {EntryVerdict.WAITING: 2}
    found = decide_dry_run(moved, kept, waiting=3, counted=4, report=ScanReport(stuck=1))
    assert found.outcomes[DryRunAction.KEEP, "RequeueWouldDuplicate"] == 4
    assert status_of(dry_facts(found))["recovery"]["stuck"] == 509
    refused = decide_dry_run([], {}, waiting=0, report=ScanReport(reason="StreamInUse", stuck=0))
    assert "stuck" not in status_of(dry_facts(refused))["recovery"], "nobody has looked"
    assert "stuck" not in status_of(dry_facts())["recovery"]


def test_what_earlier_scans_wrote_is_no_fact_of_a_dry_run() -> None:
    state = GroupState(report=ScanReport(stuck=7), scanned_at=NOW)
    before = dry_facts()
    assert before.stream is not None
    recovery = status_of(replace(before, stream=replace(before.stream, state=state)))["recovery"]
    assert not {"stuck", "lastScanTime"} & recovery.keys()


def test_the_status_shows_a_dry_run_only_after_the_first_one() -> None:
    assert "dryRun" not in status_of(facts())["recovery"]
    assert "dryRun" not in status_of(dry_facts())["recovery"]
    assert status_of(dry_facts(DryRun()))["recovery"]["dryRun"] == {"stuck": 0}


def test_counts_are_numbers_that_move_and_another_reason_is_a_fact() -> None:
    before = status_of(dry_facts(FOUND))
    more = replace(FOUND, outcomes={**FOUND.outcomes, (DryRunAction.REQUEUE, "PodGone"): 501})
    other = replace(FOUND, outcomes={(DryRunAction.KEEP, "Locked"): 501})
    assert compare(status_of(dry_facts(more)), before) is Difference.NUMBERS
    assert compare(status_of(dry_facts(other)), before) is Difference.FACTS


# -- conditions


def test_a_healthy_group_that_was_never_touched_is_ready() -> None:
    found = conditions(dry_facts(stream=stream(**UNTOUCHED)))
    assert found["Ready"][:2] == ("True", "DryRun")
    assert found["GroupReady"][0] == "True"
    assert "Without it, Pelops creates its own keys" in found["GroupReady"][2]
    assert found["RecoveryHealthy"][:2] == ("True", "DryRun")


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (empty_redis(), "Stream orders:events does not exist"),
        (stream(group=None), "Group order-processing does not exist on stream orders:events"),
    ],
)
def test_what_does_not_exist_is_named_and_not_created(seen: Any, what: str) -> None:
    status, reason, message = conditions(dry_facts(stream=seen))["Ready"]
    assert (status, reason) == ("False", "GroupMissing")
    assert message.startswith(what)
    assert "nothing is created" in message


def test_what_would_keep_recovery_from_working_is_reported() -> None:
    found = conditions(dry_facts(FOUND, stream=stream(**UNTOUCHED)))
    assert found["Ready"][:2] == found["RecoveryHealthy"][:2] == ("False", "PermissionDenied")
    assert "UnmatchedConsumers" in found


def test_the_report_of_scans_before_the_dry_run_does_not_count() -> None:
    state = GroupState(report=ScanReport(reason="SlotMigrating", message="it moves"))
    assert conditions(dry_facts(stream=stream(state=state)))["Ready"][:2] == ("True", "DryRun")


def test_what_is_not_scaled_made_or_trimmed_is_said() -> None:
    wanted = ScalingDecision(replicas=5, reason=Reason.SCALED, message="5 wanted", current=2)
    asked = resource(**DRY, retention={"max_length": 5})
    found = conditions(dry_facts(resource=asked, scaling=wanted))
    assert "is not scaled to 5. 5 wanted" in found["ScalingActive"][2]
    assert found["RetentionActive"][:2] == ("True", "DryRun")
    made = resource(**DRY, template=TEMPLATE)
    absent = workload(exists=False, wished=None, current=0, ready=0)
    found = conditions(dry_facts(resource=made, workload=absent))
    assert found["WorkloadReady"][:2] == ("True", "DryRun")
    assert found["Ready"][0] == "True"


# -- no action


class Untouched:
    """Must not be asked for anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("seen", [stream(**UNTOUCHED), stream(), empty_redis()])
def test_nothing_is_done_for_a_group_whatever_is_missing(seen: Any) -> None:
    part: Any = Untouched()
    actions = GroupActions(part, part, part, part)
    observed = ObservedGroup(
        facts=dry_facts(stream=seen), owner=owner(), server=part, access=WorkerAccess()
    )
    assert list(actions.missing(observed, GroupMemory())) == []


async def test_a_group_is_not_destroyed_with_its_resource() -> None:
    observer: Any = Untouched()
    asked = resource(**DRY, deletion_policy="Delete")
    deletion = GroupDeletion(observer)
    happening = await deletion.clean_up(asked, GroupMemory(), NOW)
    assert happening is not None
    assert happening.note == (
        "The group stays in Redis. Remove it with XGROUP DESTROY if it is not needed"
    )


def test_a_conflict_comes_before_the_dry_run() -> None:
    problem = Finding(reason=Reason.CONFLICT, message="another one acts")
    found = conditions(dry_facts(redis_problem=problem))
    assert found["Ready"][:2] == ("False", "Conflict")


def a_scanner(cache: WorkloadCache, members: KnownMembers | None = None) -> Scanner:
    """A scanner that reaches neither Redis nor Kubernetes."""
    names = ("observer", "evidence", "targets", "skew", "reporter", "make_due", "is_settled")
    unused = dict.fromkeys(names)
    parts = cast(ScanAdapters, SimpleNamespace(members=members, cache=cache, **unused))
    return Scanner(parts, lambda: 0.0)


def test_the_replica_that_writes_the_numbers_makes_the_dry_run() -> None:
    members, cache = KnownMembers(rank_now=1), WorkloadCache()
    seen = manifest(recovery={"dryRun": True}, target_ref=None, targetRef={"name": "workers"})
    cache.put(STREAM_CONSUMER_GROUP, seen)
    asyncio.run(a_scanner(cache, members).scan(("shop", "order-processing"), Trigger.SCAN))
    assert members.keys == ["shop/apps/Deployment/workers"], "the key of passes and of scaling"


def test_without_recovery_there_is_nothing_to_try() -> None:
    cache = WorkloadCache()
    recovery = {"dryRun": True, "strategy": "Disabled"}
    cache.put(STREAM_CONSUMER_GROUP, manifest(recovery=recovery))
    wait = asyncio.run(a_scanner(cache).scan(("shop", "order-processing"), Trigger.SCAN))
    assert wait is None
