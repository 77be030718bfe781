"""On a real server scripts run what their headers declare, on the keys of these names."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from redis.asyncio import Redis

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.naming import GroupKeys
from pelops.domain.records.dead_letter import LetterAction
from pelops.domain.records.state import Loss
from pelops.domain.recovery import Action
from pelops.errors import WrongType
from pelops.policy.group.losses import DroppedEntries
from pelops.policy.group.position import PositionChange
from pelops.redis_core.commands import COMMANDS
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import forget_audit, read_audits, record_audit
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import (
    delay_recovery,
    expire_dead_letters,
    note_retry_wait,
    record_dropped,
    record_loss,
    return_copies,
)
from pelops.redis_streams.recovery.consumers import observe_progress, remove_consumer
from pelops.redis_streams.recovery.scan_calls import find_idle, finish_scan
from pelops.redis_streams.recovery.suspects import offer_entries, review_offers, settle_suspects
from pelops.redis_streams.redrive.moves import finish_redrive
from pelops.redis_streams.redrive.outcomes import observe_outcomes
from pelops.scripts.calls import sha1_of
from pelops.scripts.declaration import (
    OPERATOR_SCRIPTS,
    WORKER_SCRIPTS,
    Declaration,
    Many,
    list_scripts,
    read_declaration,
)
from pelops.worker.server.adapter import Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.audits import a_summary
from tests.integration import worker_adapter
from tests.integration.recovering import (
    DEAD,
    KEYS,
    LETTER,
    a_context,
    a_plan,
    look,
    recover_all,
    server_time,
    settlement,
    strand,
)
from tests.integration.recovery_moves import SOON
from tests.integration.redis_adapter import an_owner, connected, endpoint_of
from tests.integration.redriving import a_redrive, add_letter, move_all
from tests.integration.test_redis_access import ACTS
from tests.integration.test_worker_server_rights import act
from tests.integration.worker_adapter import Behind, opened, worker_endpoint

BY_SHA: Final = {
    sha1_of(declared.text): declared
    for package in (OPERATOR_SCRIPTS, WORKER_SCRIPTS)
    for declared in (read_declaration(name, package) for name in list_scripts(package))
}
BY_TEXT: Final = {one.text: one for one in BY_SHA.values()}
_WORD: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SPOKEN: Final = {r"\n": "\n", r"\"": '"', r"\\": "\\", r"\t": "\t"}
END: Final = "the-end"
AUDIT: Final = "shop/nightly"


class Seen:
    """The scripts that ran, according to MONITOR."""

    def __init__(self) -> None:
        self.scripts: set[str] = set()
        self.undeclared: set[str] = set()
        self._current: Declaration | None = None
        self._names: dict[str, set[str]] = {}

    def hear(self, line: str) -> None:
        words = [
            re.sub(r"\\[n\"\\t]", lambda found: _SPOKEN[found[0]], one)
            for one in _WORD.findall(line)
        ]
        if words[0].upper() in {"EVAL", "EVALSHA"}:
            self._begin(words)
        elif " lua] " in line and self._current is not None:
            self._judge(self._current, words)

    def _begin(self, words: list[str]) -> None:
        known = BY_SHA if words[0].upper() == "EVALSHA" else BY_TEXT
        self._current = known.get(words[1])
        if self._current is None:
            return
        self.scripts.add(self._current.name)
        keys = words[3 : 3 + int(words[2])]
        single = [one.name for one in self._current.keys if one.many is not Many.ANY]
        rest = self._current.keys[-1].name if self._current.keys else ""
        self._names = {}
        for place, key in enumerate(keys):
            name = single[place] if place < len(single) else rest
            self._names.setdefault(key, set()).add(name)

    def _judge(self, script: Declaration, words: list[str]) -> None:
        command = words[0].lower()
        if f"{command}|{words[1].lower()}" in COMMANDS if len(words) > 1 else False:
            command = f"{command}|{words[1].lower()}"
        runs = [run for run in script.runs() if run.command == command]
        place = COMMANDS[command].split().index("KEY") if "KEY" in COMMANDS[command] else None
        names = self._names.get(words[place], set()) if place is not None else set[str]()
        if not any(place is None or names & set(run.keys) for run in runs):
            self.undeclared.add(f"{script.name}: {command} {' or '.join(sorted(names))}")


@asynccontextmanager
async def monitored(servers: StandaloneServers) -> AsyncIterator[Seen]:
    """Hears every command up to the end of the block."""
    seen = Seen()
    password = servers.secret()["password"]
    client = Redis.from_url(servers.url, decode_responses=True, password=password, protocol=2)
    teller = Redis.from_url(servers.url, password=password, protocol=2)
    async with client, teller, client.monitor() as monitor:
        yield seen
        await teller.echo(END)
        while True:
            line = await monitor.connection.read_response()
            if f'"{END}"' in line:
                return
            seen.hear(line)


async def _use_everything(server: Server) -> None:
    """Every script of the operator, each where it has something to do."""
    for one in ACTS.values():
        await one(server)
    await server.execute("FLUSHALL")
    ids = await strand(server, 6)
    await provision_group(
        server, KEYS, start=ids[0], owner=an_owner(), with_retry=True, with_offers=True
    )
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(settlement(ids[0]), settlement(ids[1], Action.DEAD), cutoff=cutoff)
    await settle_suspects(server, a_context(), plan, owner, **LETTER)
    observation = await look(server, with_retry=True)
    plan, owner = a_plan(
        settlement(ids[2], Action.FREE), cutoff=cutoff, written=observation.retry_batch.written
    )
    await offer_entries(server, a_context(), plan, owner, reason="offered")
    await review_offers(server, a_context(), withdraws=False)
    await observe_progress(server, KEYS.stream, KEYS.group, DEAD)
    assert [
        page async for page in find_idle(server, observation.stream, KEYS.group, idle=timedelta())
    ]
    await _delete_bodies(server, KEYS, str(ids[3]))
    await recover_all(server, a_context(target=KEYS.retry))
    await note_retry_wait(server, KEYS, an_owner(), forget=False)
    await finish_scan(
        server,
        KEYS,
        uid="uid-1",
        target=KEYS.retry,
        others=(KEYS.stream,),
        tries_cursor="0",
        report="r",
    )
    await return_copies(server, KEYS, an_owner(), field_prefix="_", actor="r-1", reason="asked")
    await review_offers(server, a_context(), withdraws=True)
    await remove_consumer(server, a_context(), DEAD)
    dropped = DroppedEntries(
        at_most=1, observed=await server_time(server), is_quiet=True, consumers={"c": 1}
    )
    await record_dropped(server, KEYS, an_owner(), dropped)
    everything = ObservationRequest(
        KEYS, with_retry=True, with_offers=True, is_deep=True, with_consumers=True
    )
    await observe_groups(server, [everything])
    now = await server_time(server)
    change = PositionChange(before=ids[1], after=ids[0], seen=None, message="went back")
    await delay_recovery(server, KEYS, an_owner(), change, hold=timedelta(hours=1))
    loss = Loss(at_least=1, at_most=2, position=ids[0], seen=now)
    await record_loss(server, KEYS, an_owner(), loss, first_id=ids[2])
    await record_audit(server, KEYS, AUDIT, a_summary(lost=1))
    await _redrive_everything(server)
    await read_audits(server, [KEYS], AUDIT)
    await forget_audit(server, KEYS, AUDIT)


async def _redrive_everything(server: Server) -> None:
    for context in (
        a_redrive(KEYS),
        a_redrive(KEYS, action=LetterAction.DISCARD, uid="2"),
        a_redrive(KEYS, action=LetterAction.RESTORE, uid="3"),
    ):
        await add_letter(server, KEYS)
        await move_all(server, context, max_backlog=1000, rate=100)
        await observe_outcomes(server, context)
        await expire_dead_letters(server, KEYS, an_owner(), kept=timedelta(days=1))
        await finish_redrive(server, context, forget=True)


async def _work_on_everything(redis: Behind, adapter: RedisAdapter) -> None:
    """Every script of the worker; `claim` only on servers that need it."""
    keys = worker_adapter.KEYS
    await redis.create(keys.stream, keys.offer_stream)
    await act(redis, adapter)
    (offered,) = await redis.add()
    await redis.deliver("dead")
    cutoff = str(await redis.now_ms() + 1000)
    await redis.add(1, keys.offer_stream, consumer="dead", before=cutoff, ids=offered.decode())
    while await redis.owners() != {offered: b"me"}:
        await adapter.read(100, 1000)
    await _delete_bodies(redis.server, keys, offered.decode())
    assert await adapter.read_history({}, 100) == []
    await redis.run("DEL", keys.started)
    await redis.run("SET", keys.started, "precious")
    found = await adapter.exchange(Outgoing(started_ids=offered))
    assert isinstance(found.problem, WrongType)


async def _delete_bodies(server: Server, keys: GroupKeys, *ids: str) -> None:
    await server.execute("XDEL", keys.stream, *ids, key=keys.stream)


async def test_a_script_runs_only_the_commands_and_keys_its_header_declares(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    async with (
        monitored(empty_redis) as seen,
        connected(endpoint_of(empty_redis)) as server,
    ):
        await _use_everything(server)
        await server.execute("FLUSHALL")
        async with opened(worker_endpoint(empty_redis)) as adapter:
            await _work_on_everything(redis, adapter)
    assert seen.undeclared == set()
    running = {one.name for one in BY_SHA.values() if any(one.runs())}
    assert running - seen.scripts <= {"claim"}
