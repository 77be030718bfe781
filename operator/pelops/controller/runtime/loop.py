"""The loops around the reconciler: workers on the queue, and the periodic LIST."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection
from typing import Protocol

from pelops.controller.runtime.cache import ghosts
from pelops.controller.runtime.queue import KeyedQueue, is_wanted
from pelops.controller.runtime.versions import Name, name_of
from pelops.errors import KubernetesError, PelopsError
from pelops.kube.client import KubeApi, Manifest
from pelops.kube.resources import Kind
from pelops.metrics import RECONCILE_SECONDS, RECONCILES, RESYNC_AGE, WATCH_LISTS

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
    """Compares the cache with a full LIST, and passes on what differs, deletions included."""

    def __init__(
        self,
        api: KubeApi,
        cache: Store,
        concern: Callable[[Kind, set[Name]], None],
        namespaces: Collection[str],
    ) -> None:
        """`concern` is called with the resources that a difference concerns."""
        self._api = api
        self._cache = cache
        self._concern = concern
        self._namespaces = tuple(namespaces) or (None,)
        self._versions: dict[tuple[Kind, str | None], str] = {}

    def feeds(self, kind: Kind) -> list[str | None]:
        """The namespaces in which a kind is listed and watched; None stands for all."""
        return list(self._namespaces) if kind.namespaced else [None]

    def take_version(self, kind: Kind, namespace: str | None) -> str:
        """The resourceVersion of the last LIST, once; empty when there was none since."""
        return self._versions.pop((kind, namespace), "")

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
        """LIST one kind: take in what is new, drop what is gone. Raises KubernetesError."""
        for namespace in self.feeds(kind):
            version = await self.list_feed(kind, namespace)
            self._versions[kind, namespace] = version
        WATCH_LISTS.labels(kind.plural, "resync").inc()

    async def list_feed(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        page_s: float | None = None,
        on_page: Callable[[], None] = lambda: None,
    ) -> str:
        """LIST one kind in one namespace; the resourceVersion from which a watch continues.

        Each page comes within `page_s`. Raises KubernetesError.
        """
        before = {
            name: uid
            for name, uid in self._cache.names(kind).items()
            if namespace is None or name[0] == namespace
        }
        alive: set[str] = set()
        concerned: set[Name] = set()
        version = ""
        try:
            # Page by page: thousands of whole objects at once would stay in the process's memory.
            async for page in self._api.list_pages(kind, namespace, timeout_s=page_s):
                on_page()
                version = page.version
                for item in page.items:
                    alive.add(item["metadata"]["uid"])
                    if not self._cache.knows(kind, item):
                        concerned |= self._put(kind, item)
            for name, uid in ghosts(before, alive):
                log.info("%s %s is gone and no event said so", kind.kind, "/".join(name))
                concerned |= self._cache.remove(kind, name, uid)
        finally:
            # What was found before a page failed is known from now on, and no later LIST tells it.
            self._concern(kind, concerned)
        RESYNC_AGE.labels(kind.plural).set(time.time())
        return version

    def _put(self, kind: Kind, item: Manifest) -> set[Name]:
        try:
            return self._cache.put(kind, item)
        except Exception:
            # One object that cannot be read must not hide all others of its kind.
            log.exception("cannot read the %s %s", kind.kind, "/".join(name_of(item)))
            return set()
