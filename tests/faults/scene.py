"""What every phase runs in: Redis, workers behind a network that can be hurt, and producers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from local_cluster.redis_servers import RedisServers
from tests.faults.collecting import Findings
from tests.faults.groups_under_fault import GroupUnderFault, Place
from tests.faults.history import Hindrance, Process
from tests.faults.journal import read_processes
from tests.faults.notes import Note
from tests.faults.producing import Producer
from tests.faults.proxy import Proxy
from tests.operators import ROOT

TIMEOUTS: Mapping[str, Any] = {"socket_timeout": 10, "socket_connect_timeout": 2}
PROGRAMS = (b"tests.faults.worker", b"tests.faults.sdk_worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a phase differs from others."""

    name: str
    lanes: tuple[GroupUnderFault, ...]
    topology: str = "standalone"
    version: str = "8.6"
    fsync: str = "everysec"
    wires: int = 1  # that the workers are spread over, so that some of them can be cut off
    node_skew_s: float = 0  # of the node of lanes without poison
    operator_skews_s: tuple[float, ...] = (0,)
    allowed_skew_s: float | None = None  # what operators reckon with; None: what they do by default
    twins: bool = False
    upgrades: bool = False  # the operators begin as those of the former version
    worker_path: str = str(ROOT)  # where workers find this and, of a mutant, the SDK
    reports_hindrances: bool = False  # every fault of a worker is written down as such
    seed: int = 0

    def skew_of(self, lane: GroupUnderFault) -> float:
        """How far the clock of a lane's node is ahead.

        Where it is wrong, only time-outs show who died of poison, and whether it ended on purpose.
        """
        return 0 if lane.poison_every else self.node_skew_s


@dataclass(kw_only=True)
class Scene(ABC):
    """Everything that a fault of workers and of Redis can hit, and what it did."""

    setting: Setting
    servers: RedisServers
    place: Place
    to_redis: Mapping[str, Proxy]  # by who is behind it: operator, workers
    producers: Mapping[str, Producer]
    findings: Mapping[str, Findings]  # by lane: also what a fault took away
    offset_ns: int  # local clock less that of Redis
    notes: list[Note] = field(default_factory=list)
    hindrances: list[Hindrance] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)  # how often a fault was begun
    other_groups: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    unreported: dict[str, list[str]] = field(default_factory=dict)  # by lane: losses not reported
    disagreements: list[str] = field(default_factory=list)  # between versions of the operator
    data_lock: threading.Lock = field(default_factory=threading.Lock)
    ending: threading.Event = field(default_factory=threading.Event)  # the time for faults is up

    @property
    def lanes(self) -> tuple[GroupUnderFault, ...]:
        """All lanes."""
        return self.setting.lanes

    @property
    def wires(self) -> list[Proxy]:
        """The proxies between workers and Redis; worker `pid` uses the one at `pid % len`."""
        return [proxy for name, proxy in self.to_redis.items() if name != "operator"]

    def connect(self) -> Any:
        """A client of the server itself, no proxy between; of the master as it is now."""
        return connect_to(self.servers)

    def living(self, lane: GroupUnderFault | None = None) -> list[Process]:
        """Workers that run (or are paused)."""
        lanes = self.lanes if lane is None else (lane,)
        found = [one for each in lanes for one in read_processes(self.place.journals(each))]
        return [one for one in found if _is_worker(one.pid)]

    def signal_some(self, dice: random.Random, number: signal.Signals) -> Process | None:
        """Send a signal to one living worker."""
        living = self.living()
        if not living:
            return None
        victim = dice.choice(living)
        send(victim, number)
        return victim

    def note_hindrance(self, kind: str, began_ns: int, **hit: int) -> None:
        """Write down that a worker, or all of a wire, was kept from its work until now."""
        ended_ns = time.time_ns()
        self.hindrances.append(Hindrance(kind=kind, began_ns=began_ns, ended_ns=ended_ns, **hit))

    @abstractmethod
    def tend(self) -> None:
        """See to it that workers which ended are followed by others."""

    def heal(self) -> None:
        """End every fault; whatever was ended or paused runs again."""
        for proxy in self.to_redis.values():
            proxy.heal()
        for server in self.servers.everything:
            server.resume()
            server.start()
        for process in self.living():
            send(process, signal.SIGCONT)


def connect_to(servers: RedisServers) -> Any:
    """A client of the server itself, no proxy between; of the master as it is now."""
    if servers.topology == "cluster":
        return RedisCluster.from_url(servers.url, socket_timeout=10)
    # One that tries again and again would do so at a master that is none any more.
    once = Retry(NoBackoff(), 0)
    port = servers.master().port
    return redis.Redis(host="127.0.0.1", port=port, retry=once, **TIMEOUTS)


def send(process: Process, number: signal.Signals) -> None:
    """Send a signal to a worker that may have ended meanwhile."""
    if _is_worker(process.pid):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def is_running(process: Process) -> bool:
    """Whether it lives and is not stopped."""
    return _is_worker(process.pid, {"Z", "X", "T", "t"})


def _is_worker(pid: int, other_than: Set[str] = frozenset({"Z", "X"})) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return any(program in command for program in PROGRAMS) and state not in other_than
