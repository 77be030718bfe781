"""Pods ended one after the other, and how soon what they held could be read by others.

Each victim dies twice. First its process is killed and the container restarts in place, then the
pod is deleted and another one takes its place::

    given 1,000 entries ── 3.1 s ──> SIGKILL ── restarts ──> given 1,000 ──> kubectl delete pod
    and 20 more just before the SIGKILL, and 20 right after the API server showed the end of it
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from benchmarks.holdings import Holdings, Move
from benchmarks.pod_watch import Manifest, PodWatch, consumer_of, ends_shown, pid_of
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until

# Kubernetes reports starts in whole seconds, and the operator allows 2 s between clocks. An entry
# delivered later than this before a restart may belong to either process.
RIPE_S = 3.1
FEW = 20
END_TIMEOUT_S = 30.0
RELEASE_TIMEOUT_S = 15.0


@dataclass(slots=True, kw_only=True)
class Victim:
    """A pod that will be ended, and what its consumer was given."""

    uid: str
    consumer: str
    ids: list[str]
    given_at: float


@dataclass(slots=True, kw_only=True)
class Kills:
    """What became of the entries, one number for each kill."""

    latencies_s: list[float] = field(default_factory=list)  # to the last entry; inf: not in time
    unmoved: int = 0
    moved: int = 0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All kills."""

    restarts: Kills = field(default_factory=Kills)
    deletions: Kills = field(default_factory=Kills)
    robbed: int = 0  # entries moved that a live process held
    young: int = 0  # entries delivered too shortly before a restart
    young_moved: int = 0  # of these, moved before the pod was deleted


class Hunt:
    """Ends pods of one namespace. `bystanders` are consumers whose pods live on."""

    def __init__(
        self, plane: ControlPlane, namespace: str, watch: PodWatch, holdings: Holdings
    ) -> None:
        self._plane = plane
        self._namespace = namespace
        self._watch = watch
        self._holdings = holdings
        self._victims: dict[str, Victim] = {}
        self._protected: set[str] = set()  # IDs of what live processes hold
        self.outcome = Outcome()

    def adopt(self, each: int, *, except_for: Collection[str]) -> None:
        """Give entries to every running pod that has none yet."""
        for pod in self._watch.running():
            uid, consumer = pod["metadata"]["uid"], consumer_of(pod)
            if consumer not in except_for and uid not in self._victims:
                ids = self._give(consumer, each)
                self._victims[uid] = Victim(
                    uid=uid, consumer=consumer, ids=ids, given_at=time.monotonic()
                )

    def end_next(self, each: int) -> None:
        """Restart the process of the victim that has waited longest, then delete its pod."""
        victim = next(one for one in self._victims.values() if one.ids)
        time.sleep(max(0.0, victim.given_at + RIPE_S - time.monotonic()))
        self._restart(victim)
        time.sleep(random.uniform(0.0, 0.3))
        victim.ids = self._give(victim.consumer, each)
        self._delete(victim)
        victim.ids = []

    def count_premature_recoveries(
        self, moves: Sequence[Move], bystanders: Collection[str] = ()
    ) -> None:
        """Add what was taken from live processes."""
        robbed = [m for m in moves if m.entry_id in self._protected or m.consumer in bystanders]
        self.outcome.robbed += len(robbed)

    def _restart(self, victim: Victim) -> None:
        young = self._give(victim.consumer, FEW)
        pod = self._await_running(victim)
        number = ends_shown(pod) + 1
        self._protected.difference_update(victim.ids, young)
        os.kill(pid_of(pod), signal.SIGKILL)
        shown = self._watch.await_end(victim.uid, number, END_TIMEOUT_S)
        self._give(victim.consumer, FEW)
        moves = self._settle(victim, shown, self.outcome.restarts)
        self.outcome.young += len(young)
        self.outcome.young_moved += sum(move.entry_id in set(young) for move in moves)

    def _delete(self, victim: Victim) -> None:
        pod = self._await_running(victim)
        number, name = ends_shown(pod) + 1, pod["metadata"]["name"]
        self.count_premature_recoveries(self._holdings.moves())
        self._protected.clear()
        self._protect_others(victim)
        self._plane.kubectl("delete", "pod", name, "-n", self._namespace, "--wait=false")
        shown = self._watch.await_end(victim.uid, number, END_TIMEOUT_S)
        self._settle(victim, shown, self.outcome.deletions)

    def _protect_others(self, victim: Victim) -> None:
        for other in self._victims.values():
            if other is not victim:
                self._protected.update(other.ids)

    def _await_running(self, victim: Victim) -> Manifest:
        def running() -> Manifest | None:
            pods = self._watch.running()
            return next((pod for pod in pods if pod["metadata"]["uid"] == victim.uid), None)

        pod = wait_until(running, timeout_s=END_TIMEOUT_S, what="the victim to run", every_s=0.02)
        assert pod is not None
        return pod

    def _settle(self, victim: Victim, shown: float, kills: Kills) -> list[Move]:
        """Wait until the victim's entries could be read by others, and note how long that took."""
        wanted = set(victim.ids)
        in_time = self._holdings.await_release(victim.consumer, victim.ids, RELEASE_TIMEOUT_S)
        moves = self._holdings.moves()
        self.count_premature_recoveries(moves)
        moved = [move for move in moves if move.entry_id in wanted]
        kills.moved += len(moved)
        kills.unmoved += len(wanted) - len(moved)
        last_ms = max((move.at_ms for move in moved), default=0)
        is_whole = in_time and len(moved) == len(wanted)
        kills.latencies_s.append(last_ms / 1000 - shown if is_whole else float("inf"))
        self._holdings.drain()
        return moves

    def _give(self, consumer: str, count: int) -> list[str]:
        ids = self._holdings.give(consumer, count)
        self._protected.update(ids)
        return ids
