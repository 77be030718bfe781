"""How a worker comes by its entries: new ones, its own from before, and those of the dead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import ResponseError

from tests.faults.journal import Journal

BLOCK_MS = 500
UNREAD = ".retry-unread"  # ends the name of the file that keeps workers from the retry stream

# Claims, of the given IDs, those which that owner still holds since before a time: what a new
# process of its name has read again is that one's. KEYS stream; ARGV group, owner, me, ms, then
# IDs. Returns the entries.
CLAIM = """
local time, taken = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 5, #ARGV do
  local entry = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if entry and entry[2] == ARGV[2] and now - entry[3] < tonumber(ARGV[4]) then
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, ARGV[i])[1]
    if claimed then taken[#taken + 1] = claimed end
  end
end
return taken
"""

# Says when this process began, by the server's clock. KEYS state; ARGV consumer.
SAY_BOOT = """
local time = redis.call('TIME')
local ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return redis.call('HSET', KEYS[1], 'boot:' .. ARGV[1], ms)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Where the worker's entries are."""

    stream: str
    group: str
    consumer: str
    retry: str
    offer_stream: str
    started: str
    state: str

    @classmethod
    def from_environment(cls) -> Keys:
        """Read them from the variables that the operator sets."""
        named = os.environ
        return cls(
            stream=named["PELOPS_STREAM"],
            group=named["PELOPS_GROUP"],
            consumer=named["PELOPS_CONSUMER"],
            retry=named["PELOPS_RETRY_STREAM"],
            offer_stream=named["PELOPS_HANDOVER_STREAM"],
            started=named["PELOPS_STARTED_KEY"],
            state=named["PELOPS_WORKER_STATE_KEY"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One entry that this worker has."""

    key: str
    source: str
    entry_id: str
    unique: str
    nature: str  # ok, slow or poison


class Taker:
    """Takes entries and writes down which."""

    def __init__(
        self,
        server: Any,
        keys: Keys,
        journal: Journal,
        *,
        count: int,
        claims: bool,
        retries: bool,
        reads_history: bool,
        says_boot: bool,
        deafness: Path,
        unread: Path | None = None,
    ) -> None:
        """While the file `unread` exists, new copies of the retry stream are not read."""
        self._server = server
        self._keys = keys
        self._journal = journal
        self._count = count
        self._claims = claims
        self._deafness = deafness
        self._streams = [keys.stream, *([keys.retry] if retries else [])]
        self._unread = unread
        self._reads_history = reads_history
        self._owes_history = self._reads_history
        self._has_said_boot = not says_boot
        self.left: set[str] = set()  # what ended former processes of this name
        self._claimed: set[bytes] = set()  # of what is in hand: an offer may come several times

    def reconnected(self) -> None:
        """An answer may have been lost: what it brought is in the history."""
        self._owes_history = self._reads_history

    def take(self) -> list[Work]:
        """The next entries; empty after half a second without one."""
        self._claimed = set()
        if not self._has_said_boot:
            self._begin()
        if self._owes_history:
            works = self._take_history()
            self._owes_history = bool(works)
            return works
        return self._take_new()

    def _begin(self) -> None:
        """Say when this process began; what others of its name died of is left to the operator."""
        if self._claims:
            started_ids = self._server.hget(self._keys.started, self._keys.consumer) or b""
            self.left = set(started_ids.decode().split())
        self._server.eval(SAY_BOOT, 1, self._keys.state, self._keys.consumer)
        self._has_said_boot = True

    def _take_history(self) -> list[Work]:
        found: list[Work] = []
        for key in self._streams:
            works = self._read({key: "0"}, block_ms=None)
            if works:
                # The read itself is not replicated: without this a failover forgets that it was.
                ids = [work.entry_id for work in works]
                names = (self._keys.group, self._keys.consumer)
                self._server.xclaim(key, *names, 0, ids, justid=True)
            found += works
        return found

    def _take_new(self) -> list[Work]:
        is_unread = self._unread is not None and self._unread.exists()
        streams = self._streams[:1] if is_unread else self._streams
        hears_offers = self._claims and not self._deafness.exists()
        asked = [*streams, *([self._keys.offer_stream] if hears_offers else [])]
        return self._read(dict.fromkeys(asked, ">"), block_ms=BLOCK_MS)

    def _read(self, asked: dict[str, str], *, block_ms: int | None) -> list[Work]:
        answer: Any = self._server.xreadgroup(
            self._keys.group, self._keys.consumer, asked, self._count, block_ms
        )
        found: list[Work] = []
        for key, entries in answer.items() if isinstance(answer, dict) else answer or ():
            name = key.decode()
            if name == self._keys.offer_stream:
                for entry_id, fields in entries:
                    found += self._claim(entry_id, fields)
            else:
                found += self._note(name, entries, is_history=asked[name] != ">")
        return found

    def _note(self, key: str, entries: Any, *, is_history: bool = False) -> Iterator[Work]:
        source = "r" if key == self._keys.retry else "s"
        for entry_id, fields in entries:
            if not fields:
                continue  # its body was deleted
            work = Work(
                key=key,
                source=source,
                entry_id=entry_id.decode(),
                unique=fields[b"unique"].decode(),
                nature=fields[b"nature"].decode(),
            )
            # What ended a former process of this name is not to be tried by this one.
            is_left = is_history and work.entry_id in self.left
            act = "skip" if is_left else "read"
            self._journal.write(act, source, work.entry_id, work.unique)
            if not is_left:
                yield work

    def _claim(self, offer_id: bytes, fields: dict[bytes, bytes]) -> list[Work]:
        keys = self._keys
        ids = [one for one in fields.get(b"ids", b"").split() if one not in self._claimed]
        found: list[Work] = []
        if ids:
            owner, before = fields.get(b"consumer", b""), fields.get(b"before", b"0")
            answer: Any = self._server.eval(
                CLAIM, 1, keys.stream, keys.group, owner, keys.consumer, before, *ids
            )
            pairs = [(one[0], _pair(one[1])) for one in answer]
            for work in self._note(keys.stream, pairs):
                self._journal.write("claim", work.source, work.entry_id, work.unique)
                found.append(work)
                self._claimed.add(work.entry_id.encode())
                self.left.discard(work.entry_id)  # given to this process, and not yet started
        with suppress(ResponseError):  # the offer was taken; what it names is this worker's
            self._server.xack(keys.offer_stream, keys.group, offer_id)
        return found


def _pair(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
