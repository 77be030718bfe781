"""The interface between a worker and Redis. Keys, IDs and bodies are bytes.

The errors are those of `pelops.errors`, and NameTaken. Each says whether the command was executed:
no, retry (RedisUnavailable); perhaps (OutcomeUnknown); not until the group exists (NoSuchGroup);
not until a user fixes the cause (AuthenticationFailed, PermissionDenied, UnsupportedServer,
WrongType). The adapter backs off after errors, so callers may retry at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

from pelops.errors import RedisError

# ID; alternating fields and values; idle milliseconds and delivery count before this delivery (both
# 0 for a new entry). It is the parser's own list, because an object for each entry would cost as
# much as a no-op handler.
RawEntry: TypeAlias = list[Any]
Ids: TypeAlias = Mapping[bytes, Sequence[bytes]]  # entry IDs by the key of their stream


class NameTaken(RedisError):
    """Another process uses this consumer name: the command was not executed. Retry later."""


class DeliverySource(Enum):
    """How an entry came to this worker."""

    NEW = "new"  # read with `>`; claimed by CLAIM if it has a delivery count
    CLAIMED = "claimed"  # it exceeded the processing timeout at another worker
    HANDED_OVER = "handed-over"  # the operator offered it
    HISTORY = "history"  # delivered to this consumer name before


@dataclass(slots=True)
class Delivered:
    """Entries of one stream that were delivered together."""

    key: bytes  # the stream on which to acknowledge them
    source: DeliverySource
    entries: list[RawEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The boot record of a process, and the started entries of its predecessors."""

    now_ms: int  # when the process began, by the server's clock
    left: frozenset[bytes]  # IDs that former processes of this name started and did not finish


@dataclass(slots=True)
class Outgoing:
    """Commands of one round trip. It is safe to repeat all of them."""

    acks: Ids = field(default_factory=dict)
    checked_acks: Ids = field(default_factory=dict)  # only of entries that this consumer still owns
    started_ids: bytes | None = None  # started entries, separated by spaces; None: unchanged
    keeps: Ids = field(default_factory=dict)  # heartbeats, only of entries it still owns
    read: int = 0  # entries to read of each stream, without blocking; see `GroupAdapter.read`


@dataclass(slots=True)
class Exchanged:
    """The server's replies; refused commands have no reply here."""

    acked: dict[bytes, int] = field(default_factory=dict)  # by key: number that were pending
    lost: dict[bytes, set[bytes]] = field(default_factory=dict)  # no longer owned
    gone: dict[bytes, set[bytes]] = field(
        default_factory=dict
    )  # no longer pending: the body was deleted
    delivered: list[Delivered] = field(default_factory=list)
    problem: RedisError | None = None  # why a command was refused and not executed


class GroupAdapter(Protocol):
    """One worker's access to its group. `exchange` may run during `read`, but not two of either."""

    @property
    def epoch(self) -> int:
        """Grows when a delivery may have been lost: the worker must then read its history."""

    async def open(self) -> None:
        """Connect, and check required commands. Raises the errors that the module lists."""

    async def close(self) -> None:
        """Close all connections; commands without a reply raise OutcomeUnknown."""

    async def begin(self) -> Boot:
        """Write the boot record of this process. Call it once, before the first read."""

    async def read(self, count: int, block_ms: int) -> list[Delivered]:
        """New, idle and offered entries; an empty list at the latest after `block_ms`.

        At most `count` entries of each stream, and all entries of an offer. They may include idle
        entries of this consumer. After a cancellation, which may lose a delivery, `epoch` grows.
        """

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        """Pending entries of this consumer after the given ID of each key; empty at the end.

        Their idle time is reset. Entries whose body was deleted are dead-lettered and left out. The
        IDs in `skip` are left out and not changed. A page without other entries is not returned.
        """

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        """Send these commands in one round trip, and return the replies."""

    async def reject(self, key: bytes, entry_id: bytes, *, reason: str, error: str) -> bool:
        """Dead-letter an entry; False: this consumer does not own it, or its body was deleted."""

    async def begin_isolated(self, entry_id: bytes) -> int:
        """Count a run of an entry in isolation; return the runs that began and did not end."""

    async def end_isolated(self, entry_id: bytes) -> None:
        """Reset the count of `begin_isolated`: the run ended and its process did not."""

    async def release(self, ids: Ids) -> int:
        """Release entries that were not started; return how many are available at once."""

    async def leave(self) -> bool:
        """Remove this worker's consumer if it owns no entries; return whether it is removed."""
