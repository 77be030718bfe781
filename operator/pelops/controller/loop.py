"""The loops around the reconciler: workers on the queue, and the periodic LIST."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection

from pelops.controller.cache import Cache, Name, ghosts
from pelops.controller.queue import KeyedQueue, is_wanted
from pelops.controller.reconcile import Reconciler
from pelops.errors import KubernetesError, PelopsError
from pelops.kube.client import KubeApi
from pelops.kube.resources import Kind
from pelops.metrics import QUEUE_DEPTH, RECONCILE_SECONDS, RECONCILES, RESOURCES, RESYNC_AGE

log = logging.getLogger(__name__)

WORKERS = 64  # turns mostly wait; one Redis that hangs must not hold up the others
AFTER_ERROR_S = (1.0, 5.0)


class ReconcileLoop:
    """Gives each key from the queue a turn: many at once, one key never twice at once."""

    def __init__(self, reconciler: Reconciler, queue: KeyedQueue[Name], cache: Cache) -> None:
        self._reconciler = reconciler
        self._queue = queue
        self._cache = cache

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while is_wanted():
            name = await self._queue.take()
            again_s = await self._turn(name)
            self._queue.done(name, again_s=again_s)
            QUEUE_DEPTH.set(len(self._queue))
            RESOURCES.set(len(self._cache.resources))

    async def _turn(self, name: Name) -> float | None:
        """One turn, whatever it meets: seconds until the next, or None."""
        key = "/".join(name)
        with RECONCILE_SECONDS.time():
            try:
                again_s = await self._reconciler.reconcile(name)
            except PelopsError as error:
                log.warning("the turn failed: %s", error, extra={"resource": key})
                RECONCILES.labels("failed").inc()
                return random.uniform(*AFTER_ERROR_S)
            except Exception:
                # A mistake of ours in one resource must not end the turns of all others.
                log.exception("the turn broke", extra={"resource": key})
                RECONCILES.labels("broken").inc()
                return random.uniform(*AFTER_ERROR_S) * 6
        RECONCILES.labels("done").inc()
        return again_s


class Resync:
    """Compares the cache with a full LIST: a cut watch loses deletions and never tells."""

    def __init__(
        self, api: KubeApi, cache: Cache, queue: KeyedQueue[Name], namespaces: Collection[str]
    ) -> None:
        self._api = api
        self._cache = cache
        self._queue = queue
        self._namespaces = tuple(namespaces) or (None,)

    async def run(self, kinds: Collection[Kind], *, every_s: float) -> None:
        """Resync each kind now and then, until cancelled; an outage keeps the last cache."""
        while True:
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))
            for kind in kinds:
                try:
                    await self.resync(kind)
                except KubernetesError as error:
                    log.warning("cannot list %s: %s", kind.plural, error)

    async def resync(self, kind: Kind) -> None:
        """One LIST of one kind: take in what is new, drop what is gone. Raises KubernetesError."""
        before = self._cache.names(kind)
        alive: set[str] = set()
        concerned: set[Name] = set()
        for namespace in self._namespaces if kind.namespaced else (None,):
            # Page by page: thousands of whole objects at once would stay in the process's memory.
            async for page in self._api.list_pages(kind, namespace):
                alive.update(item["metadata"]["uid"] for item in page)
                news = (item for item in page if not self._cache.knows(kind, item))
                concerned.update(*(self._cache.put(kind, item) for item in news))
        for name, uid in ghosts(before, alive):
            log.info("%s %s is gone and no event said so", kind.kind, "/".join(name))
            concerned |= self._cache.remove(kind, name, uid)
        for name in concerned:
            self._queue.add(name)
        RESYNC_AGE.labels(kind.plural).set(time.time())
