"""What became of the entries that a redrive moved back."""

from __future__ import annotations

from pelops.policy.redrive.progress import Outcomes
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import RedriveContext


async def observe_outcomes(server: Server, context: RedriveContext) -> Outcomes:
    """Count which of the moved entries failed again, and which are still unprocessed.

    Bounded: some thousand entries are looked at. Where there are more, `unprocessed` is an upper
    bound, and `is_exact` is False. The entries that failed again are counted from where the last
    call of any replica stopped; `is_exact` is False while there are more to count.

    Raises as `move_letters`; RedriveNotStarted when Redis has no record of it.
    """
    raise NotImplementedError
