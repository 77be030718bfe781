"""StreamRedrives move dead letters back, at most once each, and report what became of them."""

from __future__ import annotations

from collections import Counter

import pytest

from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import Object, secret
from tests.e2e.recovering import Group, measured
from tests.e2e.redriving import REDRIVE, Redrives, workers
from tests.operators import Operators, Resources
from tests.redis_fixtures import RunRedis


@pytest.fixture
def redrives(group: Group) -> Redrives:
    """The redrives of a group that is declared and ready."""
    group.declare()
    return Redrives(group)


def numbers(status: Object, *names: str) -> list[int]:
    """Counters of a status."""
    return [status[name] for name in names]


def test_a_dry_run_counts_and_shows_samples_and_moves_nothing(redrives: Redrives) -> None:
    ids = redrives.add_letters(7, error="PaymentTimeout: 3000 ms")
    redrives.add_letters(3, reason="Rejected")
    before = redrives.group.redis.hgetall(redrives.group.keys.state).keys()
    redrives.create(mode="DryRun", selection={"errorMatches": "Timeout: [0-9]+ ms$"})
    status = redrives.await_reason("Completed")
    assert numbers(status, "selected", "moved", "remaining") == [7, 0, 7]
    assert status["samples"] == ids[:5]
    assert "7 dead letters match" in status["message"]
    assert len(redrives.group.letters()) == 10
    after = redrives.group.redis.hgetall(redrives.group.keys.state).keys()
    assert not {name for name in after - before if name.startswith("redrive:")}


def test_letters_of_a_reason_and_a_time_go_back_while_workers_run(
    redrives: Redrives, operator: Operators
) -> None:
    group = redrives.group
    redrives.add_letters(20, reason="Rejected")
    chosen = redrives.add_letters(30, sku="A")
    redrives.add_letters(5, sku="A")
    with workers(group) as running:
        redrives.create(selection={"fields": [{"name": "sku", "value": "A"}], "ids": chosen})
        status = redrives.await_reason("Completed")
    assert numbers(status, "selected", "moved", "skipped", "remaining") == [30, 30, 0, 0]
    assert numbers(status, "failedAgain", "acknowledged") == [0, 30]
    assert status["message"].startswith("Moved 30 of 30 dead letters: 30 acknowledged")
    assert sorted(int(fields["n"]) for fields in running.done) == list(range(30))
    mark = f"{REDRIVE}/{redrives.resources.get('srd', REDRIVE)['metadata']['uid']}"  # type: ignore[index]
    assert {(fields["_redrive"], fields["_returned"]) for fields in running.done} == {(mark, "1")}
    assert len(group.letters()) == 25
    assert sorted(group.recorded(LedgerKind.REDRIVEN)) == sorted(chosen)
    labels = {"namespace": redrives.resources.namespace, "name": REDRIVE}
    group.until(
        lambda: measured(operator, "pelops_redrive_entries", state="moved", **labels) == 60,
        "both replicas to show it",
    )
    reasons = [one["reason"] for one in redrives.resources.events(REDRIVE)]
    assert "Completed" in reasons


def test_a_trial_goes_first_and_the_rest_when_it_is_processed(redrives: Redrives) -> None:
    redrives.add_letters(25)
    redrives.create(trial={"entries": 10, "waitSeconds": 600}, ratePerSecond=1000)
    status = redrives.await_reason("TrialRunning")
    assert numbers(status, "selected", "moved", "remaining") == [25, 10, 15]
    assert len(redrives.group.letters()) == 15
    with workers(redrives.group):
        status = redrives.await_reason("Completed")
    assert numbers(status, "moved", "acknowledged") == [25, 25]


def test_it_stops_when_entries_fail_again_and_takes_none_of_them_twice(redrives: Redrives) -> None:
    redrives.add_letters(40)
    with workers(redrives.group, fails=lambda fields: int(fields["n"]) % 2 == 0) as running:
        redrives.create(trial={"entries": 10, "waitSeconds": 600})
        status = redrives.await_reason("FailsAgain")
    assert redrives.conditions()["Failed"]["status"] == "True"
    assert numbers(status, "moved", "failedAgain", "acknowledged") == [10, 5, 5]
    assert len(redrives.group.letters()) == 35
    seen = Counter(fields["n"] for fields in (*running.done, *running.failed))
    assert len(seen) == 10
    assert set(seen.values()) == {1}
    assert "5 of 10 entries" in status["message"]


def test_deleting_it_stops_it_and_loses_nothing(redrives: Redrives) -> None:
    group = redrives.group
    redrives.add_letters(300)
    redrives.create(ratePerSecond=50)
    group.until(lambda: group.redis.xlen(group.stream) >= 20, "20 entries to be moved")
    redrives.delete()
    group.until(
        lambda: not [one for one in group.redis.hkeys(group.keys.state) if "redrive:" in one],
        "the records to be removed",
    )
    moved, left = group.redis.xlen(group.stream), len(group.letters())
    assert moved + left == 300
    assert left > 0
    redrives.create("the-rest", ratePerSecond=10_000, stopOnFailedAgainPercent=100)
    with workers(group) as running:
        redrives.await_reason("Completed", "the-rest")
    assert sorted(int(fields["n"]) for fields in running.done) == list(range(300))


def test_the_second_redrive_of_a_group_waits_for_the_first(
    redrives: Redrives,
) -> None:
    group = redrives.group
    redrives.add_letters(100)
    redrives.create("first", ratePerSecond=30)
    redrives.await_reason("Running", "first")
    redrives.create("second", ratePerSecond=1000)
    redrives.await_reason("AnotherRedriveRuns", "second")
    redrives.patch("first", ratePerSecond=10_000)
    with workers(group) as running:
        first = redrives.await_reason("Completed", "first")
        second = redrives.await_reason("Completed", "second")
    assert numbers(first, "moved") == [100]
    assert numbers(second, "selected", "moved") == [0, 0]
    assert sorted(int(fields["n"]) for fields in running.done) == list(range(100))


@pytest.mark.parametrize("change", ["dead-letter stream", "group"])
def test_a_redrive_ends_when_its_group_changes_and_the_next_one_runs(
    redrives: Redrives, change: str
) -> None:
    group = redrives.group
    redrives.add_letters(200)
    redrives.create("first", ratePerSecond=20)
    redrives.await_status(lambda status: status.get("moved", 0) > 0, "the first moves", "first")
    redrives.create("second", selection={"reasons": ["NoSuchReason"]})
    redrives.await_reason("AnotherRedriveRuns", "second")
    other = derive_keys(group.stream, group.keys.group, dead_letter=f"{group.stream}:failed")
    if change == "group":
        plane, namespace = redrives.resources.plane, redrives.resources.namespace
        plane.kubectl("delete", "scg", group.name, "-n", namespace)
        group.declare()
    else:
        group.declare(deadLetter={"stream": other.dead_letter})
    redrives.await_reason("GroupChanged", "first")
    failed = redrives.conditions("first")["Failed"]
    words = "created again" if change == "group" else other.dead_letter
    assert words in failed["message"]
    redrives.await_reason("Completed", "second")
    moved, left = group.redis.xlen(group.stream), len(group.letters())
    assert moved + left == 200
    assert left > 0


def test_a_redrive_ends_when_its_group_has_another_server(
    redrives: Redrives, run_redis: RunRedis
) -> None:
    group, other = redrives.group, run_redis()
    redrives.add_letters(200)
    redrives.create(ratePerSecond=20)
    redrives.await_status(lambda status: status.get("moved", 0) > 0, "it moves")
    source = redrives.status()["source"]
    assert source["stream"] == group.keys.dead_letter
    group.apply(redis={"url": other.url})
    redrives.await_reason("GroupChanged")
    message = redrives.conditions()["Failed"]["message"]
    assert source["server"] in message
    assert redrives.status()["source"] == source


@pytest.mark.full
def test_a_redrive_goes_on_with_a_new_password(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    servers.cli("ACL", "SETUSER", "pelops", "on", ">before", "~*", "&*", "+@all")
    address = servers.url.removeprefix("redis://").split("@")[-1]

    def give(password: str) -> None:
        resources.apply_raw(secret("redis-of-redrive", url=f"redis://pelops:{password}@{address}"))

    give("before")
    group = Group(resources, servers, stream)
    group.url = servers.url
    group.declare(redis={"secretRef": {"name": "redis-of-redrive"}})
    redrives = Redrives(group)
    redrives.add_letters(200)
    redrives.create(ratePerSecond=20)
    redrives.await_status(lambda status: status.get("moved", 0) > 0, "it moves")
    servers.cli("ACL", "SETUSER", "pelops", "resetpass", ">after")
    servers.cli("CLIENT", "KILL", "USER", "pelops")
    redrives.await_reason("AuthenticationFailed")
    give("after")
    moved = redrives.status()["moved"]
    redrives.await_status(lambda status: status.get("moved", 0) > moved, "it to go on")
    redrives.patch(ratePerSecond=10_000)
    with workers(group):
        status = redrives.await_reason("Completed")
    assert numbers(status, "moved", "acknowledged") == [200, 200]


def test_what_cannot_run_says_why(redrives: Redrives) -> None:
    redrives.add_letters(3)
    redrives.create("lost", group="missing")
    redrives.create("pattern", selection={"errorMatches": "(["})
    redrives.create("none", selection={"reasons": ["NoSuchReason"]})
    redrives.create("planned", selection={"planRef": {"name": "plan"}})
    redrives.create("approval", approval="Required")
    redrives.create("suspended", suspend=True)
    assert "errorMatches" in redrives.await_reason("InvalidSpec", "pattern")["message"]
    assert redrives.conditions("pattern")["Failed"]["status"] == "True"
    none = redrives.await_reason("Completed", "none")
    assert (none["selected"], redrives.conditions("none")["Complete"]["status"]) == (0, "True")
    redrives.await_reason("GroupMissing", "lost")
    redrives.await_reason("InvalidSpec", "planned")
    assert "ConfigMap" in redrives.conditions("planned")["Stalled"]["message"]
    redrives.await_reason("ApprovalRequired", "approval")
    assert redrives.conditions("approval")["Approved"]["status"] == "False"
    redrives.await_reason("Suspended", "suspended")
    assert len(redrives.group.letters()) == 3
    redrives.create("approval", approval="Required", approved=True)
    redrives.await_reason("AwaitingOutcomes", "approval")
    assert redrives.group.letters() == []


def test_several_groups_on_the_stream_are_refused_with_the_ways_out(redrives: Redrives) -> None:
    group = redrives.group
    redrives.add_letters(3)
    group.redis.xgroup_create(group.stream, "reports", "$")
    redrives.create()
    redrives.await_reason("RequeueWouldDuplicate")
    message = redrives.conditions()["Stalled"]["message"]
    assert "destination: RetryStream" in message
    assert len(group.letters()) == 3
    group.redis.xgroup_destroy(group.stream, "reports")
    redrives.await_reason("AwaitingOutcomes")


def test_a_redrive_dry_run_names_the_dry_run_of_its_group(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    group = Group(resources, run_redis(), stream)
    group.redis.xgroup_create(group.stream, group.keys.group, mkstream=True)
    group.apply(recovery={"dryRun": True})
    redrives = Redrives(group)
    redrives.create(mode="DryRun")
    status = redrives.await_reason("Completed")
    assert status["selected"] == 0
    assert "spec.recovery.dryRun of StreamConsumerGroup orders is true" in status["message"]


def test_discarded_letters_are_kept_aside_until_they_are_restored(redrives: Redrives) -> None:
    group = redrives.group
    redrives.add_letters(4, error="no such article")
    redrives.add_letters(3)
    before = group.letters()
    redrives.create("discard", action="Discard", selection={"errorContains": "article"})
    status = redrives.await_reason("Completed", "discard")
    assert status["message"] == "Discarded 4 of 4 dead letters"
    assert "acknowledged" not in status
    assert len(group.letters()) == 3
    redrives.create("restore", action="Restore")
    status = redrives.await_reason("Completed", "restore")
    assert status["message"] == "Restored 4 of 4 discarded dead letters"
    assert sorted(map(str, group.letters())) == sorted(map(str, before))
    assert len(group.recorded(LedgerKind.DISCARDED)) == 4
    assert len(group.recorded(LedgerKind.RESTORED)) == 4


def test_a_finished_redrive_is_deleted_after_its_time(redrives: Redrives) -> None:
    redrives.create(ttlSecondsAfterFinished=1)
    redrives.group.until(
        lambda: redrives.resources.get("srd", REDRIVE) is None, "the redrive to be deleted"
    )


@pytest.mark.full
def test_a_redis_that_is_away_meanwhile_ends_nothing(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    group = Group(resources, servers, stream)
    group.declare()
    redrives = Redrives(group)
    redrives.add_letters(200)
    redrives.create(ratePerSecond=100)
    group.until(lambda: group.redis.xlen(group.stream) >= 20, "20 entries to be moved")
    servers.servers[0].pause()
    redrives.await_reason("RedisUnreachable")
    servers.servers[0].resume()
    redrives.await_status(lambda status: status.get("moved", 0) > 20, "more to be moved")
    redrives.create(ratePerSecond=10_000)
    with workers(group) as running:
        status = redrives.await_reason("Completed")
    assert numbers(status, "moved", "acknowledged", "remaining") == [200, 200, 0]
    assert sorted(int(fields["n"]) for fields in running.done) == list(range(200))
