"""A dry run of a scan decides as the scan does, on a real server, and writes nothing there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from pelops.api.group.group_status_model import DryRunAction
from pelops.api.group.recovery import RecoveryStrategy
from pelops.domain.entry_id import EntryId
from pelops.errors import PelopsError, WouldDuplicate
from pelops.policy.recovery.dry_run import DryRun
from pelops.redis_core.commands import text_of
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import ProvisionVerdict, provision_group
from pelops.scripts.calls import sha1_of
from pelops.scripts.declaration import (
    OPERATOR_SCRIPTS,
    list_scripts,
    parse_script,
    read_declaration,
)
from tests.integration.recovering import DEAD, KEYS, bodies, pending, read_new, server_time
from tests.integration.redis_adapter import an_owner, provision
from tests.integration.stream_scanning import LOCKS, a_run, died, make_idle, moved, scan

HANGING, LIVE, POISONED = "hanging", "live", "poisoned"
MS: Final = timedelta(milliseconds=1)
DAY: Final = timedelta(days=1)


@dataclass(slots=True)
class Scene:
    """A group that Pelops has never touched, and its pending entries by what is wrong with them."""

    server: Server
    added: int = 0
    ids: dict[str, list[EntryId]] = field(default_factory=dict)

    async def hold(self, what: str, owner: str, number: int, *pairs: str) -> list[EntryId]:
        """Have a consumer hold so many new entries."""
        for _ in range(number):
            self.added += 1
            words = pairs or ("n", str(self.added))
            # Old IDs: what is younger than the processing timeout cannot have idled for so long.
            await self.server.execute(
                "XADD", KEYS.stream, f"{self.added}-1", *words, key=KEYS.stream
            )
        self.ids[what] = await read_new(self.server, KEYS, number, owner)
        return self.ids[what]


async def a_scene(server: Server) -> Scene:
    """1,000 stuck entries, and 50 of a worker that lives."""
    made = ("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0", "MKSTREAM")
    await server.execute(*made, key=KEYS.stream)
    scene = Scene(server)
    dead = await scene.hold("dead", DEAD, 500)
    await make_idle(server, dead[:100])  # for two reasons stuck, and counted once
    gone = await scene.hold("gone", DEAD, 100)
    await server.execute("XDEL", KEYS.stream, *map(str, gone), key=KEYS.stream)
    await scene.hold("suspects", DEAD, 9, "f", "v", "_original_id", "0-1", "_retry_count", "1")
    await make_idle(server, await scene.hold("idle", HANGING, 200), owner=HANGING)
    failed = ("f", "v", "_original_id", "0-1", "_retry_count", "7")
    for at, one in enumerate(await scene.hold("poison", POISONED, 191, *failed)):
        # Each of a read of its own: what one read delivered would have failed together.
        await make_idle(server, [one], owner=POISONED, idle=DAY - 20 * at * MS)
    await scene.hold("live", LIVE, 50)
    return scene


async def written(server: Server) -> tuple[int, Sequence[bytes]]:
    """How often anything was written to the server, and its keys."""
    info = text_of(await server.execute("INFO", "persistence"))
    (changes,) = (
        int(line.partition(":")[2])
        for line in info.splitlines()
        if line.startswith("rdb_changes_since_last_save:")
    )
    return changes, sorted(await server.execute("KEYS", "*"))


async def scan_all(server: Server, **recovery: Any) -> DryRun:
    """What a scan of the group does, or would do through a server that writes nothing."""
    soon = await server_time(server) + timedelta(hours=1)
    return (await scan(await a_run(server, **recovery), died(soon))).dry_run()


async def test_a_dry_run_counts_what_recovery_then_does(server: Server) -> None:
    scene = await a_scene(server)
    before, held = await written(server), await pending(server)
    found = await scan_all(server.dry)
    assert found.outcomes == {
        (DryRunAction.REQUEUE, "PodGone"): 500 + 3,  # and a first retry batch of the suspects
        (DryRunAction.REQUEUE, "ProcessingTimeout"): 200,
        (DryRunAction.DEAD_LETTER, "PayloadGone"): 100,
        (DryRunAction.DEAD_LETTER, "MaxRetriesExceeded"): 191,
        (DryRunAction.KEEP, "OtherSuspects"): 6,
    }
    assert found.stuck == 1_000
    assert await scan_all(server.dry) == found
    assert await written(server) == before
    assert (await pending(server)).keys() == held.keys()

    await provision(server, KEYS)
    assert await scan_all(server.dry) == found, "provisioning changes nothing of it"
    assert await scan_all(server) == found
    left = set(await pending(server))
    assert set(scene.ids["live"]) <= left
    assert len(left) == 50 + 6
    assert left - set(scene.ids["live"]) < set(scene.ids["suspects"])
    letters = (await bodies(server, KEYS.dead_letter)).values()
    by_reason = Counter(pairs[pairs.index(b"_reason") + 1] for pairs in letters)
    assert by_reason == {b"PayloadGone": 100, b"MaxRetriesExceeded": 191}
    assert len(await moved(server)) == 703


@pytest.mark.parametrize("strategy", [one for one in RecoveryStrategy if one != "Disabled"])
async def test_a_dry_run_writes_nothing_whatever_the_strategy_and_the_locks(
    server: Server, strategy: RecoveryStrategy
) -> None:
    scene = await a_scene(server)
    for one in scene.ids["dead"][:7]:
        await server.execute("SET", f"lock:{{{KEYS.stream}}}:{one}", "held", key=KEYS.stream)
    before = await written(server)
    found = await scan_all(server.dry, strategy=strategy, locks=LOCKS)
    assert await written(server) == before
    assert found.outcomes[DryRunAction.KEEP, "Locked"] == 7
    assert found.outcomes[DryRunAction.DEAD_LETTER, "PayloadGone"] == 100
    is_release = strategy is RecoveryStrategy.RELEASE
    action = DryRunAction.RELEASE if is_release else DryRunAction.REQUEUE
    assert found.outcomes[action, "PodGone"] >= 493
    assert found.outcomes[action, "ProcessingTimeout"] == 200


async def test_a_dry_run_meets_the_obstacle_that_recovery_would_meet(server: Server) -> None:
    await a_scene(server)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "other", "0", key=KEYS.stream)
    before = await written(server)
    with pytest.raises(WouldDuplicate):
        await scan_all(server.dry)
    assert await written(server) == before


async def test_provisioning_is_tried_without_a_write(server: Server) -> None:
    await a_scene(server)
    before = await written(server)
    tried = await provision_group(server.dry, KEYS, start=EntryId.MIN, owner=an_owner())
    assert tried.verdict is ProvisionVerdict.ADOPTED
    assert await written(server) == before


@pytest.mark.parametrize("name", list_scripts(OPERATOR_SCRIPTS))
async def test_every_script_has_a_text_for_dry_runs_that_the_server_takes(
    server: Server, name: str
) -> None:
    text = read_declaration(name).dry_text
    assert (await server.execute("SCRIPT", "LOAD", text)).decode() == sha1_of(text)


_WRITES_MORE = """-- Write what its header does not declare.
--
-- KEYS     state
-- ARGV     value
-- READS    hget state
-- WRITES   hset state
-- USER     operator
redis.call('HSET', state, 'f', value)
redis.call('DEL', state)
return 'done'
"""


async def test_the_server_refuses_undeclared_writes_of_a_dry_run(server: Server) -> None:
    text = parse_script("writes_more", _WRITES_MORE).dry_text
    await server.execute("HSET", KEYS.state, "f", "before", key=KEYS.state)
    with pytest.raises(PelopsError):
        await server.execute("EVAL", text, 1, KEYS.state, "after", key=KEYS.state)
    assert await server.execute("HGET", KEYS.state, "f", key=KEYS.state) == b"before"


async def test_no_command_that_writes_goes_through_a_server_for_dry_runs(server: Server) -> None:
    with pytest.raises(ValueError, match="writes nothing"):
        await server.dry.execute("DEL", KEYS.stream, key=KEYS.stream, writes=True)
    assert server.dry.dry is server.dry
