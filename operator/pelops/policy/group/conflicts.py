"""Which of several resources acts when they want the same target: who runs it, else the oldest.

Two resources on one consumer group are told apart in Redis, where the group's own record says who
holds it; that also covers two operators and two spellings of one address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pelops.domain.condition import Finding
from pelops.policy.status.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Claim:
    """One resource's wish to act. The smallest acts: who runs the target, else the oldest."""

    is_guest: bool = True  # names the target; False: runs it by its own template
    created: str  # RFC 3339 in UTC: sorts as text
    uid: str
    namespace: str
    name: str


def decide_target_owner(own: Claim, claims: Iterable[Claim], *, target: str) -> Finding | None:
    """None when this resource may act on the target, else who does."""
    first = min([own, *claims])
    if first.uid == own.uid:
        return None
    why = "is older and acts" if first.is_guest else "runs it"
    return Finding(
        reason=Reason.CONFLICT,
        message=(
            f"{target} is the target of {first.namespace}/{first.name} as well, which {why}; "
            "name another target, or delete one of the two resources"
        ),
        is_terminal=True,
    )
