"""Scans that cannot parse a script's reply: the condition reports it, and counts are unknown."""

import pkgutil
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from pelops.controller.recovery.pod_evidence import ConsumerLiveness, LivenessQuestion
from pelops.controller.recovery.scanner import ScanAdapters, Scanner
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import Condition
from pelops.domain.records.state import FIXED_FIELDS, SCAN_AT, GroupState, parse_state
from pelops.domain.recovery import Cutoff, Death, LivenessReason, OwnerMatch, Trigger, no_cutoff
from pelops.errors import OutcomeUnknown, PelopsError, RedisUnavailable, UnknownRefusal
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.status.conditions import decide_upkeep
from pelops.policy.status.reasons import ConditionType, Reason
from pelops.redis_core.server import RunnableScript, Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams import recovery
from pelops.redis_streams.recovery.scan_calls import read_fields
from pelops.scripts.calls import Script
from tests.builders import facts, manifest, stream, workload
from tests.integration.recovering import KEYS, pending
from tests.integration.redis_adapter import provision
from tests.integration.stream_scanning import COUNTED, HOUR, add_old, make_idle

ALIVE: Final = "alive"  # its process runs, and holds an entry for too long
GONE: Final = "gone"  # its pod is deleted, and it holds nothing
NAME: Final = ("shop", "order-processing")
STRATEGIES: Final = ("Requeue", "Release")
SCRIPTS: Final = sorted(
    {
        one.name
        for module in pkgutil.iter_modules(recovery.__path__, f"{recovery.__name__}.")
        for one in vars(import_module(module.name)).values()
        if isinstance(one, Script)
    }
)


class Damaging(Server):
    """Runs each script, and damages what one of them answers."""

    def __init__(self, behind: Server, script: str = "", instead: Any = (b"damaged",)) -> None:
        super().__init__(behind.endpoint, behind.kind, behind._router)
        self.script = script
        self.ran: list[str] = []
        self._instead = instead if isinstance(instead, PelopsError) else list(instead)

    async def run_many(self, calls: Sequence[RunnableScript]) -> list[Reply | PelopsError]:
        answers = await super().run_many(calls)
        names = [call.name for call in calls]
        self.ran += names
        return [
            self._instead if name == self.script else answer
            for name, answer in zip(names, answers, strict=True)
        ]


class Evidence:
    """What became of the three processes."""

    async def find_liveness(self, question: LivenessQuestion) -> dict[str, ConsumerLiveness]:
        at = question.server_time + HOUR
        dead = Cutoff(
            at=at, reason=LivenessReason.GONE, message="its pod is gone", death=Death.CRASHED
        )
        running = no_cutoff(LivenessReason.ALIVE, "its pod is running")
        return {
            one: ConsumerLiveness(
                cutoff=running if one == ALIVE else dead, match=OwnerMatch(vanished_uid="uid")
            )
            for one in question.consumers
        }


def a_scanner(server: Server, strategy: str) -> Scanner:
    """A replica that ranks first."""

    async def connect(_: Any) -> Any:
        return server, KEYS

    async def has_former_retry(*_: Any) -> bool:
        return False

    async def observe(_: Any) -> Any:
        return workload(), ()

    async def report(*_: Any) -> None:
        """Report nothing."""

    cache = WorkloadCache()
    spec = {"strategy": strategy, "maxRetries": 1}
    cache.put(STREAM_CONSUMER_GROUP, manifest(recovery=spec, metadata={"uid": "uid-1"}))
    parts = SimpleNamespace(
        cache=cache,
        observer=SimpleNamespace(connect=connect, has_former_retry=has_former_retry),
        members=SimpleNamespace(rank=lambda _: 0),
        evidence=Evidence(),
        targets=SimpleNamespace(observe=observe),
        skew=timedelta(),
        reporter=SimpleNamespace(report=report),
        listening_problem=lambda _: None,
        identity="replica-1",
        make_due=lambda _: None,
        is_settled=lambda _: False,
    )
    return Scanner(cast(ScanAdapters, parts), lambda: 0.0)


async def strand(server: Server) -> None:
    """Something for each script of a scan: entries of a dead worker and of one that hangs, and a
    consumer that holds nothing.
    """
    first, *rest = await add_old(server, 3, *COUNTED)
    await make_idle(server, [first], owner=ALIVE)
    await make_idle(server, rest)
    create = ("XGROUP", "CREATECONSUMER", KEYS.stream, KEYS.group, GONE)
    await server.execute(*create, key=KEYS.stream)


async def read_state(server: Server) -> GroupState:
    values = await read_fields(server, KEYS, FIXED_FIELDS)
    return parse_state(dict(zip(FIXED_FIELDS, values, strict=True)))


def recovery_of(state: GroupState) -> Condition:
    """RecoveryHealthy, as all replicas render it."""
    found = decide_upkeep(facts(stream=stream(state=state)))
    return next(one for one in found if one.type == ConditionType.RECOVERY_HEALTHY)


async def scan_twice(scanner: Scanner, server: Server) -> list[GroupState]:
    """The group's state after each of two scans."""
    states = []
    for _ in range(2):
        await scanner.scan(NAME, Trigger.POD_DEATH)
        states.append(await read_state(server))
    return states


async def test_a_scan_runs_every_script_of_the_package(server: Server) -> None:
    """What keeps the next test from passing over one."""
    damaging, ran = Damaging(server), set[str]()
    for strategy in STRATEGIES:
        await server.execute("DEL", *KEYS.by_name().values(), key=KEYS.stream)
        await strand(server)
        states = await scan_twice(a_scanner(damaging, strategy), server)
        assert [recovery_of(one).status for one in states] == ["True", "True"]
        ran |= set(damaging.ran)
    assert ran == set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_scan_that_cannot_read_an_answer_says_so(server: Server, script: str) -> None:
    strategy = "Release" if script in {"offer_entries", "review_offers"} else "Requeue"
    await strand(server)
    damaging = Damaging(server, script)
    states = await scan_twice(a_scanner(damaging, strategy), server)
    assert script in damaging.ran
    failed = [one for one in states if recovery_of(one).status == "False"]
    assert failed
    found = recovery_of(failed[0])
    assert found.reason == Reason.INVALID_REDIS_REPLY
    assert f"invalid reply to {script}.lua" in found.message
    assert failed[-1].report.stuck != 0 or not await pending(server)


async def test_a_scan_that_fails_is_not_recorded_as_completed(server: Server) -> None:
    await strand(server)
    damaging = Damaging(server, "find_idle")
    scanner = a_scanner(damaging, "Requeue")
    state = (await scan_twice(scanner, server))[-1]
    assert await read_fields(server, KEYS, [SCAN_AT]) != [None]
    assert (state.scanned_at, state.report.stuck) == (None, None)
    damaging.script = ""
    await scanner.scan(NAME, Trigger.POD_DEATH)
    state = await read_state(server)
    assert recovery_of(state).status == "True"
    assert state.scanned_at is not None
    assert state.report.stuck is not None


async def test_a_completed_scan_is_recorded_now_and_then(server: Server) -> None:
    """The time of a scan alone costs an idle group no second script each time."""
    await provision(server, KEYS)
    plain = Damaging(server)
    scanner = a_scanner(plain, "Requeue")
    first, second = await scan_twice(scanner, server)
    assert first.scanned_at is not None
    assert first.scanned_at == second.scanned_at
    assert plain.ran == ["open_scan", "finish_scan", "open_scan"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownRefusal("recover_entries returned an unknown error"), "False"),
        (OutcomeUnknown("Redis at orders:6379 did not answer a write"), "True"),
        (RedisUnavailable("Redis at orders:6379 cannot be reached"), "True"),
    ],
)
async def test_only_what_does_not_end_by_itself_is_reported(
    server: Server, error: PelopsError, status: str
) -> None:
    await strand(server)
    scanner = a_scanner(Damaging(server, "recover_entries", error), "Requeue")
    states = await scan_twice(scanner, server)
    assert {recovery_of(one).status for one in states} == {status}
    assert {one.scanned_at for one in states} == {None}


async def test_a_failed_scan_reports_no_stuck_entries_that_were_not_counted(
    server: Server,
) -> None:
    await strand(server)
    scanner = a_scanner(Damaging(server, "review_offers"), "Release")
    await scanner.scan(NAME, Trigger.POD_DEATH)
    before = (await read_state(server)).report
    await scanner.scan(NAME, Trigger.POD_DEATH)
    after = (await read_state(server)).report
    assert (before.reason, before.offered) == ("", 1)
    assert (after.reason, after.stuck) == (Reason.INVALID_REDIS_REPLY, None)
