"""Workers without an operator: processes that only this one starts again when they have ended."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.processes import Process, start_process, wait_until
from tests.faults.building import (
    Ends,
    make_producers,
    measure_offset_of,
    start_redis,
    start_wires,
    worker_urls,
)
from tests.faults.collecting import Findings
from tests.faults.groups_under_fault import GroupUnderFault, Place, worker_command
from tests.faults.scene import Scene, Setting

LOOK_S = 0.2
READY_S = 60.0


@dataclass(kw_only=True)
class Alone(Scene):
    """Redis and workers, and nothing beside."""

    crews: list[Crew] = field(default_factory=list)

    def tend(self) -> None:
        """Nothing: crews replace their workers themselves."""


class Crew:
    """As many workers as a lane has; one that ends is followed by one of the same or a new name."""

    def __init__(self, lane: GroupUnderFault, place: Place, directory: Path, seed: int) -> None:
        self._lane = lane
        self._place = place
        self._log = directory / "workers.log"
        self._dice = random.Random(f"{seed}-crew-{lane.name}")
        self._numbers = itertools.count(1)
        self._members: dict[str, Process] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"crew {lane.name}", daemon=True)

    def start(self) -> None:
        """Start all, and the thread that replaces those that end."""
        for _ in range(self._lane.replicas):
            self._begin(self._new_name())
        self._thread.start()

    def stop(self) -> None:
        """End all at once."""
        self._ends.set()
        self._thread.join()
        for member in self._members.values():
            member.kill()

    def _run(self) -> None:
        while not self._ends.wait(LOOK_S):
            for name, member in list(self._members.items()):
                if not member.is_alive():
                    del self._members[name]
                    # A container that restarts in place, or a pod that is replaced.
                    self._begin(name if self._dice.random() < 0.5 else self._new_name())

    def _new_name(self) -> str:
        return f"{self._lane.name}-{next(self._numbers)}"

    def _begin(self, name: str) -> None:
        command = worker_command(self._lane, self._place)
        self._members[name] = start_process(
            name, command, log=self._log, env=_environment(self._lane, self._place, name)
        )


@contextmanager
def open_alone(setting: Setting, directory: Path) -> Iterator[Alone]:
    """Workers at work, and a producer that has begun; they end with the block."""
    ends: Ends = []
    with ExitStack() as stack:
        stack.callback(lambda: [end() for end in reversed(ends)])
        yield _build(setting, directory, ends)


def _build(setting: Setting, directory: Path, ends: Ends) -> Alone:
    servers = start_redis(setting, ends)
    to_redis = start_wires(setting, servers)
    ends += [proxy.close for proxy in to_redis.values()]
    place = Place(
        topology=setting.topology,
        redis_spec={},
        worker_urls=worker_urls(to_redis),
        history=directory / "history",
        nodes={},
        python_path=setting.worker_path,
    )
    scene = Alone(
        setting=setting,
        servers=servers,
        place=place,
        to_redis=to_redis,
        producers=make_producers(setting, servers),
        findings={lane.name: Findings() for lane in setting.lanes},
        offset_ns=measure_offset_of(servers),
    )
    for lane in setting.lanes:
        scene.connect().xgroup_create(lane.stream, lane.keys.group, id="0", mkstream=True)
        crew = Crew(lane, place, directory, setting.seed)
        scene.crews.append(crew)
        ends.append(crew.stop)
        crew.start()
        _await_workers(scene, lane)
    for producer in scene.producers.values():
        ends.append(producer.stop)
        producer.start()
    return scene


def _await_workers(scene: Scene, lane: GroupUnderFault) -> None:
    wait_until(
        lambda: len(scene.living(lane)) >= lane.replicas,
        timeout_s=READY_S,
        what=f"the workers of {lane.name}",
        every_s=0.1,
    )


def _environment(lane: GroupUnderFault, place: Place, name: str) -> Mapping[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": place.python_path,
        "PELOPS_STREAM": lane.stream,
        "PELOPS_GROUP": lane.keys.group,
        "PELOPS_CONSUMER": name,
        "PELOPS_IDLE_LIMIT_MS": str(lane.timeout_s * 1000),
    }
