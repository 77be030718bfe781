"""The simulated group counts as a real Redis does, whatever is done to it."""

import random
from collections.abc import Callable

import pytest

from benchmarks.raw_redis import RawRedis
from benchmarks.scaling_sim.group import StreamGroup
from local_cluster.redis_servers import StandaloneServers

pytestmark = pytest.mark.full

HISTORIES = 200
MOVES = 20


class _Both:
    """The same moves on a real stream and on a simulated one."""

    def __init__(self, raw: RawRedis, key: str, chance: random.Random) -> None:
        self.raw = raw
        self.key = key
        self.chance = chance
        self.simulated = StreamGroup()
        self.is_whole = True  # nothing that was delivered is deleted
        raw.call("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")

    def add(self) -> None:
        self._add(self.chance.randint(1, 5))

    def _add(self, count: int) -> None:
        for offset in range(count):
            self.raw.call("XADD", self.key, f"{self.simulated.end + 1 + offset}-0", "f", "v")
        self.simulated.add(count, 0.0)

    def deliver(self) -> None:
        count = self.chance.randint(1, 6)
        asked = ("GROUP", "g", "c", "COUNT", count, "STREAMS", self.key, ">")
        self.raw.call("XREADGROUP", *asked)
        self.simulated.deliver(count)

    def delete_delivered(self) -> None:
        # The first entry stays, as another group's does.
        position = self.simulated.delivered
        if position > 1 and self.raw.call("XDEL", self.key, f"{position}-0"):
            self.simulated.delete_delivered(1, position)
            self.is_whole = False

    def delete_ahead(self) -> None:
        self._add(3)
        self.raw.call("XDEL", self.key, f"{self.simulated.end - 1}-0")
        self.simulated.delete_ahead()

    def move_back(self) -> None:
        deleted = self.simulated.max_deleted
        if self.is_whole and not deleted and self.simulated.delivered > 3:
            position = self.simulated.delivered - 2
            self.raw.call("XGROUP", "SETID", self.key, "g", f"{position}-0")
            self.simulated.move_back(2, 0.0)

    def create_at_end(self) -> None:
        self.raw.call("XGROUP", "DESTROY", self.key, "g")
        self.raw.call("XGROUP", "CREATE", self.key, "g", "$")
        self.simulated.destroy()
        self.simulated.create_at_end()

    def repair(self) -> None:
        if self.simulated.has_tombstone_ahead():
            return
        read = self.simulated.added - self.simulated.undelivered
        position = f"{self.simulated.delivered}-0"
        self.raw.call("XGROUP", "SETID", self.key, "g", position, "ENTRIESREAD", read)
        self.simulated.repair()

    def seen(self) -> tuple[int | None, int]:
        """Lag as the server reports it, and what is really ahead."""
        found = self.raw.call("XINFO", "GROUPS", self.key)[0]
        fields = dict(zip(found[::2], found[1::2], strict=True))
        position = fields[b"last-delivered-id"].decode()
        ahead = self.raw.call("XRANGE", self.key, f"({position}", "+")
        return fields[b"lag"], len(ahead)


def _moves(both: _Both) -> list[Callable[[], None]]:
    often = [both.add, both.add, both.deliver, both.deliver]
    return [
        *often,
        both.delete_delivered,
        both.delete_ahead,
        both.move_back,
        both.create_at_end,
        both.repair,
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_simulated_lag_is_what_redis_reports(
    redis_86: StandaloneServers, key_prefix: str, seed: int
) -> None:
    chance = random.Random(seed)
    with RawRedis(redis_86.server.port) as raw:
        for number in range(HISTORIES // 4):
            both = _Both(raw, f"{key_prefix}{number}", chance)
            reported = []
            for _ in range(MOVES):
                move = chance.choice(_moves(both))
                move()
                reported.append(move.__name__)
                simulated = (both.simulated.reported_lag, both.simulated.undelivered)
                assert simulated == both.seen(), reported
