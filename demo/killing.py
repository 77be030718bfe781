"""Kills workers in mid-work, and knows exactly what they held.

A victim is stopped (SIGSTOP) first: what it holds then it holds when it dies.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from demo.following import now_ms
from demo.playground import Playground
from demo.recovery import Held, Victim
from demo.store import Store
from demo.workers import SECOND_MS, History, Worker
from local_cluster.processes import read_stat

PATIENCE_S = 30.0
LOOK_S = 0.01
SETTLE_S = 0.02  # what it sent before it was stopped has reached Redis by then


class NobodyAtWork(Exception):
    """No worker could be caught with entries in its hands; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A stopped worker that holds entries."""

    worker: Worker
    pid: int
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catcher:
    """Catches workers of one team."""

    store: Store
    observe: Callable[[], History]  # what the API server reports of the workers

    def catch(self, count: int) -> list[Caught]:
        """So many workers that have done some entries and hold others, stopped.

        Raises NobodyAtWork.
        """
        caught: dict[str, Caught] = {}
        until = time.monotonic() + PATIENCE_S
        while len(caught) < count:
            if time.monotonic() > until or self.store.is_drained():
                raise NobodyAtWork(
                    "the work finished before a worker could be killed: increase --files"
                )
            time.sleep(LOOK_S)
            free = [one for one in self._find_at_work() if one.consumer not in caught]
            one = next(filter(None, map(self._stop, free)), None)
            if one is not None:
                caught[one.worker.consumer] = one
        return list(caught.values())

    def _find_at_work(self) -> list[Worker]:
        begun = {effect.consumer for effect in self.store.read_effects()}
        return [one for one in self.observe().running.values() if one.consumer in begun]

    def _stop(self, worker: Worker) -> Caught | None:
        """Stop it if it holds entries; else let it go on."""
        pid, started = _read_process(worker.process)
        if not self.store.read_held(worker.consumer) or read_stat(pid)[1] != started:
            return None
        os.kill(pid, signal.SIGSTOP)
        held = self._settle(worker.consumer)
        if held and read_stat(pid) == ("T", started):
            return Caught(worker=worker, pid=pid, held=held)
        os.kill(pid, signal.SIGCONT)
        return None

    def _settle(self, consumer: str) -> tuple[Held, ...]:
        """What it holds when all that it had sent has arrived."""
        seen = self._readings(consumer)
        before = next(seen)
        for held in seen:
            if {one.entry_id for one in held} == {one.entry_id for one in before}:
                return held
            before = held
        raise AssertionError

    def _readings(self, consumer: str) -> Iterator[tuple[Held, ...]]:
        while True:
            time.sleep(SETTLE_S)
            yield self.store.read_held(consumer)


def delete_pods(cluster: Playground, namespace: str, them: Sequence[Caught]) -> list[Victim]:
    """Delete their pods. They cannot end in order, so their node kills them after a second."""
    killed_ms = now_ms()
    pods = [caught.worker.pod for caught in them]
    cluster.kubectl("delete", "pod", *pods, "-n", namespace, "--now", "--wait=false")
    how = "kubectl delete pod --now"
    return [_victim(caught, how, killed_ms, counts=False) for caught in them]


def kill_processes(them: Sequence[Caught]) -> list[Victim]:
    """Kill their processes alone: the containers are started again in the same pods.

    Kubernetes reports the new start in whole seconds: an entry delivered within that second could
    be the new process's. So the kill waits for the next second.
    """
    newest = max(held.delivered_ms for caught in them for held in caught.held)
    time.sleep(max(0.0, (newest // SECOND_MS + 1) * SECOND_MS - now_ms()) / 1000)
    killed_ms = now_ms()
    for caught in them:
        os.kill(caught.pid, signal.SIGKILL)
    return [
        _victim(caught, f"SIGKILL of process {caught.pid}", killed_ms, counts=True)
        for caught in them
    ]


def _victim(caught: Caught, how: str, killed_ms: int, *, counts: bool) -> Victim:
    return Victim(
        pod=caught.worker.pod,
        consumer=caught.worker.consumer,
        process=caught.worker.process,
        how=how,
        held=caught.held,
        killed_ms=killed_ms,
        counts=counts,
    )


def _read_process(name: str) -> tuple[int, int]:
    """Pid and start of a process by the name that the node gives it: process://PID-START."""
    pid, _, started = name.rpartition("/")[2].partition("-")
    return int(pid), int(started)
