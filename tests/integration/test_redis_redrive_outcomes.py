"""What became of redriven entries: acknowledged, failed again, or still unprocessed."""

import pytest

from pelops.domain.records.dead_letter import LetterAction
from pelops.domain.recovery import LetterReason
from pelops.errors import RedriveNotStarted
from pelops.policy.redrive.progress import Outcomes
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import start_redrive
from pelops.redis_streams.redrive.outcomes import MOST_CALLS, VISITED, observe_outcomes
from tests.integration.redis_adapter import provision
from tests.integration.redriving import KEYS, a_redrive, add_letter, entries_of, move_all
from tests.integration.retaining import fill

REDRIVE = a_redrive()


async def _read(
    server: Server, count: int, key: str = KEYS.stream
) -> list[tuple[bytes, list[bytes]]]:
    group = ("GROUP", KEYS.group, "w", "COUNT", count, "STREAMS", key, ">")
    found = await server.execute("XREADGROUP", *group, key=key)
    return [(entry_id, flat) for entry_id, flat in found[0][1]]


async def _acknowledge(server: Server, *ids: bytes) -> None:
    await server.execute("XACK", KEYS.stream, KEYS.group, *ids, key=KEYS.stream)


async def _fail(server: Server, entry: tuple[bytes, list[bytes]]) -> None:
    """Have a worker make a dead letter of a copy, as the page of the protocol says."""
    entry_id, flat = entry
    await add_letter(server, KEYS, flat[:-4], flat[-3].decode())
    await _acknowledge(server, entry_id)


async def test_entries_are_followed_until_they_are_acknowledged_or_fail_again(
    server: Server,
) -> None:
    await provision(server, KEYS)
    for _ in range(5):
        await add_letter(server, KEYS)
    await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    await move_all(server, REDRIVE)
    await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    seen = await observe_outcomes(server, REDRIVE)
    assert seen == Outcomes(moved=5, failed_again=0, unprocessed=5)
    read = await _read(server, 4)  # one of a producer, then three redriven
    assert await observe_outcomes(server, REDRIVE) == seen
    await _acknowledge(server, read[0][0], read[1][0])
    seen = await observe_outcomes(server, REDRIVE)
    assert (seen.unprocessed, seen.acknowledged) == (4, 1)
    await _fail(server, read[2])
    for _ in range(2):  # each failure counts once, however often it is observed
        seen = await observe_outcomes(server, REDRIVE)
        assert (seen.failed_again, seen.unprocessed, seen.acknowledged) == (1, 3, 1)
    rest = await _read(server, 10)
    await _acknowledge(server, read[3][0], *(entry_id for entry_id, _ in rest))
    seen = await observe_outcomes(server, REDRIVE)
    assert (seen.failed_again, seen.unprocessed, seen.acknowledged) == (1, 0, 4)
    assert seen.is_exact


async def test_copies_in_the_retry_stream_count(server: Server) -> None:
    await provision(server, KEYS)
    create = ("XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", "MKSTREAM")
    await server.execute(*create, key=KEYS.retry)
    for _ in range(3):
        await add_letter(server, KEYS)
    to_retry = a_redrive(to_retry_stream=True)
    await move_all(server, to_retry)
    read = await _read(server, 2, KEYS.retry)
    await server.execute("XACK", KEYS.retry, KEYS.group, read[0][0], key=KEYS.retry)
    seen = await observe_outcomes(server, to_retry)
    assert seen == Outcomes(moved=3, failed_again=0, unprocessed=2)


async def test_behind_a_large_backlog_the_outcomes_are_bounds(server: Server) -> None:
    await provision(server, KEYS)
    await fill(server, KEYS.stream, MOST_CALLS * VISITED + 500)
    await add_letter(server, KEYS)
    for _ in range(3):
        await move_all(server, REDRIVE)
    seen = await observe_outcomes(server, REDRIVE)
    assert (seen.unprocessed, seen.acknowledged) == (1, 0)
    # What was added later is not looked at for copies: none was made after the last one.
    await _read(server, MOST_CALLS * VISITED + 501)
    await fill(server, KEYS.stream, 9_000, ms=99_999_999_999_999)
    script = (
        "for _, p in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 100000)) do"
        " redis.call('XACK', KEYS[1], ARGV[1], p[1]) end"
    )
    await server.execute("EVAL", script, 1, KEYS.stream, KEYS.group, key=KEYS.stream, writes=True)
    seen = await observe_outcomes(server, REDRIVE)
    assert (seen.unprocessed, seen.acknowledged, seen.is_exact) == (0, 1, True)


async def test_only_letters_of_this_redrive_count_as_failed_again(server: Server) -> None:
    await provision(server, KEYS)
    await add_letter(server, KEYS)
    await move_all(server, REDRIVE)
    own = ["f", "v", "_redrive", REDRIVE.mark, "_returned", "1"]
    await add_letter(server, KEYS, ["f", "v", "_redrive", "another/uid", "_returned", "1"])
    await add_letter(server, KEYS, own, group="of-others")
    await add_letter(server, KEYS, [*own, "g", "w"])
    await server.execute("XADD", KEYS.dead_letter, "*", *own, key=KEYS.dead_letter)
    assert (await observe_outcomes(server, REDRIVE)).failed_again == 0
    await add_letter(server, KEYS, own)
    assert (await observe_outcomes(server, REDRIVE)).failed_again == 1
    assert len(await entries_of(server, KEYS.dead_letter)) == 5


async def test_what_was_discarded_has_no_outcome(server: Server) -> None:
    await provision(server, KEYS)
    await add_letter(server, KEYS)
    discard = a_redrive(action=LetterAction.DISCARD)
    with pytest.raises(RedriveNotStarted):
        await observe_outcomes(server, discard)
    await move_all(server, discard)
    assert (await observe_outcomes(server, discard)).acknowledged == 1


async def _move_looked_at(server: Server, count: int) -> None:
    """Redrive as a run does: it observes the stream before it moves any dead letter."""
    await provision(server, KEYS)
    for _ in range(count):
        await add_letter(server, KEYS)
    await start_redrive(server, REDRIVE)
    await observe_outcomes(server, REDRIVE)
    await move_all(server, REDRIVE)


async def _trim(server: Server) -> None:
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", 0, key=KEYS.stream, writes=True)


def _fates(seen: Outcomes) -> tuple[int, int, int, int]:
    return seen.acknowledged, seen.unprocessed, seen.lost, seen.unknown


async def test_copies_that_are_trimmed_before_their_delivery_are_lost(server: Server) -> None:
    await _move_looked_at(server, 5)
    await _trim(server)
    for _ in range(2):  # they count once
        assert _fates(await observe_outcomes(server, REDRIVE)) == (0, 0, 5, 0)


async def test_copies_that_are_trimmed_after_their_acknowledgement_are_acknowledged(
    server: Server,
) -> None:
    await _move_looked_at(server, 5)
    read = await _read(server, 3)
    await _acknowledge(server, *(entry_id for entry_id, _ in read))
    assert _fates(await observe_outcomes(server, REDRIVE)) == (3, 2, 0, 0)
    await server.execute("XTRIM", KEYS.stream, "MINID", read[-1][0], key=KEYS.stream, writes=True)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (3, 2, 0, 0)
    rest = await _read(server, 2)
    await _acknowledge(server, *(entry_id for entry_id, _ in rest))
    assert _fates(await observe_outcomes(server, REDRIVE)) == (5, 0, 0, 0)
    await _trim(server)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (5, 0, 0, 0)


async def test_a_stream_that_is_deleted_takes_its_undelivered_copies_along(server: Server) -> None:
    await _move_looked_at(server, 5)
    await _acknowledge(server, *(entry_id for entry_id, _ in await _read(server, 2)))
    assert _fates(await observe_outcomes(server, REDRIVE)) == (2, 3, 0, 0)
    await server.execute("DEL", KEYS.stream, key=KEYS.stream, writes=True)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (2, 0, 3, 0)
    await provision(server, KEYS)
    await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (2, 0, 3, 0)


async def test_what_came_and_went_between_two_looks_is_unknown(server: Server) -> None:
    await _move_looked_at(server, 5)
    assert (await observe_outcomes(server, REDRIVE)).unprocessed == 5
    await _acknowledge(server, *(entry_id for entry_id, _ in await _read(server, 5)))
    await _trim(server)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (0, 0, 0, 5)


async def test_a_copy_that_is_deleted_among_others_is_the_only_unknown_one(server: Server) -> None:
    await _move_looked_at(server, 5)
    copies = await entries_of(server, KEYS.stream)
    await server.execute("XDEL", KEYS.stream, copies[2][0], key=KEYS.stream, writes=True)
    await _acknowledge(server, *(entry_id for entry_id, _ in await _read(server, 5)))
    assert _fates(await observe_outcomes(server, REDRIVE)) == (4, 0, 0, 1)


async def test_entries_that_are_trimmed_before_the_first_copy_leave_the_outcomes_exact(
    server: Server,
) -> None:
    await provision(server, KEYS)
    await fill(server, KEYS.stream, 20, ms=1_000)
    await _acknowledge(server, *(entry_id for entry_id, _ in await _read(server, 20)))
    await add_letter(server, KEYS)
    await move_all(server, REDRIVE)  # the stream was not observed before
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", 1, key=KEYS.stream, writes=True)
    await _acknowledge(server, *(entry_id for entry_id, _ in await _read(server, 1)))
    assert _fates(await observe_outcomes(server, REDRIVE)) == (1, 0, 0, 0)


async def test_a_copy_that_is_removed_while_it_is_pending_is_not_acknowledged(
    server: Server,
) -> None:
    await _move_looked_at(server, 3)
    read = await _read(server, 3)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (0, 3, 0, 0)
    await server.execute("XDEL", KEYS.stream, read[1][0], key=KEYS.stream, writes=True)
    assert _fates(await observe_outcomes(server, REDRIVE)) == (0, 3, 0, 0)
    await _acknowledge(server, *(entry_id for entry_id, _ in read))
    # As recovery does with it.
    await add_letter(server, KEYS, (), read[1][0].decode(), reason=LetterReason.PAYLOAD_GONE)
    for _ in range(2):
        assert _fates(await observe_outcomes(server, REDRIVE)) == (2, 0, 0, 1)
