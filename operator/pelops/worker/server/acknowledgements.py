"""Acknowledgements, started entries and heartbeats of one round trip, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from pelops.errors import PelopsError, RedisError
from pelops.redis_core.transport import Reply
from pelops.scripts.parts import Count, RawId
from pelops.worker.server.adapter import Exchanged, Ids, Outgoing
from pelops.worker.server.script_commands import Names, Parts, worker_script

_IDS_PER_SCRIPT: Final = 1000  # a Lua call takes 7,999 arguments at most


class _Acknowledged(NamedTuple):
    """How many entries were acknowledged, and those that this worker does not hold."""

    acknowledged: Count
    lost: list[RawId]


class Renewed(NamedTuple):
    """Entries that this worker does not hold, and those whose body was deleted."""

    lost: list[RawId]
    gone: list[RawId]


_ACKNOWLEDGE: Final = worker_script("acknowledge", _Acknowledged)
RENEW: Final = worker_script("renew", Renewed)
ReadReply = Callable[[Exchanged, bytes, Reply], None]


class AcknowledgementCommands:
    """Builds the commands of an `Outgoing`, each with a function that reads its reply."""

    def __init__(self, names: Names, *, deletes: bool) -> None:
        self._names = names
        self._deletes = deletes

    def build(
        self, outgoing: Outgoing, left: Collection[bytes] = ()
    ) -> tuple[list[Parts], list[tuple[ReadReply, bytes]]]:
        """The commands, and for each the function and key to read its reply; `left` stays recorded
        as started."""
        commands = list(self._build(outgoing, left))
        return [command for command, _, _ in commands], [(how, key) for _, how, key in commands]

    def _build(
        self, outgoing: Outgoing, left: Collection[bytes]
    ) -> Iterator[tuple[Parts, ReadReply, bytes]]:
        names = self._names
        for key, ids in outgoing.acks.items():
            if ids:
                yield self._acknowledge(key, ids), _note_acked, key
        for key, some in in_chunks(outgoing.checked_acks):
            args = {"deletes": self._deletes, "ids": some}
            yield names.run(_ACKNOWLEDGE, {"source": key}, **args), _note_checked, key
        if outgoing.started_ids is not None:
            started_ids = b" ".join([*left, outgoing.started_ids]) if left else outgoing.started_ids
            yield ("HSET", names.started, names.me, started_ids), _note_nothing, b""
        for key, some in in_chunks(outgoing.keeps):
            yield names.recording(RENEW, key, "heartbeat", ids=some), _note_kept, key

    def _acknowledge(self, key: bytes, ids: Sequence[bytes]) -> Parts:
        if self._deletes:
            # ACKED deletes an entry only when every group has acknowledged it.
            return ("XACKDEL", key, self._names.group, "ACKED", "IDS", len(ids), *ids)
        return ("XACK", key, self._names.group, *ids)


def read_replies(replies: Sequence[Reply], readers: Sequence[tuple[ReadReply, bytes]]) -> Exchanged:
    """The server's replies as one `Exchanged`. Raises errors that are not of Redis."""
    exchanged = Exchanged()
    for reply, (note, key) in zip(replies, readers, strict=False):
        if not isinstance(reply, PelopsError):
            note(exchanged, key, reply)
        elif not isinstance(reply, RedisError):
            raise reply
        elif exchanged.problem is None:
            exchanged.problem = reply
    return exchanged


def _note_acked(found: Exchanged, key: bytes, reply: Reply) -> None:
    count = reply if isinstance(reply, int) else sum(verdict != -1 for verdict in reply)
    found.acked[key] = found.acked.get(key, 0) + count


def _note_checked(found: Exchanged, key: bytes, reply: Reply) -> None:
    checked = _ACKNOWLEDGE.read(reply)
    _note_acked(found, key, checked.acknowledged)
    if checked.lost:
        found.lost.setdefault(key, set()).update(checked.lost)


def _note_kept(found: Exchanged, key: bytes, reply: Reply) -> None:
    kept = RENEW.read(reply)
    if kept.lost:
        found.lost.setdefault(key, set()).update(kept.lost)
    if kept.gone:
        found.gone.setdefault(key, set()).update(kept.gone)


def _note_nothing(found: Exchanged, key: bytes, reply: Reply) -> None:
    """Ignore the reply of HSET."""


def in_chunks(ids: Ids) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Split the IDs of each stream into the number that a script takes."""
    for key, all_of_it in ids.items():
        for start in range(0, len(all_of_it), _IDS_PER_SCRIPT):
            yield key, all_of_it[start : start + _IDS_PER_SCRIPT]
