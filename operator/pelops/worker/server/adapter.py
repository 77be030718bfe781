"""What a worker asks of Redis, whatever stands behind it: bytes in, bytes out.

The errors are those of `pelops.errors`, by the question *did it happen?*: RedisUnavailable (no),
OutcomeUnknown (perhaps), NoSuchGroup (no: wait for whoever makes the group), and
AuthenticationFailed, PermissionDenied, UnsupportedServer, WrongType (no, and it will not by
itself); beside them NameTaken. An adapter that was refused, or lost its connection, waits longer
and longer before it tries again: callers just ask.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

from pelops.errors import RedisError

# ID, the fields and values in turn, idle milliseconds and delivery count, both before this
# delivery. A new entry has 0 and 0. As the parser made it: an object for each entry would cost as
# much as a whole no-op handler.
RawEntry: TypeAlias = list[Any]
Ids: TypeAlias = Mapping[bytes, Sequence[bytes]]  # entries' IDs by the key of their stream


class NameTaken(RedisError):
    """Another process has begun under this consumer's name: it did not happen, and will later."""


class DeliverySource(Enum):
    """How an entry came to this worker."""

    NEW = "new"  # by `>`; one with a delivery count was idle for too long elsewhere
    CLAIMED = "claimed"  # idle for too long elsewhere
    HANDED_OVER = "handed-over"  # the operator offered it
    HISTORY = "history"  # delivered under this worker's name before


@dataclass(slots=True)
class Delivered:
    """Entries of one stream that came together."""

    key: bytes  # to be acknowledged there
    source: DeliverySource
    entries: list[RawEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """What a process knows before it reads."""

    now_ms: int  # on the server's clock; written beside the group as the process's beginning
    left: frozenset[bytes]  # what former processes of this name had started and not finished


@dataclass(slots=True)
class Outgoing:
    """What is said in one round trip. All of it repeats safely."""

    acks: Ids = field(default_factory=dict)
    checked_acks: Ids = field(default_factory=dict)  # acknowledged only if they are ours still
    started_ids: bytes | None = (
        None  # IDs of what has started, separated by spaces; None: as before
    )
    keeps: Ids = field(default_factory=dict)  # to be refreshed if they are ours still
    read: int = 0  # as `GroupAdapter.read`, up to so many of each stream, without a wait


@dataclass(slots=True)
class Exchanged:
    """The server's answers; what was refused is missing here."""

    acked: dict[bytes, int] = field(default_factory=dict)  # by key: how many had been pending
    lost: dict[bytes, set[bytes]] = field(default_factory=dict)  # asked to keep or check: not ours
    gone: dict[bytes, set[bytes]] = field(
        default_factory=dict
    )  # kept no more: the body was deleted
    delivered: list[Delivered] = field(default_factory=list)
    problem: RedisError | None = None  # why something was refused, which then did not happen


class GroupAdapter(Protocol):
    """One worker's way to its group. `exchange` may run beside `read`, two of a kind may not."""

    @property
    def epoch(self) -> int:
        """Grows whenever a delivery may have been lost: then the own history is to be read."""

    async def open(self) -> None:
        """Connect, and find out what the server can do. Raises as the module says."""

    async def close(self) -> None:
        """End every connection; what is in flight ends as OutcomeUnknown."""

    async def begin(self) -> Boot:
        """Record that this process begins. Before the first read, and once."""

    async def read(self, count: int, block_ms: int) -> list[Delivered]:
        """New entries, idle ones and those that are handed over; none after `block_ms`.

        Up to `count` of each stream, and what an offer names. Entries that were idle here may be
        among them. It may come back empty earlier. Cancelling it may lose a delivery: `epoch`
        grows.
        """

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        """Own pending entries behind the last ID of each key, refreshed; none: that was all.

        An entry whose body is gone is recorded as such and left out. The IDs to `skip` are left
        out too, and not refreshed. A page of nothing else is passed over.
        """

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        """All of it in one round trip."""

    async def reject(self, key: bytes, entry_id: bytes, *, reason: str, error: str) -> bool:
        """Dead-letter an entry that is ours; False: it is not, or nobody's any more."""

    async def begin_isolated(self, entry_id: bytes) -> int:
        """Count a run of an entry beside which nothing runs; how many have begun and not ended."""

    async def end_isolated(self, entry_id: bytes) -> None:
        """Such a run has ended, and its process has not: forget all of them."""

    async def release(self, ids: Ids) -> int:
        """Hand entries back that have not been started; how many others may take at once."""

    async def leave(self) -> bool:
        """Remove this worker's consumer if it owns nothing; whether it is gone."""
