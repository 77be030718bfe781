"""What became of entries that were offered to workers that claim."""

from __future__ import annotations

from functools import partial
from typing import Final

from pelops.domain.recovery import Offers
from pelops.policy.recovery.offers import FIRST_PAUSE, LONGEST_PAUSE
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.recovery.actions import Act, act_needs
from pelops.redis_streams.recovery.scan import MILLISECOND, instant, raise_refusal

_REVIEW: Final = load_script("review_offers", writes=True)
MOST: Final = 300  # entries that one call looks at: about a millisecond


async def review_offers(server: Server, act: Act, *, withdraws: bool) -> Offers:
    """Count what was taken since the last look, and repeat what is due; or forget all offers.

    Raises NotOurs, NoSuchGroup, WrongType, PermissionDenied. Repeating is safe always.
    """
    found: Offers | None = None
    start, end = "", ""
    while True:
        call = ScriptCall(
            script=_REVIEW,
            keys=(act.source, act.keys.handover, act.keys.state),
            args=(
                *(act.keys.group, act.uid, start, end, MOST),
                *(FIRST_PAUSE // MILLISECOND, LONGEST_PAUSE // MILLISECOND),
                "withdraw" if withdraws else "keep",
            ),
            needs=partial(_needs, act),
        )
        verdict, *details = await server.run(call)
        raise_refusal(act.keys, verdict, details)
        start, end, some = _read(details)
        found = some if found is None else found.plus(some)
        if not start:
            return found


def _read(details: list[Reply]) -> tuple[str, str, Offers]:
    now, start, end, untaken, oldest, due, repeated, taken_at, *taken = details
    offers = Offers(
        now=instant(now),
        taken={trigger.decode(): entries for trigger, entries in taken},
        untaken=untaken,
        oldest=instant(oldest) if oldest else None,
        due=instant(due) if due else None,
        repeated=repeated,
        taken_at=instant(taken_at) if taken_at.isdigit() else None,
    )
    return start.decode(), end.decode(), offers


def _needs(act: Act) -> tuple[Need, ...]:
    handover = act.keys.handover
    return (
        *act_needs(act),
        *(Need("type", handover), Need("xadd", handover, ("*", "f", "v"))),
        *(Need("xinfo|stream", handover), Need("xinfo|groups", handover)),
    )
