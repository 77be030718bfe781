"""A lock keeps a suspect where it is, whatever was decided about it."""

import pytest

from pelops.domain.recovery import Action, EntryVerdict
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.suspects import settle_suspects
from tests.integration.recovering import (
    KEYS,
    LETTER,
    a_context,
    a_plan,
    pending,
    server_time,
    settlement,
    strand,
)
from tests.integration.recovery_moves import SOON


@pytest.mark.parametrize("action", [Action.FREE, Action.DEAD])
async def test_a_lock_keeps_a_suspect_pending(server: Server, action: Action) -> None:
    ids = await strand(server, 2)
    locks = tuple(f"lock:{{{KEYS.tag}}}:{one}" for one in ids)
    await server.execute("SET", locks[1], "held", key=locks[1])
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, action) for one in ids), cutoff=cutoff)
    done = await settle_suspects(server, a_context(), plan, owner, **LETTER, locks=locks)
    assert (done.copied + done.dead, done.stays) == (1, [(ids[1], EntryVerdict.LOCKED)])
    assert list(await pending(server)) == [ids[1]]
