"""The Pod Security levels of the namespaces whose resources have pod templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pelops.controller.runtime.cache import Recent
from pelops.errors import Forbidden, KubernetesUnavailable, NotFound
from pelops.kube.client import NAMESPACE, Address, KubeApi
from pelops.kube.pod_security import PodSecurity, level_of

MAX_AGE_S: Final = 60.0
REMEMBERED: Final = 10_000


class NamespaceLevels:
    """Levels as read within the last minute."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._known: Recent[str, tuple[float, PodSecurity]] = Recent(REMEMBERED)

    async def level(self, namespace: str) -> PodSecurity:
        """The level that a namespace enforces; restricted when it says nothing or may not be read.

        Raises:
            KubernetesUnavailable: the API server does not answer, and the level was not known.
        """
        known, now = self._known.get(namespace), self._clock()
        if known is not None and now - known[0] < MAX_AGE_S:
            return known[1]
        level = PodSecurity.RESTRICTED
        try:
            level = level_of(await self._api.get(_address(namespace)))
        except (Forbidden, NotFound):
            pass
        except KubernetesUnavailable:
            if known is None:
                raise
            level = known[1]
        self._known[namespace] = (now, level)
        return level


def _address(namespace: str) -> Address:
    return Address(kind=NAMESPACE, namespace=None, name=namespace)
