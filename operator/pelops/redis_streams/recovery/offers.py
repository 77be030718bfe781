"""What became of entries that were offered to workers that claim."""

from __future__ import annotations

from typing import Final

from pelops.domain.recovery import Offers
from pelops.policy.recovery.offers import FIRST_PAUSE, LONGEST_PAUSE
from pelops.redis_core.scripts import ScriptAnswer, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.actions import ScanContext
from pelops.redis_streams.recovery.scan import MILLISECOND, instant, raise_refusal

_REVIEW: Final = load_script("review_offers")
MOST: Final = 300  # entries that one call looks at: about a millisecond


async def review_offers(server: Server, act: ScanContext, *, withdraws: bool) -> Offers:
    """Count what was taken since the last look, and repeat what is due; or forget all offers.

    Raises NotOurs, NoSuchGroup, WrongType, PermissionDenied. Repeating is safe always.
    """
    found: Offers | None = None
    start, end = "", ""
    while True:
        call = _REVIEW.call(
            act,
            group=act.keys.group,
            uid=act.uid,
            first=start,
            last=end,
            most=MOST,
            pause_ms=FIRST_PAUSE // MILLISECOND,
            longest_ms=LONGEST_PAUSE // MILLISECOND,
            withdraws=withdraws,
        )
        answer = _REVIEW.read(await server.run(call))
        raise_refusal(act.keys, answer)
        some = _read(answer)
        found = some if found is None else found.plus(some)
        start, end = answer["first"].decode(), answer["last"].decode()
        if not start:
            return found


def _read(answer: ScriptAnswer) -> Offers:
    oldest, due, taken_at = answer["oldest_ms"], answer["due_ms"], answer["taken_ms"]
    return Offers(
        now=instant(answer["now_ms"]),
        taken={one.trigger.decode(): one.entries for one in answer["taken"]},
        untaken=answer["untaken"],
        oldest=instant(oldest) if oldest else None,
        due=instant(due) if due else None,
        repeated=answer["repeated"],
        taken_at=instant(taken_at) if taken_at.isdigit() else None,
    )
