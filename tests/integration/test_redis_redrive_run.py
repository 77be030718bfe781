"""A redrive in one replica, part by part, on real servers."""

import asyncio
import time

import pytest

from pelops.controller.redrive import redrive_run
from pelops.controller.redrive.redrive_run import RedriveRun
from pelops.policy.redrive.redrive_facts import Phase
from pelops.policy.redrive.selection import Selection, compile_pattern
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server
from tests.integration.redis_adapter import provision
from tests.integration.redriving import KEYS, a_redrive, add_letter, entries_of
from tests.redrive_facts import a_redrive as a_resource

SLOW = compile_pattern("(.{0,300}a){1}b")  # every start of the text fits for long


def a_run(server: Server, selection: Selection) -> RedriveRun:
    return RedriveRun(server, a_redrive(), selection, time.monotonic, asyncio.Lock())


async def test_a_slow_expression_stops_its_redrive_and_nothing_else(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive_run, "MOST_SEARCH_S", 0.0)
    await provision(server, KEYS)
    await add_letter(server, KEYS, error="a" * 4096)
    run = a_run(server, Selection(error_matches=SLOW))
    await run.advance(a_resource())
    assert run.verdict is not None
    assert (run.verdict.is_failure, run.verdict.finding.reason) == (True, Reason.REGEX_TOO_SLOW)
    assert "errorContains" in run.verdict.finding.message
    assert len(await entries_of(server, KEYS.dead_letter)) == 1


async def test_the_event_loop_goes_on_while_errors_are_searched(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive_run, "MOST_SEARCH_S", 600.0)
    await provision(server, KEYS)
    for _ in range(8):
        await add_letter(server, KEYS, error="xa" * 2048)
    run = RedriveRun(
        server.dry, a_redrive(), Selection(error_matches=SLOW), time.monotonic, asyncio.Lock()
    )
    began = last = time.monotonic()
    longest_s = 0.0

    async def others() -> None:
        nonlocal last, longest_s
        while True:
            longest_s, last = max(longest_s, time.monotonic() - last), time.monotonic()
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    while run.verdict is None:
        await run.advance(a_resource(mode="DryRun"))
    task.cancel()
    assert "0 dead letters match" in run.verdict.finding.message
    assert longest_s < (time.monotonic() - began) / 2


async def test_a_trial_that_loses_entries_ends_the_redrive(server: Server) -> None:
    await provision(server, KEYS)
    for _ in range(20):
        await add_letter(server, KEYS)
    redrive = a_resource(trial={"entries": 10, "waitSeconds": 600})
    run = a_run(server, Selection())
    await run.advance(redrive)
    assert run.phase is Phase.TRIAL
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", 0, key=KEYS.stream, writes=True)
    await run.advance(redrive)
    assert run.verdict is not None
    assert (run.verdict.is_failure, run.verdict.finding.reason) == (True, Reason.ENTRIES_LOST)
    assert "0 acknowledged, 0 failed again, 0 unprocessed, 10 lost" in run.verdict.finding.message
    assert len(await entries_of(server, KEYS.dead_letter)) == 10


async def test_lost_entries_are_known_to_the_replica_that_goes_on(server: Server) -> None:
    await provision(server, KEYS)
    for _ in range(5):
        await add_letter(server, KEYS)
    await a_run(server, Selection()).advance(a_resource())
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", 0, key=KEYS.stream, writes=True)
    await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    another = a_run(server, Selection())
    await another.advance(a_resource())
    assert another.verdict is not None
    assert another.verdict.finding.reason == Reason.ENTRIES_LOST


async def test_a_dry_run_counts_what_could_not_be_moved_and_says_why(server: Server) -> None:
    await provision(server, KEYS)
    for _ in range(3):
        await add_letter(server, KEYS)
    create = ("XGROUP", "CREATE", KEYS.stream, "reports", "$")
    await server.execute(*create, key=KEYS.stream, writes=True)
    run = RedriveRun(server.dry, a_redrive(), Selection(), time.monotonic, asyncio.Lock())
    await run.advance(a_resource(mode="DryRun"))
    assert run.verdict is not None
    assert (run.verdict.is_failure, run.verdict.finding.reason) == (False, Reason.COMPLETED)
    message = run.verdict.finding.message
    assert "3 dead letters match" in message
    assert "would be refused now: the stream orders:events has 2 consumer groups" in message


async def test_a_dry_run_of_a_group_that_is_not_provisioned_counts_nothing(server: Server) -> None:
    run = RedriveRun(server.dry, a_redrive(), Selection(), time.monotonic, asyncio.Lock())
    await run.advance(a_resource(mode="DryRun"), refusal="spec.recovery.dryRun is true")
    assert run.verdict is not None
    message = run.verdict.finding.message
    assert message == (
        "Dry run: 0 dead letters match the selection; nothing was moved. With spec.mode: Move it "
        "would be refused now: spec.recovery.dryRun is true"
    )
