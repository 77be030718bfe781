"""The loops around the reconciler: workers on the queue, and the periodic LIST."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection
from typing import Protocol

from pelops.controller.cache import ghosts
from pelops.controller.queue import KeyedQueue, is_wanted
from pelops.controller.versions import Name
from pelops.errors import KubernetesError, PelopsError
from pelops.kube.client import KubeApi, Manifest
from pelops.kube.resources import Kind
from pelops.metrics import RECONCILE_SECONDS, RECONCILES, RESYNC_AGE

log = logging.getLogger(__name__)

WORKERS = 64  # turns mostly wait; one Redis that hangs must not hold up the others
AFTER_ERROR_S = (1.0, 5.0)


class Reconciles(Protocol):
    """Takes turns for the resources of one kind."""

    async def reconcile(self, name: Name) -> float | None:
        """One turn: seconds until the next, or None when the resource is gone."""


class Store(Protocol):
    """What is known of objects, and who is concerned by them."""

    def put(self, kind: Kind, manifest: Manifest) -> set[Name]: ...
    def remove(self, kind: Kind, name: Name, uid: str | None = None) -> set[Name]: ...
    def knows(self, kind: Kind, manifest: Manifest) -> bool: ...
    def names(self, kind: Kind) -> dict[Name, str]: ...


class ReconcileLoop:
    """Gives each key from the queue a turn: many at once, one key never twice at once."""

    def __init__(
        self,
        reconciler: Reconciles,
        queue: KeyedQueue[Name],
        *,
        measure: Callable[[], None] = lambda: None,
        workers: int = WORKERS,
    ) -> None:
        """`measure` is called after each turn."""
        self._reconciler = reconciler
        self._queue = queue
        self._measure = measure
        self._workers = workers

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while is_wanted():
            name = await self._queue.take()
            again_s = await self._turn(name)
            self._queue.done(name, again_s=again_s)
            self._measure()

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
        self, api: KubeApi, cache: Store, queue: KeyedQueue[Name], namespaces: Collection[str]
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
