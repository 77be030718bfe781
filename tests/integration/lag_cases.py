"""Actions of users and workers that make the server lose count, and observations after them."""

from collections.abc import Awaitable, Callable
from typing import Final

from pelops.domain.naming import derive_keys
from pelops.domain.stream_observation import GroupObservation
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from tests.integration.redis_adapter import an_owner, deliver

KEYS: Final = derive_keys("orders:events", "processing")
STREAM: Final = KEYS.stream
UID: Final = an_owner().uid
Case = Callable[[Server], Awaitable[None]]


async def fill(server: Server, count: int, *, first: int = 1, body: str = "v") -> None:
    """Add entries whose IDs are the numbers from `first` on, all at one instant of the server."""
    lua = "for i = ARGV[1], ARGV[2] do redis.call('XADD', KEYS[1], i .. '-0', 'f', ARGV[3]) end"
    last = first + count - 1
    for start in range(first, last + 1, 20_000):
        end = min(start + 19_999, last)
        await server.execute("EVAL", lua, 1, STREAM, start, end, body, key=STREAM)


async def set_id(server: Server, position: str, *words: str | int) -> None:
    await server.execute("XGROUP", "SETID", STREAM, KEYS.group, position, *words)


async def acknowledge(server: Server, *ids: str) -> None:
    await server.execute("XACK", STREAM, KEYS.group, *ids)


async def delete(server: Server, *ids: str) -> None:
    await server.execute("XDEL", STREAM, *ids)


async def look(server: Server, *, deep: bool = False) -> GroupObservation:
    one = ObservationRequest(KEYS, is_deep=deep)
    seen = (await observe_groups(server, [one]))[one]
    assert not isinstance(seen, Exception)
    assert seen.group is not None
    return seen.group


async def reported(server: Server) -> int | None:
    """The lag that XINFO GROUPS returns; None where it is unknown."""
    (reply,) = await server.execute("XINFO", "GROUPS", STREAM)
    lag: int | None = dict(zip(reply[::2], reply[1::2], strict=True))[b"lag"]
    return lag


async def calls_of(server: Server, command: str) -> int:
    """How often the server has run a command, also from scripts."""
    stats = (await server.execute("INFO", "commandstats")).decode()
    found = [line for line in stats.splitlines() if line.startswith(f"cmdstat_{command}:")]
    return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0


async def created_at_the_end(server: Server) -> None:
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "$")
    await fill(server, 1, first=11)


async def created_in_the_middle(server: Server) -> None:
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "7-0")


async def deleted_ahead(server: Server) -> None:
    await deliver_from_start(server, 4)
    await delete(server, "6-0", "8-0")


async def set_back(server: Server) -> None:
    await deliver_from_start(server, 10)
    await set_id(server, "4-0")


async def deleted_after_the_acknowledgement(server: Server) -> None:
    """All but an older entry, which is stuck: the routine of workers that delete what is done."""
    await deliver_from_start(server, 10)
    done = [f"{number}-0" for number in range(2, 11)]
    await acknowledge(server, *done)
    await delete(server, *done)
    await fill(server, 1, first=11)


async def deleted_then_a_peak(server: Server) -> None:
    await deliver_from_start(server, 4)
    await delete(server, "6-0")
    await fill(server, 900, first=11)


async def wrongly_counted(server: Server) -> None:
    await deliver_from_start(server, 4)
    await set_id(server, "4-0", "ENTRIESREAD", 1)


async def wrongly_counted_at_the_end(server: Server) -> None:
    await deliver_from_start(server, 10)
    await set_id(server, "10-0", "ENTRIESREAD", 2)


async def trimmed_past_the_group(server: Server) -> None:
    await deliver_from_start(server, 2)
    await server.execute("XTRIM", STREAM, "MAXLEN", 3)


async def deleted_at_the_tail(server: Server) -> None:
    await deliver_from_start(server, 9)
    await delete(server, "10-0")


async def deliver_from_start(server: Server, count: int) -> None:
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "0")
    await deliver(server, KEYS, count)


CASES: Final[dict[Case, tuple[int, bool]]] = {
    # the backlog, and whether the server can be brought to say so
    created_at_the_end: (1, True),
    created_in_the_middle: (3, True),
    deleted_ahead: (4, False),
    set_back: (6, True),
    deleted_after_the_acknowledgement: (1, False),
    deleted_then_a_peak: (905, False),
    wrongly_counted: (6, True),
    wrongly_counted_at_the_end: (0, True),
    trimmed_past_the_group: (3, True),
    deleted_at_the_tail: (0, False),
}
