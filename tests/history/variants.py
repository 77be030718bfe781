"""Where the SDK's workers are tried: on which server, and with which strategy of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.faults.groups_under_fault import SDK, GroupUnderFault
from tests.faults.phases import Phase
from tests.faults.scene import Setting

WIRES = 3
WORKERS = 6
# Of a run of a minute; a shorter one has them nearer to each other.
EVERY_S = {"kill": 3.5, "stop": 4.0, "overtake": 4.0, "terminate": 5.0, "partition": 3.5}
USUAL_S = 60.0
BLOCKING_PER_S = 0.15  # entries that keep the event loop for longer than the processing timeout
MOST_OFTEN = 0.5  # of these times


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kind of server, with workers, and with or without an operator."""

    version: str
    strategy: str | None = None  # of the operator; None: there is none


VARIANTS: Mapping[str, Variant] = {
    "requeue": Variant(version="8.6", strategy="Requeue"),
    "release": Variant(version="8.6", strategy="Release"),
    "requeue-7.0": Variant(version="7.0", strategy="Requeue"),
    "alone-8.6": Variant(version="8.6"),
    "alone-7.0": Variant(version="7.0"),
    "alone-valkey": Variant(version="valkey"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is tried."""

    entries: int
    seconds: float  # in which they are added, and faults come
    seed: int
    limit_s: int = 3  # the processing timeout
    slow_per_s: float = 2  # entries that take up to two processing timeouts and more
    drain_s: float = 180  # without progress: what came several times runs alone


def plan_variant(name: str, size: Size, *, worker_path: str) -> Phase:
    """The phase of a variant. The same arguments, the same phase."""
    variant = VARIANTS[name]
    lane = GroupUnderFault(
        name="history",
        kind=SDK,
        strategy=variant.strategy or "Requeue",
        timeout_s=size.limit_s,
        replicas=WORKERS,
        prefetch=1000,
        handler_ms=5,
        per_second=size.entries / size.seconds,
        total=size.entries,
        slow_every=int(size.entries / size.seconds / size.slow_per_s),
        slow_s=2.2 * size.limit_s,
        blocking_every=int(size.entries / size.seconds / BLOCKING_PER_S),
        refused_every=size.entries // 40,
        grace_s=10,
        max_retries=8,  # a kill may hit the same entry again and again: it is the cause of none
    )
    setting = Setting(
        name=name,
        lanes=(lane,),
        version=variant.version,
        wires=WIRES,
        reports_hindrances=True,
        fsync="no",  # no server is killed here, and none has to wait for a disk
        worker_path=worker_path,
        seed=size.seed,
    )
    scale = max(min(size.seconds / USUAL_S, 1.0), MOST_OFTEN)
    every_s = {fault: mean_s * scale for fault, mean_s in EVERY_S.items()}
    return Phase(setting=setting, every_s=every_s, seconds=size.seconds, drain_s=size.drain_s)
