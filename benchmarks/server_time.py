"""How long a Redis was held by each call, as the server itself says (SLOWLOG, INFO commandstats).

That is wall time: on a busy machine it includes how long others held the processor. So the server
is given precedence over them, where that is allowed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from benchmarks.numbers import percentile
from benchmarks.raw_redis import RawRedis, Reply
from pelops.scripts.calls import sha1_of
from pelops.scripts.declaration import read_declaration

SCANNING = (
    *("open_scan", "find_idle", "recover_entries", "settle_suspects", "offer_entries"),
    *("review_offers", "finish_scan", "remove_consumer", "observe_progress"),
)
# What the operator sends without a script while it scans, and no script calls.
PLAIN = ("xinfo|consumers", "pttl")
KEPT = 2_000_000
_NOBODY = (b"", b"?:0")  # whose call it was, when a script made it


def prefer(pid: int) -> bool:
    """Let a server's main thread run whenever it has work; False when this user may not say so."""
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Call:
    """One call from a client; what a script called within it is part of it."""

    name: str  # of the script, or of the command
    ms: float


class CallMeter:
    """Notes every call to one server from `start` on.

    Each command is noted, also within scripts, which makes these a little slower than they are.
    """

    def __init__(
        self,
        raw: RawRedis,
        *,
        plain: Collection[str] = PLAIN,
        scripts: Collection[str] = SCANNING,
    ) -> None:
        self._raw = raw
        self._plain = plain  # on Valkey a command looks the same whether or not a script ran it
        self._names = {sha1_of(read_declaration(one).text).encode(): one for one in scripts}
        raw.call("CONFIG", "SET", "slowlog-max-len", KEPT)

    def start(self) -> None:
        """Forget everything."""
        self._raw.call("SLOWLOG", "RESET")
        self._raw.call("CONFIG", "SET", "slowlog-log-slower-than", 0)

    def stop(self) -> list[Call]:
        """The calls since `start`: of the scripts, and the plain commands beside them."""
        self._raw.call("CONFIG", "SET", "slowlog-log-slower-than", -1)
        calls = [self._read(entry) for entry in self._raw.call("SLOWLOG", "GET", -1)]
        self._raw.call("SLOWLOG", "RESET")
        return [call for call in calls if call is not None]

    def _read(self, entry: list[Reply]) -> Call | None:
        _, _, micros, words, address, *_ = entry
        name = self._names.get(words[1]) if words[0].upper() == b"EVALSHA" else None
        if name is None and address not in _NOBODY and _full_name(words) in self._plain:
            name = _full_name(words)
        return Call(name, micros / 1000) if name is not None else None


def total_ms(calls: Iterable[Call]) -> float:
    """What all calls took together."""
    return sum(call.ms for call in calls)


def longest_of(calls: Iterable[Call], percent: float = 100) -> dict[str, float]:
    """The percentile of each kind of call, in milliseconds.

    Of fewer than 100 calls the longest is left out unless all are asked for: a single stall of the
    machine would pass for what every hundredth call takes.
    """
    by_name: dict[str, list[float]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call.ms)
    return {name: _longest(sorted(found), percent) for name, found in sorted(by_name.items())}


def _longest(ordered: list[float], percent: float) -> float:
    is_few = percent < 100 and 1 < len(ordered) < 100
    return percentile(ordered[:-1] if is_few else ordered, percent) or 0.0


def read_commandstats(raw: RawRedis) -> dict[str, tuple[int, float]]:
    """Calls and milliseconds by command since the last RESETSTAT; a script's commands count twice:
    as themselves, and within EVALSHA."""
    found = {}
    for line in raw.call("INFO", "commandstats").decode().splitlines():
        name, _, fields = line.removeprefix("cmdstat_").partition(":")
        values = dict(field.partition("=")[::2] for field in fields.split(","))
        if "calls" in values:
            found[name] = (int(values["calls"]), int(values["usec"]) / 1000)
    return found


def scanning_ms(raw: RawRedis) -> float:
    """What scripts and the operator's plain commands took since the last RESETSTAT.

    HMGET counts whole, though scripts call it too: the server counts both kinds of calls together.
    """
    stats = read_commandstats(raw)
    return sum(stats.get(name, (0, 0.0))[1] for name in ("evalsha", "eval", "hmget", *PLAIN))


def _full_name(words: list[bytes]) -> str:
    command = words[0].lower().decode()
    return f"{command}|{words[1].lower().decode()}" if command == "xinfo" else command
