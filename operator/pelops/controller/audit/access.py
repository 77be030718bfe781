"""Whether audits may be listed: their CRD and the rights on them may come later than the operator.

An upgrade may bring a new operator before new CRDs and rights. StreamConsumerGroups are looked
after all the same; audits follow once they can.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Final

from pelops.controller.audit.cache import AUDIT_KINDS
from pelops.controller.runtime.loop import Resync
from pelops.errors import Forbidden, KubernetesError, NotFound
from pelops.kube.resources import Kind
from pelops.metrics import AUDITS_SERVED

log = logging.getLogger(__name__)

RETRY_S: Final = 30.0


class AuditAccess:
    """Lists audits now and then, and says when this begins or ceases to work."""

    def __init__(self, resync: Resync, *, every_s: float) -> None:
        """`every_s` is the time between two LISTs while they work."""
        self.granted = asyncio.Event()
        self._resync = resync
        self._every_s = every_s
        self._doubted = asyncio.Event()
        self._told: str | None = None  # the last problem; empty: none

    async def look(self) -> None:
        """One LIST of each kind; a missing CRD or right is told. Raises any other error."""
        self._tell(await self._find_problem())

    def doubt(self) -> None:
        """The watch of audits was refused: look again soon."""
        self._doubted.set()

    async def run(self) -> None:
        """Look now and then, sooner after a doubt, until cancelled; an outage changes nothing."""
        while True:
            await self._wait()
            try:
                await self.look()
            except KubernetesError as error:
                log.warning("cannot list audits: %s", error)

    async def _wait(self) -> None:
        jitter = random.uniform(0.8, 1.2)
        if self.granted.is_set():
            self._doubted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s * jitter):
                    await self._doubted.wait()
            if not self._doubted.is_set():
                return
        # An API server that has just begun refuses what it allows seconds later.
        await asyncio.sleep(min(self._every_s, RETRY_S) * jitter)

    async def _find_problem(self) -> str:
        for kind in AUDIT_KINDS:
            try:
                await self._resync.resync(kind)
            except (NotFound, Forbidden) as error:
                return _explain(kind, error)
        return ""

    def _tell(self, problem: str) -> None:
        AUDITS_SERVED.set(0 if problem else 1)
        if problem:
            self.granted.clear()
        else:
            self.granted.set()
        if problem == self._told:
            return
        if problem:
            log.warning("StreamAudits are not looked after, all else is: %s", problem)
        elif self._told:
            log.info("StreamAudits are looked after from now on")
        self._told = problem


def _explain(kind: Kind, error: KubernetesError) -> str:
    if isinstance(error, NotFound):
        return f"the API server serves no {kind.plural}: install the CRDs of this release"
    return f"install the rights of this release: {error}"
