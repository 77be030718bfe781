"""The operator is upgraded under load, replica by replica, and goes back, and is upgraded again."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.faults.fleet import REPLICAS, Fleet
from tests.operators import ROOT, Resources, sleeping_template
from tests.versions import apply_version

QUIET: Final = "quiet"  # a resource to which nothing happens: its status has no reason to change
LOOK_S: Final = 0.25
# Each replica that comes or goes may see a change; versions that disagree write all the time.
MOST_WRITES: Final = 3 * REPLICAS


class Upgrade:
    """The way from the former version to this one. Begins with the former one at work."""

    def __init__(self, resources: Resources, former: Path, redis_spec: dict[str, Any]) -> None:
        self._resources = resources
        self._former = former
        self._redis_spec = redis_spec
        self._is_former = True
        self._lock = threading.Lock()
        self.disagreements: list[str] = []
        apply_version(resources.plane, former)

    @property
    def former_environment(self) -> dict[str, str]:
        """Variables of a replica of the former version."""
        return {"PYTHONPATH": str(self._former / "operator")}

    def declare_quiet(self) -> None:
        """Create the resource that is watched."""
        self._resources.apply(
            QUIET,
            {
                "redis": self._redis_spec,
                "stream": f"faults:{QUIET}",
                "replicas": 0,
                "template": sleeping_template(),
            },
        )
        self._resources.await_condition(QUIET, reason="Ready")

    def roll(self, fleet: Fleet, dice: random.Random) -> str:
        """Replace all replicas by those of the other version, side by side for seconds each time.

        The CRDs stay when the former version comes back: they are never downgraded.
        """
        with self._lock:
            if self._is_former:
                apply_version(self._resources.plane, ROOT)
            environment = {} if self._is_former else self.former_environment
            way = "this version" if self._is_former else "the former version"
            with _Watched(self._look, way, self.disagreements):
                for _ in range(REPLICAS):
                    fleet.roll(environment)
                    time.sleep(dice.uniform(1, 5))
            self._is_former = not self._is_former
        return f"to {way}"

    def finish(self, fleet: Fleet) -> None:
        """Leave this version at work."""
        if self._is_former:
            self.roll(fleet, random.Random(0))

    def _look(self) -> dict[str, str]:
        """Versions of what belongs to the quiet resource."""
        namespace, plane = self._resources.namespace, self._resources.plane
        paths = {
            "its status": f"/apis/pelops.dev/v1alpha1/namespaces/{namespace}"
            f"/streamconsumergroups/{QUIET}",
            "its Deployment": f"/apis/apps/v1/namespaces/{namespace}/deployments/{QUIET}-workers",
        }
        return {
            what: json.loads(plane.get(path))["metadata"]["resourceVersion"]
            for what, path in paths.items()
        }


class _Watched:
    """Count how often something is written while a block runs."""

    def __init__(self, look: Callable[[], dict[str, str]], way: str, found: list[str]) -> None:
        self._look, self._way, self._found = look, way, found
        self._is_over = threading.Event()
        self._writes: Counter[str] = Counter()
        self._looks = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if not self._looks:
            self._found.append(f"nobody looked on the way to {self._way}")
        self._found += (
            f"on the way to {self._way}, {what} was written {count} times"
            for what, count in self._writes.items()
            if count > MOST_WRITES
        )

    def _run(self) -> None:
        before: dict[str, str] = {}
        while not self._is_over.wait(LOOK_S):
            try:
                now = self._look()
            except OSError:
                continue
            self._looks += 1
            self._writes.update(what for what in before if now[what] != before[what])
            before = now
