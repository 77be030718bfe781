"""Which replica writes now.

Every replica sees every difference. The first in rank writes at once; the others only when the
difference is still there after their delay, so that normally one of them writes and nobody leads.
A wrong idea of the ranks costs a delay or a repeated write, never correctness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta

STEP = timedelta(seconds=1.5)


def rank_of(member: str, members: Iterable[str], key: str) -> int:
    """The place of a member for one key: 0 writes first (rendezvous hashing, Thaler 1998).

    A member that is not in the list ranks as if it were.
    """

    def weight(name: str) -> bytes:
        return hashlib.blake2b(f"{name}\0{key}".encode(), digest_size=8).digest()

    mine = weight(member)
    return sum(1 for other in set(members) if other != member and weight(other) > mine)


def wait_for_turn(rank: int, differing_since: datetime, now: datetime) -> timedelta:
    """How long this replica still leaves the difference to others; zero means write now."""
    return max(timedelta(0), differing_since + rank * STEP - now)
