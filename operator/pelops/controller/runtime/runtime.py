"""All kinds of one replica, run together: listed, watched, and given a pass when they are due.

Whatever the cache says is due goes into the queue of its kind. A kind that is required is listed
before anything begins; readiness follows its watch. The others follow when they can.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from pelops.controller.runtime.cache import Name, Resync
from pelops.controller.runtime.kind import Loop, ManagedKind, Services
from pelops.controller.runtime.passes import ReconcileLoop
from pelops.controller.runtime.watch import Watch
from pelops.errors import Forbidden, KubernetesError, KubernetesUnavailable, NotFound
from pelops.kube.client import Kind

log = logging.getLogger(__name__)

RETRY_S: Final = 30.0

AnyKind: TypeAlias = ManagedKind[Any, Any, Any]


class Runtime:
    """Lists, watches and reconciles kinds."""

    def __init__(self, services: Services, kinds: Sequence[AnyKind]) -> None:
        self._services = services
        self._kinds = kinds
        self._runs_loops = False
        for kind in kinds:
            services.cache.listen(kind.api, partial(self._make_due, kind))
        required = [kind for kind in kinds if kind.is_required]
        needed = list(dict.fromkeys(one for kind in required for one in self._sources_of(kind)))
        self._required = _RequiredSource(services, needed, self._optional_kinds(required))
        self._optional = [
            OptionalSource(
                services, kind, [one for one in self._sources_of(kind) if one not in needed]
            )
            for kind in kinds
            if not kind.is_required
        ]

    async def prepare(self) -> tuple[Kind, ...]:
        """Fill the cache by a first LIST: the kinds of objects that are watched from now on.

        Raises KubernetesError; it may be repeated.
        """
        listed = await self._required.list()
        for source in self._optional:
            await source.look()
        return listed

    def problem(self) -> str:
        """The watches that are silent and the loops without progress; empty: there are none.

        A kind that may not be listed is no problem.
        """
        watches = (self._required.problem(), *(source.problem() for source in self._optional))
        return "; ".join(filter(None, (*watches, self._services.progress.problem())))

    def loops(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Everything that runs until cancelled. To be called once, after `prepare`.

        None of it ends by a failure: what fails is begun anew, and readiness reports it.
        """
        self._runs_loops = True
        keep_running = self._services.progress.keep_running
        return tuple(keep_running(name, run) for name, run in self._named_loops().items())

    def _named_loops(self) -> Mapping[str, Loop]:
        loops: dict[str, Loop] = {"watch": self._required.watch, "resync": self._required.resync}
        for source in self._optional:
            loops[f"resync of {source.plural}"] = source.run
            loops[f"watch of {source.plural}"] = source.watch
        for kind in self._kinds:
            loops[f"reconcile {kind.api.plural}"] = ReconcileLoop(kind, self._services).run
            loops.update(kind.loops())
        return loops

    def tidy(self) -> None:
        """Drop what kinds did not use for long."""
        for kind in self._kinds:
            kind.tidy()

    def _make_due(self, kind: AnyKind, changed: Kind, names: set[Name]) -> None:
        for name in names:
            kind.queue.add(name)
        if self._runs_loops:
            kind.heed(changed, names)

    def _sources_of(self, kind: AnyKind) -> list[Kind]:
        """The objects that concern a kind, but for other kinds of ours: these list themselves."""
        others = {other.api for other in self._kinds if other is not kind}
        concerns = self._services.cache.concerns_of(kind.api)
        return list(dict.fromkeys(one.kind for one in concerns if one.kind not in others))

    def _optional_kinds(self, kinds: Sequence[AnyKind]) -> frozenset[Kind]:
        return frozenset(
            concern.kind
            for kind in kinds
            for concern in self._services.cache.concerns_of(kind.api)
            if concern.is_optional
        )


class _RequiredSource:
    """The objects without which the operator does not start."""

    def __init__(
        self, services: Services, kinds: Sequence[Kind], optional: frozenset[Kind]
    ) -> None:
        self._kinds = kinds
        self._optional = optional
        self._every_s = services.settings.resync_s
        self._resync = Resync(services.api, services.cache, services.settings.namespaces)
        self._watch = Watch(services.api, self._resync, services.cache.hear, services.clock)
        self._listed: tuple[Kind, ...] = ()

    async def list(self) -> tuple[Kind, ...]:
        """LIST each kind: those that may be read."""
        listed = []
        for kind in self._kinds:
            try:
                await self._resync.resync(kind)
            except NotFound as error:
                raise KubernetesUnavailable(
                    f"the API server does not serve {kind.plural}: install the CRDs of Pelops first"
                ) from error
            except Forbidden as error:
                if kind not in self._optional:
                    raise
                log.info("Not watching %s: %s", kind.plural, error)
                continue
            listed.append(kind)
        self._listed = tuple(listed)
        return self._listed

    def problem(self) -> str:
        return self._watch.problem()

    async def watch(self) -> None:
        await self._watch.run(self._listed)

    async def resync(self) -> None:
        await self._resync.run(self._listed, every_s=self._every_s)


class OptionalSource:
    """What a kind needs that may come later than the operator: its CRD, and rights.

    An upgrade may bring a new operator before new CRDs and rights. All else is looked after all the
    same; the kind follows once it can. It is listed now and then, and watched by a watch of its
    own: that it is refused is no failure of the replica.
    """

    def __init__(self, services: Services, kind: AnyKind, kinds: Sequence[Kind]) -> None:
        """`kinds` are those of the objects that are listed and watched for this kind."""
        self._kind = kind
        self._kinds = kinds
        self._every_s = services.settings.resync_s
        self._resync = Resync(services.api, services.cache, services.settings.namespaces)
        self._watch = Watch(
            services.api,
            self._resync,
            services.cache.hear,
            services.clock,
            refused=lambda _: self._doubted.set(),
        )
        self._granted = asyncio.Event()
        self._doubted = asyncio.Event()
        self._reported: str | None = None  # the last problem; empty: none

    @property
    def plural(self) -> str:
        """The kind's."""
        return self._kind.api.plural

    def problem(self) -> str:
        """The watches that are silent; empty also while the kind may not be listed."""
        return self._watch.problem() if self._granted.is_set() else ""

    async def look(self) -> None:
        """One LIST of each kind; a missing CRD or right is reported. Raises any other error."""
        self._report(await self._find_problem())

    async def run(self) -> None:
        """List now and then, sooner after a refused watch; an outage changes nothing."""
        while True:
            await self._wait()
            try:
                await self.look()
            except KubernetesError as error:
                log.warning("Could not list %s: %s", self._kind.api.plural, error)

    async def watch(self) -> None:
        """Watch from the time on when everything may be listed."""
        await self._granted.wait()
        await self._watch.run(self._kinds)

    async def _wait(self) -> None:
        jitter = random.uniform(0.8, 1.2)
        if self._granted.is_set():
            self._doubted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s * jitter):
                    await self._doubted.wait()
            if not self._doubted.is_set():
                return
        # An API server that has just begun refuses what it allows seconds later.
        await asyncio.sleep(min(self._every_s, RETRY_S) * jitter)

    async def _find_problem(self) -> str:
        for kind in self._kinds:
            try:
                await self._resync.resync(kind)
            except (NotFound, Forbidden) as error:
                return _explain(kind, error)
        return ""

    def _report(self, problem: str) -> None:
        self._kind.serve(not problem)
        if problem:
            self._granted.clear()
        else:
            self._granted.set()
        if problem == self._reported:
            return
        if problem:
            log.warning("Not reconciling any %s: %s", self._kind.api.kind, problem)
        elif self._reported:
            log.info("Reconciling every %s again", self._kind.api.kind)
        self._reported = problem


def _explain(kind: Kind, error: KubernetesError) -> str:
    if isinstance(error, NotFound):
        return f"the API server does not serve {kind.plural}: install the CRDs of this release"
    return f"install the RBAC rules of this release: {error}"
