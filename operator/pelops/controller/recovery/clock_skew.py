"""The clocks of nodes beside that of a Redis, measured when an in-place restart is judged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.errors import KubernetesError
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import LEASE
from pelops.policy.recovery.clock_skew import KEPT, ClockSample, decide_allowance, remember_sample

NODE_LEASES: Final = "kube-node-lease"  # the namespace in which every kubelet renews its Lease
FRESH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    renewed: datetime | None  # None: the Lease cannot be read


class NodeClocks:
    """Reads a node's Lease at most once in 5 seconds, and only when asked about the node."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._samples: dict[tuple[str, str], tuple[ClockSample, ...]] = {}  # node and Redis

    async def allowance(
        self, node: str | None, redis_time: datetime, default: timedelta, *, server: str = ""
    ) -> timedelta:
        """By how much a cutoff from this node's clock must be earlier: see `policy/`.

        `redis_time` is Redis' TIME as taken just before, `server` the address of that Redis: two
        of them may have different clocks. The default when there is no node, or its Lease cannot
        be read: the right to `get` it is optional.
        """
        if node is None:
            return default
        began_at = self._clock()
        renewed = await self._read(node)
        read = redis_time + timedelta(seconds=self._clock() - began_at)
        samples = self._samples.get((node, server), ())
        if renewed is not None:
            samples = remember_sample(samples, ClockSample(renewed=renewed, read=read))
            self._samples[node, server] = samples
        return decide_allowance(samples, read, default=default)

    def prune(self) -> None:
        """Forget nodes that nobody asked about for long."""
        oldest = self._clock() - KEPT.total_seconds()
        self._looks = {node: look for node, look in self._looks.items() if look.at >= oldest}
        self._samples = {key: kept for key, kept in self._samples.items() if key[0] in self._looks}
        for node in [node for node, turn in self._turns.items() if not turn.locked()]:
            del self._turns[node]

    async def _read(self, node: str) -> datetime | None:
        async with self._turns[node]:
            known = self._looks.get(node)
            if known is not None and self._clock() - known.at < FRESH_S:
                return known.renewed
            renewed = await self._fetch(node)
            self._looks[node] = _Look(self._clock(), renewed)
            return renewed

    async def _fetch(self, node: str) -> datetime | None:
        try:
            lease = await self._api.get(Address(kind=LEASE, namespace=NODE_LEASES, name=node))
        except KubernetesError:
            return None  # forbidden, not there, no answer: the default is for all who cannot look
        return _renew_time(lease)


def _renew_time(lease: Manifest) -> datetime | None:
    text = (lease.get("spec") or {}).get("renewTime")
    return datetime.fromisoformat(text) if text else None
