"""Every act that moves what a dead consumer held, for tests of what they have in common."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.recovery import Action
from pelops.errors import PelopsError
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.stuck_entries import recover_entries
from pelops.redis_streams.recovery.suspects import settle_suspects
from tests.integration.recovering import (
    DEAD,
    KEYS,
    LETTER,
    a_context,
    a_plan,
    an_order,
    recover_all,
    server_time,
    settlement,
    snapshot,
)

SOON: Final = timedelta(minutes=1)
Move = Callable[[Server], Awaitable[object]]


async def settle_one(server: Server, action: Action = Action.RETRY, written: str = "") -> None:
    """Settle the first entry that the dead consumer holds."""
    reply = await server.execute(
        "XPENDING", KEYS.stream, KEYS.group, "-", "+", 1, DEAD, key=KEYS.stream
    )
    first = parse_entry_id(reply[0][0]) if reply else EntryId(1)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(settlement(first, action), cutoff=cutoff, written=written)
    await settle_suspects(server, a_context(), plan, owner, **LETTER)


MOVES: Final[dict[str, Move]] = {
    "recover_owner": recover_all,
    "recover_entries": lambda server: recover_entries(
        server, a_context(), an_order(), [(EntryId(1), timedelta())]
    ),
    "settle_suspects": settle_one,
}
moves = pytest.mark.parametrize("move", list(MOVES.values()), ids=list(MOVES))


async def refuses(server: Server, move: Move, error: type[PelopsError], why: str) -> None:
    """The move is refused, and leaves everything as it was: it did not happen."""
    before = await snapshot(server)
    with pytest.raises(error, match=why):
        await move(server)
    assert await snapshot(server) == before
