"""All kinds of one replica: they are listed, watched, and reconciled together.

The resources that the cache announces go into the queue of their kind. Required kinds are listed
before the loops begin, and readiness depends on their watches. Optional kinds follow when they can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from pelops.clock import with_jitter
from pelops.controller.runtime.cache import Concern, Name, Resync
from pelops.controller.runtime.kind import Loop, ManagedKind, Services
from pelops.controller.runtime.passes import ReconcileLoop
from pelops.controller.runtime.watch import Operator, Watch
from pelops.errors import Forbidden, KubernetesError, KubernetesUnavailable, NotFound
from pelops.kube.client import Kind

log = logging.getLogger(__name__)

PROBE_S: Final = 10.0  # between two checks whether an optional kind may be listed
LISTS_S: Final = 30.0  # without an answer, until the start is reported as hindered

AnyKind: TypeAlias = ManagedKind[Any, Any, Any]


class Runtime:
    """Lists, watches and reconciles kinds."""

    def __init__(self, services: Services, kinds: Sequence[AnyKind], operator: Operator) -> None:
        """`operator` runs kopf."""
        self._services = services
        self._kinds = kinds
        self._runs_loops = False
        self._resync = Resync(services.api, services.cache, services.settings.namespaces)
        clock = services.clock
        self._watch = Watch(
            services.api, self._resync, services.cache.handle_event, clock, operator
        )
        self._watching: asyncio.Task[None] | None = None
        self._sources = [Source(kind, self._concerns_of(kind), self._resync) for kind in kinds]
        self._passes = {kind.api: ReconcileLoop(kind, services) for kind in kinds}
        for kind in kinds:
            services.cache.listen(kind.api, partial(self._make_due, kind))

    async def prepare(self) -> tuple[Kind, ...]:
        """Begin to watch, and fill the cache: the kinds of objects that are watched from now on.

        Raises KubernetesError; it may be repeated.
        """
        for source in self._sources:
            await source.probe()
        self._follow()
        if self._watching is None:
            watching = self._services.progress.keep_running("watch", self._watch.run)
            self._watching = asyncio.create_task(watching)
            await asyncio.sleep(0)
        await self._watch.await_lists(LISTS_S)
        return self._watch.kinds

    def problem(self) -> str:
        """The watches that are silent and the loops without progress; empty: there are none.

        An optional kind that may not be listed does not count.
        """
        return "; ".join(filter(None, (self._watch.problem(), self._services.progress.problem())))

    def loops(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Everything that runs until cancelled. To be called once, after `prepare`.

        A loop that fails is restarted, and readiness reports it.
        """
        self._runs_loops = True
        keep_running = self._services.progress.keep_running
        loops = (keep_running(name, run) for name, run in self._named_loops().items())
        return self._end_watch(), *loops

    def _named_loops(self) -> Mapping[str, Loop]:
        every_s = self._services.settings.resync_s
        loops: dict[str, Loop] = {
            "resync": partial(self._resync.run, lambda: self._watch.kinds, every_s=every_s)
        }
        for source in self._sources:
            if not source.is_required:
                probe = partial(source.run, self._follow, every_s=min(every_s, PROBE_S))
                loops[f"look at {source.plural}"] = probe
        for kind in self._kinds:
            loops[f"reconcile {kind.api.plural}"] = self._passes[kind.api].run
            loops.update(kind.loops())
        return loops

    async def _end_watch(self) -> None:
        """Wait for the watch, which is cancelled with this."""
        assert self._watching is not None
        await self._watching

    def prune(self) -> None:
        """Drop data that kinds did not use for long."""
        for kind in self._kinds:
            kind.prune()

    def _follow(self) -> None:
        granted = [kind for source in self._sources for kind in source.granted]
        self._watch.follow(list(dict.fromkeys(granted)))

    def _make_due(self, kind: AnyKind, changed: Kind, names: set[Name]) -> None:
        if self._runs_loops:  # they begin with all that is known by then
            self._passes[kind.api].handle_change(changed, names)
            kind.notice(changed, names)

    def _concerns_of(self, kind: AnyKind) -> list[Concern]:
        """The concerns of a kind, except for those that the source of another kind has."""
        cache = self._services.cache
        others = {other.api for other in self._kinds if other is not kind}
        if not kind.is_required:
            required = (other for other in self._kinds if other.is_required)
            others |= {one.kind for other in required for one in cache.concerns_of(other.api)}
        concerns = cache.concerns_of(kind.api)
        return [one for one in concerns if one.kind == kind.api or one.kind not in others]


class Source:
    """The kinds of objects that are listed and watched for one managed kind.

    The operator does not start without those of a required kind. For an optional kind the CRD and
    the rights may be missing, since an upgrade may install the operator before them. Then the other
    kinds are managed, and this one once it can be listed. The replica is ready meanwhile.
    """

    def __init__(self, kind: AnyKind, concerns: Sequence[Concern], resync: Resync) -> None:
        self._kind = kind
        self._concerns = {concern.kind: concern for concern in concerns}
        self._resync = resync
        self._problem = ""
        self.is_required = kind.is_required
        self.granted: Sequence[Kind] = ()  # what may be listed now: all that is needed, or nothing

    @property
    def plural(self) -> str:
        """The kind's."""
        return self._kind.api.plural

    async def probe(self) -> None:
        """Check that each kind may be listed. A missing CRD or right of an optional kind is logged.

        Raises KubernetesError.
        """
        granted = []
        problem = ""
        for concern in self._concerns.values():
            try:
                await self._resync.probe(concern.kind)
                granted.append(concern.kind)
            except (NotFound, Forbidden) as error:
                if concern.is_optional and isinstance(error, Forbidden):
                    log.info("Not watching %s: %s", concern.kind.plural, error)
                    continue
                problem = _explain(concern.kind, error)
                if self.is_required:
                    raise KubernetesUnavailable(problem) from error
                break
        self.granted = () if problem else granted
        self._kind.serve(not problem)
        if problem and problem != self._problem:
            log.warning("Not reconciling any %s: %s", self._kind.api.kind, problem)
        elif self._problem and not problem:
            log.info("Reconciling every %s again", self._kind.api.kind)
        self._problem = problem

    async def run(self, changed: Callable[[], None], *, every_s: float) -> None:
        """Probe periodically. Calls `changed` after each probe; an outage changes nothing."""
        while True:
            await asyncio.sleep(with_jitter(every_s))
            try:
                await self.probe()
            except KubernetesError as error:
                log.warning("Could not list %s: %s", self.plural, error)
            else:
                changed()


def _explain(kind: Kind, error: KubernetesError) -> str:
    if isinstance(error, NotFound):
        return f"the API server does not serve {kind.plural}: install the CRDs of this release"
    return f"install the RBAC rules of this release: {error}"
