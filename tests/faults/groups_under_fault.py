"""What runs under the faults: streams with their groups, each with workers of one habit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pelops.domain.naming import GroupKeys, derive_keys
from tests.faults.taking import UNREAD
from tests.operators import ROOT

PROCESSING_TIMEOUT_S = 12
SCAN_INTERVAL_S = 2
MAX_RETRIES = 3
GRACE_S = 4
SLOW_S = 2.5  # what a slow entry takes: less than any processing time-out of plain workers
SDK = "sdk"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUnderFault:
    """One consumer group with its workers and what they are given."""

    name: str
    kind: str  # of its workers
    strategy: str = "Requeue"
    reads_history: bool = False  # its workers do, after a restart
    says_boot: bool = False  # its workers do; those that claim always do
    timeout_s: int = PROCESSING_TIMEOUT_S
    replicas: int = 2
    prefetch: int = 20
    handler_ms: float = 12
    per_second: float = 60
    slow_every: int = 400  # one of so many takes seconds; 0: none
    poison_every: int = 0  # one of so many kills its worker; 0: none
    poison_within: int = 1500  # the first so many: the last of it must be found in time, too
    entries: int | None = None  # all at the beginning, two of them poison; None: as time goes
    total: int | None = None  # so many in all, whatever the time; None: until the time is up
    refused_every: int = 0  # one of so many is given up by its handler; 0: none
    blocking_every: int = 0  # one of so many keeps the event loop of its worker; 0: none
    slow_s: float = SLOW_S  # what a slow one takes, of the SDK at most
    grace_s: int = GRACE_S
    max_retries: int = MAX_RETRIES

    @property
    def stream(self) -> str:
        """The stream's key."""
        return f"faults:{self.name}"

    @property
    def keys(self) -> GroupKeys:
        """Every key of its group."""
        return derive_keys(self.stream, self.name)

    def spec(self, place: Place) -> dict[str, Any]:
        """Of its StreamConsumerGroup."""
        spec: dict[str, Any] = {
            "redis": place.redis_spec,
            "stream": self.stream,
            "replicas": self.replicas,
            "template": {"spec": _pod_spec(self, place)},
            "recovery": {
                "strategy": self.strategy,
                "processingTimeoutSeconds": self.timeout_s,
                "scanPeriodSeconds": SCAN_INTERVAL_S,
                "maxRetries": self.max_retries,
            },
        }
        return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the lanes of one phase are."""

    topology: str
    redis_spec: dict[str, Any]
    worker_urls: tuple[str, ...]
    history: Path
    nodes: Mapping[str, str]  # by lane
    python_path: str = str(ROOT)  # of workers

    def journals(self, lane: GroupUnderFault) -> Path:
        """Where the workers of a lane write."""
        return self.history / lane.name

    def unread(self, lane: GroupUnderFault) -> Path:
        """The file that keeps the workers of a lane from its retry stream while it exists."""
        return Path(f"{self.journals(lane)}{UNREAD}")

    def deafness(self, lane: GroupUnderFault) -> Path:
        """While this file is there, the workers of a lane read no offers."""
        return deafness_of(self.journals(lane))


# One for each way in which entries come back; their workers differ as far as these allow.
USUAL = (
    GroupUnderFault(name="each", kind="plain-each"),
    GroupUnderFault(
        name="ten", kind="plain-ten", strategy="RetryStream", reads_history=True, handler_ms=100
    ),
    GroupUnderFault(
        name="claiming", kind="claiming", strategy="Release", reads_history=True, handler_ms=10
    ),
)
# A worker that reads its own history takes its poison again and again, and refreshes it each time.
# Until it pauses for long, nothing shows that it is the cause. So it gets little of it.
POISON_EVERY = {"each": 900, "ten": 3000, "claiming": 1200}
MIXED = tuple(
    replace(lane, poison_every=POISON_EVERY[lane.name], says_boot=lane.name == "each")
    for lane in USUAL
)
# For a node whose clock is wrong, which the lanes without poison use. Under so many faults, a short
# processing timeout frees entries soon, and a group that went back is not held for long.
BOOTED = tuple(
    replace(lane, timeout_s=8)
    for lane in (
        *(replace(one, poison_every=700, says_boot=True) for one in USUAL if one.name != "ten"),
        *(one for one in USUAL if one.name == "ten"),
        GroupUnderFault(
            name="batch", kind="plain-batch", says_boot=True, poison_every=700, handler_ms=10
        ),
        GroupUnderFault(name="silent", kind="plain-each"),
    )
)
POISONED = tuple(
    GroupUnderFault(
        name=kind,
        kind=kind,
        replicas=3,
        prefetch=500,
        handler_ms=1,
        slow_every=0,
        entries=4000,
        timeout_s=6,
        # Without it, what was given in the second of a crash waits until its time is up.
        says_boot=kind != "plain-each",
    )
    for kind in ("plain-each", "plain-ten", "plain-batch")
)


def deafness_of(journals: Path) -> Path:
    """The file that keeps workers from reading offers, by where they write."""
    return journals.with_name(f"{journals.name}.deaf")


def worker_command(lane: GroupUnderFault, place: Place) -> list[str]:
    """What a worker of this lane is started with."""
    program = "tests.faults.sdk_worker" if lane.kind == SDK else "tests.faults.worker"
    command = [sys.executable, "-m", program, "--history", str(place.journals(lane))]
    command += ["--handler-ms", str(lane.handler_ms), "--prefetch", str(lane.prefetch)]
    command += _sdk_options(lane) if lane.kind == SDK else _plain_options(lane, place)
    if place.topology == "standalone":
        urls = place.worker_urls if lane.kind == SDK else place.worker_urls[:1]
        command += ["--redis-url", *urls]
    return command


def _sdk_options(lane: GroupUnderFault) -> list[str]:
    times = ["--slow-s", str(lane.slow_s), "--blocking-s", str(1.2 * lane.timeout_s)]
    return [*times, "--grace-s", str(lane.grace_s / 2)]


def _plain_options(lane: GroupUnderFault, place: Place) -> list[str]:
    options = ["--kind", lane.kind, "--topology", place.topology]
    if lane.reads_history:
        options.append("--reads-history")
    if lane.says_boot:
        options.append("--says-boot")
    if lane.strategy == "RetryStream":
        options.append("--reads-retry-stream")
    return options


def _pod_spec(lane: GroupUnderFault, place: Place) -> dict[str, Any]:
    return {
        "terminationGracePeriodSeconds": lane.grace_s,
        "nodeSelector": {"kubernetes.io/hostname": place.nodes[lane.name]},
        "containers": [
            {
                "name": "worker",
                "image": "local/worker",
                "command": worker_command(lane, place),
                "env": [{"name": "PYTHONPATH", "value": place.python_path}],
            }
        ],
    }
