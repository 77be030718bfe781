"""Which operator replicas are alive, by one Lease each. Nobody leads; the list only ranks writers.

https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pelops.errors import KubernetesError
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import LEASE
from pelops.metrics import MEMBERS
from pelops.policy.turn import rank_of

log = logging.getLogger(__name__)

RENEW_S = 10.0
EARLY_S = 2.0  # replicas often start together, and know nothing of each other
EARLY_BEATS = 6
DURATION = timedelta(seconds=30)
FORGET_AFTER = timedelta(minutes=10)
LABELS = {"app.kubernetes.io/name": "pelops", "app.kubernetes.io/component": "member"}
SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())


class Members:
    """The replicas that renew their Leases, as this one last saw them."""

    def __init__(self, api: KubeApi, *, identity: str, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self.identity = identity
        self.alive: frozenset[str] = frozenset({identity})

    def rank(self, key: str) -> int:
        """This replica's rank for a key: 0 writes first."""
        return rank_of(self.identity, self.alive, key)

    async def run(self) -> None:
        """Renew and look, at first more often, until cancelled; an outage keeps the last list."""
        beats = 0
        while True:
            await self.try_beat()
            beats += 1
            every_s = EARLY_S if beats <= EARLY_BEATS else RENEW_S
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))

    async def try_beat(self) -> None:
        """One turn; a failure is logged, and costs no more than the ranks of the last turn."""
        try:
            await self.beat(datetime.now(UTC))
        except KubernetesError as error:
            log.warning("cannot renew the member Lease: %s", error)

    async def beat(self, now: datetime) -> None:
        """One turn: renew the own Lease, read the others, drop those long dead."""
        await self._api.apply(self._address(self.identity), self._lease(now))
        leases = await self._api.list_all(LEASE, self._namespace, selector=SELECTOR)
        self.alive = alive_members(leases, now) | {self.identity}
        MEMBERS.set(len(self.alive))
        for lease in leases:
            if _renewed(lease) < now - FORGET_AFTER:
                await self._api.delete(self._address(lease["metadata"]["name"]))

    async def leave(self) -> None:
        """Delete the own Lease, so that the others take over at once."""
        try:
            await self._api.delete(self._address(self.identity))
        except KubernetesError as error:
            log.warning("cannot delete the member Lease: %s", error)

    def _address(self, name: str) -> Address:
        return Address(kind=LEASE, namespace=self._namespace, name=name)

    def _lease(self, now: datetime) -> Manifest:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self.identity, "namespace": self._namespace, "labels": LABELS},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": int(DURATION.total_seconds()),
                # A MicroTime without a fraction is refused.
                "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }


def alive_members(leases: list[Manifest], now: datetime) -> frozenset[str]:
    """The holders whose Lease has not run out."""
    return frozenset(
        str(lease["spec"]["holderIdentity"])
        for lease in leases
        if lease.get("spec", {}).get("holderIdentity") and _renewed(lease) >= now - DURATION
    )


def _renewed(lease: dict[str, Any]) -> datetime:
    text = (lease.get("spec") or {}).get("renewTime")
    return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC)
