"""The operator replicas that take part, by one Lease each. There is no leader, only ranks.

`policy/membership.py` decides when one of them may decide alone. This module has the Leases and the
clock.
https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pelops.controller.runtime.queue import is_wanted
from pelops.domain.records.state import FORMAT_VERSION
from pelops.errors import Conflict, KubernetesError
from pelops.kube.client import LEASE, Address, KubeApi, Manifest
from pelops.metrics import MEMBERS
from pelops.policy.membership import DURATION_S, Membership, SeenLease, rank_of

log = logging.getLogger(__name__)

RENEW_S: Final = 2.0
RETRY_S: Final = 0.5
CHECK_S: Final = 0.5  # between two comparisons of the members
ANSWER_S: Final = 2.5  # timeout of a request, which leaves time for another one
FORGET_AFTER_S: Final = 30.0  # an expired Lease is deleted so long after its last renewal
LABELS: Final = {"app.kubernetes.io/name": "pelops", "app.kubernetes.io/component": "member"}
FORMAT_ANNOTATION: Final = "pelops.dev/state-format"
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipView:
    """The members as one replica knows them."""

    joins: int  # how often this replica joined
    is_admitted: bool  # whether it takes part now
    members: frozenset[str]  # the live ones, including this one


_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def elapsed() -> float:
    """Seconds on a clock that never jumps and does not stop while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Members:
    """The replicas that take part, as this one knows them."""

    def __init__(
        self,
        api: KubeApi,
        *,
        identity: str,
        namespace: str,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        """`api` should not be shared: other requests would delay the renewal of the Lease."""
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._known = Membership(identity=identity)
        self._is_renewed = True
        self.identity = identity

    @property
    def alive(self) -> frozenset[str]:
        """The live members, including this one."""
        return self._known.members(self._clock())

    @property
    def standing(self) -> MembershipView:
        """The state that the ranks depend on: if it is equal, so are the ranks."""
        now, known = self._clock(), self._known
        return MembershipView(
            joins=known.joins, is_admitted=known.is_admitted(now), members=known.members(now)
        )

    def rank(self, key: str) -> int:
        """This replica's rank for a key: 0 writes first. Two may have rank 0 for a moment.

        A replica that is not admitted has one rank more, since the others do not count it.
        """
        now = self._clock()
        rank = rank_of(self.identity, self._known.members(now), key)
        return rank if self._known.is_admitted(now) else rank + 1

    def place(self, key: str) -> int:
        """This replica's rank among the known members, also if it is not admitted."""
        return rank_of(self.identity, self.alive, key)

    def decides(self, key: str) -> bool:
        """Whether this replica alone decides for a key. Must be checked before each write."""
        return self._known.decides(key, self._clock())

    def is_outdated(self) -> bool:
        """Whether another replica writes states of groups in a newer format than this one knows."""
        return self._known.knows_newer(FORMAT_VERSION)

    def left_s(self) -> float:
        """Seconds for which `decides` holds without a renewal: no write may take longer."""
        return max(0.0, self._known.valid_until - self._clock())

    async def run(self) -> None:
        """Renew the Lease and list the others until cancelled."""
        while True:
            began = self._clock()
            is_done = await self.try_renew()
            now = self._clock()
            every_s = (RENEW_S if is_done else RETRY_S) * random.uniform(0.8, 1.0)
            # Not later than the expiry of a Lease: another replica has to take over then.
            at = min(began + every_s, self._known.next_change(now))
            await asyncio.sleep(max(at - now, RETRY_S / 5))

    async def try_renew(self) -> bool:
        """Renew and list once: whether it succeeded. A failure is logged."""
        try:
            await self.renew()
        except KubernetesError as error:
            level = logging.WARNING if self._is_renewed else logging.DEBUG
            log.log(level, "Could not renew the Lease of this replica: %s", error)
            self._is_renewed = False
            return False
        self._is_renewed = True
        return True

    async def renew(self) -> None:
        """Renew the own Lease, list the others, and delete Leases that expired long ago.

        Raises KubernetesError.
        """
        began = self._clock()
        await self._api.apply(self._address(self.identity), self._lease())
        self._known = self._known.renewed(began=began, answered=self._clock())
        began = self._clock()
        leases = await self._api.list_all(LEASE, self._namespace, selector=SELECTOR)
        seen = [one for lease in leases if (one := read_lease(lease)) is not None]
        self._known = self._known.listed(seen, began=began, answered=self._clock())
        MEMBERS.set(len(self.alive))
        for lease in self._known.long_dead(self._clock(), after_s=FORGET_AFTER_S):
            with suppress(Conflict):  # it was renewed since the LIST
                await self._api.delete(self._address(lease.name), version=lease.version)

    async def leave(self) -> None:
        """Delete the own Lease, so that the others take over at once."""
        self._known = Membership(identity=self.identity)
        try:
            await self._api.delete(self._address(self.identity))
        except KubernetesError as error:
            log.warning("Could not delete the Lease of this replica: %s", error)

    def _address(self, name: str) -> Address:
        return Address(kind=LEASE, namespace=self._namespace, name=name)

    def _lease(self) -> Manifest:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self.identity,
                "namespace": self._namespace,
                "labels": LABELS,
                "annotations": {FORMAT_ANNOTATION: str(FORMAT_VERSION)},
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": int(DURATION_S),
                # For people. A MicroTime without a fraction is refused.
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }


async def follow_standing(members: Members) -> AsyncIterator[MembershipView]:
    """The members now, and after each change, until the task is cancelled."""
    standing = None
    while is_wanted():
        if members.standing != standing:
            standing = members.standing
            yield standing
        await asyncio.sleep(CHECK_S)


def read_lease(manifest: dict[str, Any]) -> SeenLease | None:
    """The member that a Lease describes; None if it has no holder."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    if not spec.get("holderIdentity"):
        return None
    written = str((metadata.get("annotations") or {}).get(FORMAT_ANNOTATION, ""))
    return SeenLease(
        name=str(metadata["name"]),
        holder=str(spec["holderIdentity"]),
        version=str(metadata.get("resourceVersion", "")),
        duration_s=float(spec.get("leaseDurationSeconds") or DURATION_S),
        format=int(written) if _NUMBER.fullmatch(written) else 1,
    )
