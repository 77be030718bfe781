"""A dry run says what recovery would do with a group that was never touched, and writes nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from local_cluster.audit import AuditTrail, writes
from local_cluster.redis_servers import RedisServers, StandaloneServers
from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import NAME, WORKERS, Object, a_deployment, a_spec, get, patch
from tests.e2e.recovering import Group
from tests.operators import SERVICE_ACCOUNT, Operators, Resources

DRY: Object = {"dryRun": True, "scanPeriodSeconds": 1}
ADOPTED: Object = {"template": None, "replicas": None, "targetRef": {"name": WORKERS}}
DAY_MS = 86_400_000


@contextmanager
def monitored(group: Group) -> Iterator[Callable[[], list[str]]]:
    """The commands that write to a key of the group, as MONITOR hears them meanwhile."""
    listed = {name.upper(): one["flags"] for name, one in group.redis.command().items()}
    lines: list[str] = []
    done = threading.Event()

    def listen(monitor: Any) -> None:
        while not done.is_set():
            lines.append(monitor.next_command()["command"])

    def heard() -> list[str]:
        group.redis.echo(mark := f"mark-{len(lines)}")
        group.until(lambda: any(mark in line for line in lines), "MONITOR to hear a mark")
        ours = [line for line in lines if group.stream in line]
        assert ours, "MONITOR hears the commands of the operator"
        return [line for line in ours if "write" in listed.get(line.split()[0].upper(), ())]

    with group.redis.monitor() as monitor:
        listener = threading.Thread(target=listen, args=(monitor,), daemon=True)
        listener.start()
        try:
            yield heard
        finally:
            done.set()
            group.redis.ping()
            listener.join(timeout=10)


def hold(group: Group, consumer: str, count: int, idle_ms: int = 0, **fields: str) -> list[str]:
    """Have a consumer hold new entries, delivered one after the other so long ago.

    Their IDs are old: a new entry cannot have idled for so long.
    """
    length = group.redis.xlen(group.stream)
    with group.redis.pipeline(transaction=False) as together:
        for number in range(length, length + count):
            together.xadd(group.stream, {"n": str(number), **fields}, id=f"{number + 1}-1")
        together.execute()
    added = group.deliver(consumer, count)
    with group.redis.pipeline(transaction=False) as together:
        for at, one in enumerate(added if idle_ms else ()):
            idle = idle_ms - 20 * at
            together.xclaim(group.stream, group.keys.group, consumer, 0, [one], idle=idle)
        together.execute()
    return added


def outcomes(group: Group) -> dict[tuple[str, str], int]:
    """What the dry run counts, by action and reason."""
    rows = group.reported("recovery").get("dryRun", {}).get("outcomes") or ()
    return {(row["action"], row["reason"]): row["entries"] for row in rows}


@pytest.mark.usefixtures("node")
def test_a_dry_run_counts_what_recovery_does_once_it_is_turned_off(
    resources: Resources, operator: Operators, redis_86: StandaloneServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    resources.apply_raw(a_deployment(WORKERS, 2))
    group.until(lambda: len(group.pods()) == 2, "two pods")
    gone, alive = group.pods()
    group.redis.xgroup_create(stream, NAME, "0", mkstream=True)
    kept = hold(group, alive.consumer, 50)
    lost = hold(group, gone.consumer, 500)
    trimmed = hold(group, gone.consumer, 100)
    idle = hold(group, "batch-job", 200, DAY_MS)
    marks = {"_original_id": "0-1", "_retry_count": "7"}
    poison = hold(group, "poisoned", 200, 2 * DAY_MS, **marks)
    group.redis.xdel(stream, *trimmed)
    before, held = redis_86.cli("KEYS", f"*{stream}*"), group.owners()

    trail = AuditTrail(resources.plane, SERVICE_ACCOUNT)
    with monitored(group) as written:
        scaling = {"minReplicas": 3, "maxReplicas": 3}
        spec = a_spec(redis_86.url, stream, recovery=DRY, scaling=scaling, **ADOPTED)
        resources.apply(NAME, spec)
        ready = resources.await_condition(NAME, reason="DryRun")
        assert ready["status"] == "True", ready
        group.delete_pod(gone)
        expected = {
            ("Requeue", "PodGone"): 500,
            ("Requeue", "NoPod"): 200,
            ("DeadLetter", "PayloadGone"): 100,
            ("DeadLetter", "MaxRetriesExceeded"): 200,
        }
        group.until(lambda: outcomes(group) == expected, f"{expected} in status", 90.0)
        assert group.reported("recovery")["dryRun"]["stuck"] == 1_000
        assert "500" in str([one["note"] for one in resources.events(NAME)])
        entries = "pelops_dry_run_entries"
        assert group.measured(operator, entries, action="Requeue", reason="PodGone") == 500
        assert group.measured(operator, entries) == 1_000
        scaled = resources.condition(NAME, "ScalingActive")
        assert "is not scaled to 3" in scaled["message"], scaled
        assert written() == []
        assert redis_86.cli("KEYS", f"*{stream}*") == before
        assert group.owners() == held
        asked = [one for one in writes(trail.read()) if one.namespace == resources.namespace]
        assert {(one.verb, one.resource) for one in asked} <= {
            ("patch", "streamconsumergroups/status"),
            ("create", "events"),
        }
        assert get(resources, "deployment", WORKERS)["spec"]["replicas"] == 2

        patch(resources, "scg", NAME, {"spec": {"recovery": {"dryRun": False}}})
        group.await_moved([*lost, *trimmed, *idle, *poison])
        assert any(line.startswith("XACK") for line in written()), "it would hear a write"
    assert group.owners() == dict.fromkeys(kept, alive.consumer)
    assert set(group.recorded(LedgerKind.REQUEUED)) == {*lost, *idle}
    reasons = Counter(letter["_reason"] for letter in group.letters())
    assert reasons == {"PayloadGone": 100, "MaxRetriesExceeded": 200}
    group.await_reported(requeued=700, deadLettered=200, payloadGone=100)
    resources.await_condition(NAME, "RecoveryHealthy", reason="Scanning")
    group.until(lambda: not outcomes(group), "no dry run in the status")
    assert group.measured(operator, "pelops_dry_run_entries") == 0


def test_a_dry_run_creates_neither_group_nor_stream_nor_workers(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    resources.apply(NAME, a_spec(redis_86.url, stream, recovery=DRY, deletionPolicy="Delete"))
    missing = resources.await_condition(NAME, reason="GroupMissing")
    assert missing["status"] == "False"
    assert f"Stream {stream} does not exist" in missing["message"]
    group.redis.xadd(stream, {"n": "1"})
    of_group = f"Group {NAME} does not exist on stream {stream}"
    group.until(lambda: of_group in resources.condition(NAME)["message"], of_group)
    assert group.redis.keys(f"*{stream}*") == [stream]
    assert group.redis.xinfo_groups(stream) == []
    assert resources.get("deployment", WORKERS) is None
    assert "finalizers" not in get(resources, "scg", NAME)["metadata"]

    patch(resources, "scg", NAME, {"spec": {"recovery": {"dryRun": False}}})
    resources.await_condition(NAME, reason="Ready")
    assert group.position() == "0-0"


def test_a_dry_run_says_what_would_keep_the_group_from_being_adopted(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    group.redis.xgroup_create(stream, NAME, "0", mkstream=True)
    group.redis.hset(group.keys.state, "of", "somebody else")
    spec = a_spec(redis_86.url, stream, recovery=DRY, template=None, replicas=None)
    resources.apply(NAME, spec)
    found = resources.await_condition(NAME, reason="StreamInUse")
    assert found["status"] == "False"
    assert resources.condition(NAME, "GroupReady")["status"] == "True"
    assert group.reported("recovery")["dryRun"]["reason"] == "StreamInUse"
    group.redis.delete(group.keys.state)
    resources.await_condition(NAME, reason="DryRun")
    assert group.redis.keys(f"*{stream}*") == [stream]
