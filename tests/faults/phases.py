"""Which faults come together, in which world, and how the time is divided among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.faults.faults import FAULTS
from tests.faults.groups_under_fault import BOOTED, MIXED, POISONED, USUAL, GroupUnderFault
from tests.faults.reusing import NAMED
from tests.faults.scene import Setting

# Set-up and drain of a phase, as they usually last.
OVERHEAD_S = 20.0
BUSY_OVERHEAD_S = 32.0  # where workers crash by themselves
SHORTEST_S = 12.0
DRAIN_S = 60.0
LONG_S = 400.0  # of `all`: from then on there is time for every kind of server
SKEW_S = 30.0

# How often, in seconds, each fault comes on average.
WORKERS_DIE = {"sigkill": 3.0}  # without a death nothing is to be recovered
MANY = {
    "sigkill": 3.0,
    "sigstop": 6.0,
    "restart": 5.0,
    "delete": 5.0,
    "offers": 10.0,
    "operator": 8.0,
    "redis": 12.0,
    "network": 9.0,
    "apiserver": 14.0,
    "rights": 30.0,
    "watch": 14.0,
    "group": 12.0,
}
BY_HAND = ("group", "flush", "destroy", "trim", "vanish", "delconsumer", "strategy")
# All that one server can meet, and time between for operators to live and to recover something.
ONE_SERVER = {
    "sigkill": 2.5,
    "sigstop": 6.0,
    "restart": 4.0,
    "delete": 5.0,
    "offers": 15.0,
    "operator": 20.0,
    "skew": 30.0,
    "redis": 25.0,
    "network": 15.0,
    "apiserver": 30.0,
    "rights": 60.0,
    "watch": 30.0,
    "group": 15.0,
    "flush": 100.0,
    "destroy": 25.0,
    "trim": 20.0,
    "vanish": 40.0,
    "delconsumer": 15.0,
    "strategy": 20.0,
    "redrive": 25.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A world, and what happens in it how often."""

    setting: Setting
    every_s: Mapping[str, float]
    weight: float = 1
    overhead_s: float = OVERHEAD_S
    seconds: float = 0  # of faults, set-up and drain aside
    drain_s: float = DRAIN_S  # of draining without progress, until it is given up

    @property
    def about(self) -> str:
        """What it is, in a line."""
        skew_s, topology = self.setting.node_skew_s, self.setting.topology
        skew = f", the node's clock {skew_s:+g} s" if skew_s else ""
        faults = ", ".join(self.every_s) or "nothing but poison"
        return f"{self.setting.name} ({topology}{skew}), {self.seconds:.0f} s of {faults}"


NAMES = (*FAULTS, "poison", "mixed", "all")


def plan_phases(fault: str, *, seconds: float, seed: int) -> list[Phase]:
    """The phases of a run. The same arguments, the same phases."""
    phases = _choose(fault, seconds=seconds, seed=seed)
    total = sum(phase.weight for phase in phases)
    left_s = seconds - sum(phase.overhead_s for phase in phases)
    return [
        replace(
            phase,
            seconds=max(SHORTEST_S, left_s * phase.weight / total),
            setting=replace(phase.setting, seed=seed),
        )
        for phase in phases
    ]


def _choose(fault: str, *, seconds: float, seed: int) -> list[Phase]:
    if fault == "all":
        return _all() if seconds >= LONG_S else _all_in_short(seed)
    if fault == "mixed":
        return [_mixed()]
    if fault == "poison":
        return [_poison()]
    if fault == "skew":
        return list(_skew())
    if fault == "names":
        return [_names()]
    if fault == "redis":
        return [_alone("redis", fsync=fsync) for fsync in ("everysec", "always")]
    return [_alone(fault)]


def _all() -> list[Phase]:
    """Each fault on each kind of server, and poison where nothing else ends workers."""
    return [
        replace(_mixed(), weight=3),
        _together("by-hand", BY_HAND, every=6),
        _alone("redrive"),
        *_skew(),
        *_others(),
        _names(),
        _poison(),
    ]


def _all_in_short(seed: int) -> list[Phase]:
    """All that one server can meet, with a node whose clock is wrong; then one other kind."""
    ahead_s = SKEW_S if seed % 2 else -SKEW_S
    setting = _setting(
        "one-server",
        lanes=BOOTED,
        node_skew_s=ahead_s,
        operator_skews_s=(-ahead_s, 0.0, ahead_s),
    )
    one_server = Phase(setting=setting, every_s=ONE_SERVER, weight=3, overhead_s=BUSY_OVERHEAD_S)
    others = _others()
    return [one_server, others[seed % len(others)]]


def _others() -> tuple[Phase, ...]:
    return (
        _together("twins", ("twins", "redis"), every=6, fsync="always", twins=True),
        _together("sentinel", ("failover", "lag", "operator"), topology="sentinel", every=10),
        _together("cluster", ("migration", "operator", "restart"), topology="cluster", every=5),
    )


def _mixed() -> Phase:
    setting = Setting(name="mixed", lanes=MIXED, allowed_skew_s=0)
    return Phase(setting=setting, every_s=MANY, overhead_s=BUSY_OVERHEAD_S)


def _names() -> Phase:
    setting = _setting("names", lanes=NAMED)
    return Phase(setting=setting, every_s={"names": FAULTS["names"].every_s})


def _poison() -> Phase:
    return Phase(setting=Setting(name="poison", lanes=POISONED, allowed_skew_s=0), every_s={})


def _skew() -> tuple[Phase, Phase]:
    """Nodes ahead of Redis, and behind it, with operators anywhere.

    Clocks are wrong only beside each other, so Redis' own, which decides, may stay right.
    """
    anywhere = (SKEW_S, 0.0, -SKEW_S)
    ahead = _setting("skew-ahead", node_skew_s=SKEW_S, operator_skews_s=anywhere)
    behind = _setting("skew-behind", node_skew_s=-SKEW_S, operator_skews_s=anywhere[::-1])
    every_s = {"skew": 8.0, "restart": 2.0, "delete": 5.0}
    return Phase(setting=ahead, every_s=every_s), Phase(setting=behind, every_s=every_s)


def _alone(fault: str, *, fsync: str = "everysec") -> Phase:
    topologies = {"failover": "sentinel", "lag": "sentinel", "migration": "cluster"}
    setting = _setting(
        f"{fault}-{fsync}" if fault == "redis" else fault,
        topology=topologies.get(fault, "standalone"),
        fsync=fsync,
        twins=fault == "twins",
        upgrades=fault == "upgrade",
    )
    company = {} if fault in {"sigkill", "restart"} else WORKERS_DIE
    if fault == "upgrade":
        company = {**WORKERS_DIE, "restart": 6.0, "delete": 8.0}
    if fault == "redrive":
        company = {**WORKERS_DIE, "operator": 10.0, "redis": 20.0}
    return Phase(setting=setting, every_s={**company, fault: FAULTS[fault].every_s})


def _together(
    name: str,
    faults: tuple[str, ...],
    *,
    every: float,
    topology: str = "standalone",
    fsync: str = "everysec",
    twins: bool = False,
) -> Phase:
    setting = _setting(name, topology=topology, fsync=fsync, twins=twins)
    return Phase(setting=setting, every_s={**WORKERS_DIE, **dict.fromkeys(faults, every)})


def _setting(
    name: str,
    *,
    lanes: tuple[GroupUnderFault, ...] = USUAL,
    topology: str = "standalone",
    fsync: str = "everysec",
    twins: bool = False,
    upgrades: bool = False,
    node_skew_s: float = 0,
    operator_skews_s: tuple[float, ...] = (0.0,),
) -> Setting:
    return Setting(
        name=name,
        lanes=lanes,
        topology=topology,
        fsync=fsync,
        twins=twins,
        upgrades=upgrades,
        node_skew_s=node_skew_s,
        operator_skews_s=operator_skews_s,
    )
