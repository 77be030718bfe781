"""Reads Secrets and ConfigMaps for pods, and remembers them for when the API server is away."""

import asyncio
import time
from collections.abc import Iterable

from local_cluster.node.api import Api, ApiUnavailable
from local_cluster.node.environment import Reference
from local_cluster.node.fields import KubeObject

# Every pod mounts it and it never changes: not worth a request per pod and look.
_LASTING = ("configmaps", "kube-root-ca.crt")
_LASTING_S = 60.0


class References:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[tuple[str, Reference], tuple[float, KubeObject | None]] = {}

    async def fetch(
        self, namespace: str, wanted: Iterable[Reference]
    ) -> dict[Reference, KubeObject | None]:
        """Each object, None for one that is not there.

        Raises ApiUnavailable for one that cannot be read and was never seen.
        """
        references = list(wanted)
        found = await asyncio.gather(*(self._fetch(namespace, one) for one in references))
        return dict(zip(references, found, strict=True))

    async def _fetch(self, namespace: str, reference: Reference) -> KubeObject | None:
        at, known = self._known.get((namespace, reference), (0.0, None))
        if reference == _LASTING and known is not None and time.monotonic() - at < _LASTING_S:
            return known
        try:
            known = await self._api.find(
                f"/api/v1/namespaces/{namespace}/{reference[0]}/{reference[1]}"
            )
        except ApiUnavailable:
            if known is None:
                raise
        self._known[namespace, reference] = (time.monotonic(), known)
        return known
