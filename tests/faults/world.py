"""What one phase runs in: Redis, operators, workers and producers, with a network between them."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import RedisServers
from tests.faults.collecting import Findings
from tests.faults.fleet import Fleet
from tests.faults.history import Process
from tests.faults.journal import read_processes
from tests.faults.lanes import Lane, Place
from tests.faults.notes import Note
from tests.faults.producing import Producer
from tests.faults.proxy import Proxy
from tests.operators import Resources

PATIENCE_S = 6.0
TIMEOUTS: Mapping[str, Any] = {"socket_timeout": 10, "socket_connect_timeout": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What phases share: a control plane, and a directory for all they write."""

    plane: ControlPlane
    directory: Path
    operator_environment: Mapping[str, str]  # of a mutant


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a phase differs from others."""

    name: str
    lanes: tuple[Lane, ...]
    topology: str = "standalone"
    fsync: str = "everysec"
    node_skew_s: float = 0  # of the node of lanes without poison
    operator_skews_s: tuple[float, ...] = (0,)
    allowed_skew_s: float | None = None  # what operators reckon with; None: what they do by default
    twins: bool = False
    seed: int = 0

    def skew_of(self, lane: Lane) -> float:
        """How far the clock of a lane's node is ahead.

        Where it is wrong only time-outs tell who died of poison, and whether it ended on purpose.
        """
        return 0 if lane.poison_every else self.node_skew_s


@dataclass(kw_only=True)
class World:
    """Everything that a fault can hit, and what it did."""

    ground: Ground
    setting: Setting
    servers: RedisServers
    place: Place
    to_redis: Mapping[str, Proxy]  # by who is behind it: operator, workers
    to_api: Proxy
    fleets: list[Fleet]
    resources: Resources
    producers: Mapping[str, Producer]
    findings: Mapping[str, Findings]  # by lane: also what a fault took away
    offset_ns: int  # our clock less that of Redis
    notes: list[Note] = field(default_factory=list)
    other_groups: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    dead_since: dict[tuple[str, int], float] = field(default_factory=dict)  # by pod and restarts
    data_lock: threading.Lock = field(default_factory=threading.Lock)
    ending: threading.Event = field(default_factory=threading.Event)  # the time for faults is up

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All lanes."""
        return self.setting.lanes

    @property
    def namespace(self) -> str:
        """Where the resources are."""
        return self.resources.namespace

    def connect(self) -> Any:
        """A client of the server itself, no proxy between; of the master as it is now."""
        return connect_to(self.servers)

    def living(self, lane: Lane | None = None) -> list[Process]:
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

    def pods(self) -> list[dict[str, Any]]:
        """The pods as the API server has them; none when it does not answer."""
        try:
            answer = self.ground.plane.get(f"/api/v1/namespaces/{self.namespace}/pods")
        except OSError:
            return []
        items: list[dict[str, Any]] = json.loads(answer)["items"]
        return items

    def kubectl(self, *words: str) -> None:
        """As an administrator; what fails, fails: the API server may be a victim, too."""
        self.ground.plane.kubectl(*words, "-n", self.namespace, check=False)

    def tend(self) -> None:
        """Replace pods that wait long for their next start, once the operator has had its time."""
        alive = {one.consumer for one in self.living()}
        for pod in self.pods():
            meta, statuses = pod["metadata"], pod.get("status", {}).get("containerStatuses") or []
            restarts = max((one.get("restartCount", 0) for one in statuses), default=0)
            if f"{meta['name']}:{meta['uid']}" in alive or meta.get("deletionTimestamp"):
                continue
            since = self.dead_since.setdefault((meta["uid"], restarts), time.monotonic())
            if restarts >= 3 and time.monotonic() - since > PATIENCE_S:
                self.kubectl("delete", "pod", meta["name"], "--wait=false")

    def heal(self) -> None:
        """End every fault; whatever was ended or paused runs again."""
        for proxy in (*self.to_redis.values(), self.to_api):
            proxy.heal()
        for server in self.servers.everything:
            server.resume()
            server.start()
        api = self.ground.plane.process("kube-apiserver")
        api.resume()
        if not api.is_alive():
            self.ground.plane.restart("kube-apiserver")
        for process in self.living():
            send(process, signal.SIGCONT)
        for fleet in self.fleets:
            fleet.replace()


def connect_to(servers: RedisServers) -> Any:
    """A client of the server itself, no proxy between; of the master as it is now."""
    if servers.topology == "cluster":
        return RedisCluster.from_url(servers.url, socket_timeout=10)
    # One that tries again and again would do so at a master that is none any more.
    once = Retry(NoBackoff(), 0)
    port = servers.master().port
    return redis.Redis(host="127.0.0.1", port=port, retry=once, **TIMEOUTS)


def send(process: Process, number: signal.Signals) -> None:
    """A signal to a worker that may just have ended."""
    if _is_worker(process.pid):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return b"tests.faults.worker" in command and state not in {"Z", "X"}
