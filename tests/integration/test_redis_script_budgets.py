"""How long a script holds the server when bodies are large: no longer than a few bodies take.

A server runs no other command meanwhile. What one body of that size costs is measured in the same
test, on the same server, so that a busy machine changes both; the times are printed (`pytest -s`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from statistics import median
from typing import Final

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Action
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import (
    expire_dead_letters,
    remember_position,
    return_copies,
    trim_stream,
)
from pelops.redis_streams.recovery.consumers import observe_progress
from pelops.redis_streams.recovery.scan_calls import finish_scan
from pelops.redis_streams.recovery.suspects import offer_entries, review_offers, settle_suspects
from pelops.redis_streams.redrive.outcomes import observe_outcomes
from pelops.scripts.answers import Refusal
from pelops.worker.server.reads import TAKE_OVER
from pelops.worker.server.script_commands import command_of, with_text, worker_script
from tests.integration.recovering import (
    DEAD,
    KEYS,
    LETTER,
    a_context,
    a_plan,
    add_many,
    look,
    read_new,
    recover_all,
    server_time,
    settlement,
    strand,
)
from tests.integration.recovery_moves import SOON
from tests.integration.redis_adapter import an_owner, provision
from tests.integration.redriving import a_redrive, add_letter, move_all
from tests.integration.retaining import letter_pairs
from tests.redis_fixtures import on_newest_unless_full

LARGE: Final = b"x" * 1_000_000
MANY: Final = 24
MOST_BODIES: Final = 8  # of which a script may cost as much: 10 ms where one costs 1.25
TRIES: Final = 5
_ONE: Final = """
local found = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
return redis.call('XADD', KEYS[2], '*', unpack(found[2]))
"""
_ALL_IDS: Final = """
local ids = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do ids[#ids + 1] = entry[1] end
return table.concat(ids, ' ')
"""
Case = Callable[[Server], Awaitable[Callable[[], Awaitable[object]]]]


async def _scripts_ms(server: Server) -> list[float]:
    """How long each script held the server since it was asked last."""
    found = await server.execute("SLOWLOG", "GET", 1000)
    await server.execute("SLOWLOG", "RESET")
    return [entry[2] / 1000 for entry in found if entry[3][0].upper().startswith(b"EVAL")]


async def _one_body_ms(server: Server) -> float:
    await server.execute("XADD", "{calm}:from", "*", "f", LARGE, key="{calm}:from")
    await _scripts_ms(server)
    for _ in range(5):
        await server.execute("EVAL", _ONE, 2, "{calm}:from", "{calm}:to", key="{calm}:from")
    return median(await _scripts_ms(server))


# -- what is there before, and the calls that are measured


async def _recover(server: Server) -> Callable[[], Awaitable[object]]:
    await strand(server, MANY, value=LARGE)
    return lambda: recover_all(server)


async def _recover_behind_small_ones(server: Server) -> Callable[[], Awaitable[object]]:
    """Small bodies first: what follows them is not taken to be small as well."""
    await provision(server, KEYS)
    await add_many(server, KEYS, 60)
    await strand(server, MANY, value=LARGE)
    while await read_new(server, KEYS, 8):  # of a few: the adapter takes no larger replies
        pass
    return lambda: recover_all(server)


async def _settle(server: Server) -> Callable[[], Awaitable[object]]:
    ids = await strand(server, MANY, value=LARGE)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.DEAD) for one in ids), cutoff=cutoff)
    return lambda: settle_suspects(server, a_context(), plan, owner, **LETTER)


async def _hand_over(server: Server) -> Callable[[], Awaitable[object]]:
    ids = await strand(server, MANY, value=LARGE)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cutoff=cutoff)
    return lambda: offer_entries(server, a_context(), plan, owner, reason="offered")


async def _open_scan(server: Server) -> Callable[[], Awaitable[object]]:
    """A retry batch of copies that wait to be delivered."""
    await provision(server, KEYS)
    await add_many(server, KEYS, MANY, LARGE)
    retry_batch = await server.execute("EVAL", _ALL_IDS, 1, KEYS.stream, key=KEYS.stream)
    await server.execute("HSET", KEYS.state, "chunk", retry_batch, key=KEYS.state)
    return lambda: look(server)


async def _finish_scan(server: Server) -> Callable[[], Awaitable[object]]:
    """Tries of entries that were acknowledged and are still in the stream."""
    ids = await strand(server, MANY, value=LARGE)
    words = [word for one in ids for word in (f"try:{one}", "1 0 0")]
    await server.execute("HSET", KEYS.state, *words, key=KEYS.state)
    await server.execute("XACK", KEYS.stream, KEYS.group, *map(str, ids), key=KEYS.stream)
    return lambda: finish_scan(server, KEYS, uid="uid-1", target=KEYS.stream, tries_cursor="0")


async def _observe(server: Server) -> Callable[[], Awaitable[object]]:
    await provision(server, KEYS)
    await add_many(server, KEYS, MANY, LARGE)
    return lambda: observe_groups(server, [ObservationRequest(KEYS, is_deep=True)])


async def _observe_behind_small_ones(server: Server) -> Callable[[], Awaitable[object]]:
    await provision(server, KEYS)
    await add_many(server, KEYS, 15)
    await add_many(server, KEYS, MANY, LARGE)
    return lambda: observe_groups(server, [ObservationRequest(KEYS, is_deep=True)])


async def _remember(server: Server) -> Callable[[], Awaitable[object]]:
    await strand(server, MANY, value=LARGE)
    return lambda: remember_position(server, KEYS, an_owner())


async def _provision_anew(server: Server) -> Callable[[], Awaitable[object]]:
    """The group was lost, and what may repeat is counted."""
    await strand(server, MANY, value=LARGE)
    await remember_position(server, KEYS, an_owner())
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group, key=KEYS.stream)
    return lambda: provision(server, KEYS)


async def _trim(server: Server) -> Callable[[], Awaitable[object]]:
    ids = await strand(server, MANY, value=LARGE)
    await server.execute("XACK", KEYS.stream, KEYS.group, *map(str, ids), key=KEYS.stream)
    plan = RetentionPlan(max_length=0, max_age=None, message="")
    return lambda: trim_stream(server, KEYS, an_owner(), plan)


async def _expire(server: Server) -> Callable[[], Awaitable[object]]:
    await provision(server, KEYS)
    for _ in range(MANY):
        marks = letter_pairs(KEYS)[2:]
        await server.execute(
            "XADD", KEYS.dead_letter, "*", "f", LARGE, *marks, key=KEYS.dead_letter
        )
    return lambda: expire_dead_letters(server, KEYS, an_owner(), kept=timedelta(milliseconds=1))


async def _move_letters(server: Server) -> Callable[[], Awaitable[object]]:
    await provision(server, KEYS)
    for size in (*(1,) * 40, *(len(LARGE),) * MANY):
        await add_letter(server, KEYS, ("f", LARGE[:size]))
    return lambda: move_all(server, a_redrive(KEYS), count=5)


async def _count_failed_again(server: Server) -> Callable[[], Awaitable[object]]:
    """Dead letters of copies that failed again, and copies that wait."""
    await provision(server, KEYS)
    context = a_redrive(KEYS)
    await add_letter(server, KEYS)
    await move_all(server, context)
    for _ in range(MANY):
        await add_letter(server, KEYS, ("f", LARGE))
        await server.execute("XADD", KEYS.stream, "*", "f", LARGE, key=KEYS.stream)
    return lambda: observe_outcomes(server, context)


async def _return(server: Server) -> Callable[[], Awaitable[object]]:
    """Copies in a retry stream that is no longer asked for."""
    await provision_group(
        server, KEYS, start=EntryId.MIN, owner=an_owner(), with_retry=True, with_offers=True
    )
    for each in range(MANY):
        marks = ("_original_id", f"1-{each + 1}", "_retry_count", 1)
        await server.execute("XADD", KEYS.retry, "*", "f", LARGE, *marks, key=KEYS.retry)
    return lambda: return_copies(
        server, KEYS, an_owner(), field_prefix="_", actor="replica-1", reason="as asked"
    )


async def _review(server: Server) -> Callable[[], Awaitable[object]]:
    offer_all = await _hand_over(server)
    await offer_all()
    return lambda: review_offers(server, a_context(), withdraws=False)


async def _observe_progress(server: Server) -> Callable[[], Awaitable[object]]:
    await strand(server, MANY, value=LARGE)
    return lambda: observe_progress(server, KEYS.stream, KEYS.group, DEAD)


def _of_worker(name: str, **args: object) -> Case:
    """A script of the SDK on entries of this worker, or of the dead one."""

    async def prepare(server: Server) -> Callable[[], Awaitable[object]]:
        ids = await strand(server, MANY, value=LARGE)
        before = await server_time(server) + SOON
        known = {
            "group": KEYS.group,
            "me": DEAD,
            "prefix": "_",
            "id": str(ids[0]),
            "ids": list(map(str, ids)),
            "before": int(before.timestamp() * 1000),
            "max_bytes": BYTES,
        }
        script = worker_script(name, Refusal)
        wanted = {one.name for one in script.declared.arguments} | {"ids"}
        if script.declared.tail is None:
            wanted.remove("ids")
        given = {one: value for one, value in (known | args).items() if one in wanted}
        call = with_text(command_of(script.call(KEYS, {"source": KEYS.stream}, **given)))
        return lambda: server.execute(*call, key=KEYS.stream)

    return prepare


BYTES: Final = 256 * 1024
CASES: Final[dict[str, Case]] = {
    "recover_entries": _recover,
    "recover_entries behind small ones": _recover_behind_small_ones,
    "settle_suspects": _settle,
    "offer_entries": _hand_over,
    "open_scan": _open_scan,
    "finish_scan": _finish_scan,
    "observe_group": _observe,
    "observe_group behind small ones": _observe_behind_small_ones,
    "remember_position": _remember,
    "provision_group": _provision_anew,
    "trim_stream": _trim,
    "expire_dead_letters": _expire,
    "move_dead_letters": _move_letters,
    "count_failed_again": _count_failed_again,
    "return_copies": _return,
    "review_offers": _review,
    "observe_progress": _observe_progress,
    "acknowledge": _of_worker("acknowledge", deletes=False),
    "renew": _of_worker("renew", trigger="heartbeat"),
    "claim": _of_worker(
        "claim", me="me", trigger="idle", min_idle_ms=0, start="-", page=500, count=100
    ),
    "take_over": _of_worker("take_over", me="me", offer="1-1", owner=DEAD),
    "release": _of_worker(
        "release", trigger="release", processing_timeout_ms=1, may_age=True, may_offer=False
    ),
    "bury": _of_worker("bury", trigger="history"),
    "reject": _of_worker("reject", trigger="worker", reason="Rejected", why="useless"),
}


@on_newest_unless_full
@pytest.mark.parametrize("name", CASES)
async def test_a_script_blocks_the_server_for_a_few_large_bodies_at_most(
    name: str, server: Server, empty_redis: StandaloneServers
) -> None:
    """24 bodies of 1 MB; a script that read all of them would hold it three times as long."""
    await server.execute("CONFIG", "SET", "slowlog-log-slower-than", 0)
    longest: list[float] = []
    one_ms = await _one_body_ms(server)
    for _ in range(TRIES):
        await server.execute("FLUSHALL")
        measured = await CASES[name](server)
        await _scripts_ms(server)
        await measured()
        longest.append(max(await _scripts_ms(server)))
        if longest[-1] <= MOST_BODIES * one_ms:
            break  # another program may have had the processor in between
    await server.execute("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    shortest = min(longest)
    print(f"{name} on {empty_redis.version}: {shortest:.1f} ms; one body: {one_ms:.1f} ms")
    assert shortest <= MOST_BODIES * one_ms


async def test_entries_beyond_the_limit_of_a_script_are_settled_by_the_next(server: Server) -> None:
    ids = await strand(server, 5, value=LARGE)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.DEAD) for one in ids), cutoff=cutoff)
    done = await settle_suspects(server, a_context(), plan, owner, **LETTER)
    assert (done.dead, done.stays) == (5, [])
    assert await server.execute("XLEN", KEYS.dead_letter, key=KEYS.dead_letter) == 5


async def test_offered_entries_beyond_the_limit_of_a_worker_are_offered_again(
    server: Server,
) -> None:
    ids = await strand(server, 3, value=LARGE)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cutoff=cutoff)
    await server.execute(
        "XGROUP", "CREATE", KEYS.offer_stream, KEYS.group, 0, "MKSTREAM", key=KEYS.offer_stream
    )
    await offer_entries(server, a_context(), plan, owner, reason="offered")
    taken: list[EntryId] = []
    for worker in ("a", "b", "c"):
        read = ("XREADGROUP", "GROUP", KEYS.group, worker, "STREAMS", KEYS.offer_stream, ">")
        ((_, ((offer, fields),)),) = await server.execute(*read, key=KEYS.offer_stream)
        reported = dict(zip(fields[::2], fields[1::2], strict=True))
        call = TAKE_OVER.call(
            KEYS,
            {"source": KEYS.stream},
            group=KEYS.group,
            me=worker,
            offer=offer,
            owner=reported[b"consumer"],
            before=reported[b"before"],
            max_bytes=BYTES,
            ids=reported[b"ids"].split(),
        )
        found = await server.execute(*with_text(command_of(call)), key=KEYS.stream)
        taken += [one for one, *_ in found]
    assert len(set(map(bytes, taken))) == 3  # type: ignore[arg-type]
