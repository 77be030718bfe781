"""KEDA's redis-streams scaler and its HorizontalPodAutoscaler.

From KEDA's documentation ("Redis Streams", "ScaledObject specification") and the source it names;
checked against figures of a real KEDA 2.21 on a real control plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.scaling_sim.hpa import SYNC_S, Behavior, Hpa
from benchmarks.scaling_sim.world import TICK_S, World

Trigger = Literal["lagCount", "pendingEntriesCount", "lag + pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaSettings:
    """A ScaledObject, as far as it decides here."""

    name: str
    trigger: Trigger
    target: float | None = None  # None: what the trace wants per replica
    polling_s: float = 30.0  # pollingInterval
    cooldown_s: float = 300.0  # cooldownPeriod
    least: int = 0  # minReplicaCount
    behavior: Behavior | None = None


KEDA_LAG = KedaSettings(name="keda-lag", trigger="lagCount")
# Nothing is pending before a worker reads, so from zero it would never begin.
KEDA_PENDING = KedaSettings(name="keda-pending", trigger="pendingEntriesCount", target=5.0, least=1)
KEDA_TUNED = KedaSettings(
    name="keda-tuned",
    trigger="lag + pending",
    polling_s=5.0,
    cooldown_s=60.0,
    behavior=Behavior(down_window_s=60.0, up_pods=20),
)


class Keda:
    """One ScaledObject at work."""

    def __init__(
        self, settings: KedaSettings, *, per_replica: int, most: int, phase: float
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._hpa = Hpa(
            target=settings.target or float(per_replica),
            most=most,
            behavior=settings.behavior,
        )
        # The two clocks are started by different events, so their phases differ.
        self._next_poll = TICK_S + phase * settings.polling_s
        self._next_sync = TICK_S + (phase * 7 + 0.4) % 1.0 * SYNC_S
        self._last_active: float | None = None

    def act(self, world: World) -> None:
        """Do what is due now."""
        if world.now >= self._next_poll:
            self._next_poll += self._settings.polling_s
            self._poll(world)
        if world.now >= self._next_sync:
            self._next_sync += SYNC_S
            self._sync(world)

    def metric(self, world: World) -> float | None:
        """What the scaler answers; None: an error, and then nothing is scaled."""
        trigger = self._settings.trigger
        if trigger == "lagCount":
            return self._lag(world)
        if not world.group.exists:
            return None  # XPENDING answers NOGROUP
        pending = float(world.pending)
        return pending if trigger == "pendingEntriesCount" else pending + self._lag(world)

    def _lag(self, world: World) -> float:
        """NULL is -1 for the client and 0 for the metric (GenerateMetricInMili); without the group
        it is the length of the stream.
        """
        if not world.group.exists:
            return float(world.group.length)
        return float(max(0, world.group.reported_lag or 0))

    def _poll(self, world: World) -> None:
        """What KEDA itself decides: between none and one.

        pollingInterval: "the interval to check each trigger on". cooldownPeriod: "The period to
        wait after the last trigger reported active before scaling the resource back to 0", from
        any number.
        """
        metric = self.metric(world)
        if metric is None:
            return
        if world.replicas < self._settings.least:
            world.scale(self._settings.least)
        elif metric > 0:  # activationLagCount 0, strictly greater
            self._last_active = world.now
            if world.replicas == 0:
                world.scale(1)
        elif world.replicas > self._settings.least == 0 and self._has_cooled_down(world.now):
            world.scale(0)

    def _has_cooled_down(self, now: float) -> bool:
        # LastActiveTime is kept in whole seconds, cut: the poll at the very end acts.
        return self._last_active is None or self._last_active + self._settings.cooldown_s <= now

    def _sync(self, world: World) -> None:
        """The HPA asks KEDA's metrics server, which asks Redis at that moment (useCachedMetrics is
        off by default).
        """
        world.scale(
            self._hpa.sync(
                self.metric(world),
                replicas=world.replicas,
                pods=len(world.alive),
                now=world.now,
            )
        )
