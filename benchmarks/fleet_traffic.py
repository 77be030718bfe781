"""Traffic on some groups of a fleet: entries are added, read and acknowledged once a second.

On light nodes no process runs in the pods. A thread reads and acknowledges in the names of their
consumers, and each consumer always holds what it read last.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.fleet import Fleet, resource_name
from benchmarks.holdings import Holdings
from benchmarks.pending import BODY, count_pending
from benchmarks.pod_watch import consumer_of, is_running
from benchmarks.raw_redis import RawRedis, Reply, pack
from local_cluster.plane import ControlPlane
from pelops.domain.naming import GroupKeys
from pelops.kube.client import POD, Manifest
from pelops.kube.worker_deployment import RESOURCE_LABEL

EACH_TIME: Final = 2  # entries of a group
ROUND_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class ActiveGroup:
    """A group with traffic, and the pod in whose name it is read."""

    namespace: str
    keys: GroupKeys
    port: int
    pod: Manifest
    held: list[str] = field(default_factory=list)  # read, and not acknowledged
    acknowledged: int = 0
    is_left: bool = False  # its pod is ended, and no other reads in its place
    recovered: int = 0  # entries, since then

    @property
    def consumer(self) -> str:
        """As the operator calls the pod."""
        return consumer_of(self.pod)

    def exchange(self) -> list[bytes]:
        """The commands of one round."""
        keys = self.keys
        add = pack("XADD", keys.stream, "*", *BODY)
        who = ("GROUP", keys.group, self.consumer, "COUNT", 100)
        read = pack("XREADGROUP", *who, "STREAMS", keys.stream, ">")
        done = [pack("XACK", keys.stream, keys.group, *self.held)] if self.held else []
        return [*done, *([add] * EACH_TIME), read]

    def note(self, replies: Sequence[Reply]) -> None:
        """Take in the answers to these."""
        if self.held:
            self.acknowledged += int(replies[0])
        self.held = [entry[0].decode() for entry in replies[-1][0][1]] if replies[-1] else []


class Traffic:
    """Runs in a thread from `start` to `stop`; `take_out` ends that of one group."""

    def __init__(self, plane: ControlPlane, fleet: Fleet, ports: Sequence[int], every: int) -> None:
        """Every so many resources one is active. `ports` are those of the fleet's servers."""
        self._servers = {port: RawRedis(port) for port in ports}
        pods = _find_pods(plane, fleet)
        self.groups = [
            ActiveGroup(
                namespace=fleet.namespace(number),
                keys=fleet.keys(number),
                port=ports[number % len(ports)],
                pod=pods[fleet.namespace(number), resource_name(number)],
            )
            for number in range(0, fleet.size, every)
        ]
        self._active = list(self.groups)
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._broken: Exception | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End. Raises what ended it before."""
        self._is_over.set()
        self._thread.join()
        if self._broken is not None:
            raise self._broken

    def take_out(self, namespace: str, count: int) -> list[ActiveGroup]:
        """Leave groups of a namespace alone from now on: their consumers keep what they hold."""
        with self._lock:
            chosen = [one for one in self._active if one.namespace == namespace][:count]
            for one in chosen:
                one.is_left = True
            self._active = [one for one in self._active if not one.is_left]
        return chosen

    def count_premature(self) -> int:
        """Entries that the operator took from consumers whose pods live. After `stop`."""
        found = 0
        for group in self.groups:
            moves = Holdings(self._servers[group.port], group.keys).moves()
            ended = group.consumer if group.is_left else None
            found += sum(move.consumer != ended for move in moves)
        return found

    def count_lost(self) -> int:
        """Entries that were neither acknowledged nor recovered, and wait nowhere. After `stop`."""
        return sum(map(self._count_lost, self.groups))

    def _count_lost(self, group: ActiveGroup) -> int:
        raw, keys = self._servers[group.port], group.keys
        reply = raw.call("XINFO", "STREAM", keys.stream)
        added = int(dict(zip(reply[::2], reply[1::2], strict=True))[b"entries-added"])
        unread = len(raw.call("XRANGE", keys.stream, f"({_last_delivered(raw, keys)}", "+"))
        known = group.acknowledged + group.recovered + count_pending(raw, keys) + unread
        return abs(added - known)

    def _run(self) -> None:
        try:
            while not self._is_over.wait(ROUND_S):
                with self._lock:
                    self._exchange()
        except Exception as error:
            self._broken = error

    def _exchange(self) -> None:
        by_server: dict[int, list[ActiveGroup]] = defaultdict(list)
        for group in self._active:
            by_server[group.port].append(group)
        for port, groups in by_server.items():
            asked = [group.exchange() for group in groups]
            replies = self._servers[port].pipeline([one for part in asked for one in part])
            start = 0
            for group, part in zip(groups, asked, strict=True):
                group.note(replies[start : start + len(part)])
                start += len(part)


def _last_delivered(raw: RawRedis, keys: GroupKeys) -> str:
    reply = raw.call("XINFO", "GROUPS", keys.stream)[0]
    return str(dict(zip(reply[::2], reply[1::2], strict=True))[b"last-delivered-id"].decode())


def _find_pods(plane: ControlPlane, fleet: Fleet) -> dict[tuple[str, str], Manifest]:
    """A running pod of each resource, by the resource's namespace and name."""
    return {
        (namespace, pod["metadata"]["labels"][RESOURCE_LABEL]): pod
        for namespace in fleet.namespaces
        for pod in _list_pods(plane, namespace)
        if is_running(pod) and RESOURCE_LABEL in pod["metadata"].get("labels", {})
    }


def _list_pods(plane: ControlPlane, namespace: str) -> Iterator[Manifest]:
    yield from json.loads(plane.get(f"{POD.path(namespace)}?resourceVersion=0"))["items"]


def await_recovery(group: ActiveGroup, within_s: float) -> float | None:
    """Wait until others can read what the ended pod of a group held: since when (Unix time).

    None: not in time.
    """
    with RawRedis(group.port) as raw:
        holdings, ids = Holdings(raw, group.keys), group.held
        is_free = holdings.await_release(group.consumer, ids, within_s)
        moves = [move for move in holdings.moves() if move.entry_id in set(ids)]
    group.recovered = len(moves)
    if not is_free or len(moves) < len(ids):
        return None
    return max(move.at_ms for move in moves) / 1000
