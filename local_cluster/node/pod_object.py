"""A pod's object at the API server: the newest version seen, its status, its removal."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from local_cluster.node.api import Api, ApiError, ApiUnavailable
from local_cluster.node.fields import KubeObject
from local_cluster.node.pod_status import PodState, build_status, decide_phase, is_reported

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_FINAL = {"Succeeded", "Failed"}
_DEFAULT_GRACE_S = 30


class PodObject:
    """Every write names the pod's uid: it never changes a later pod with the same name."""

    def __init__(self, api: Api, pod: KubeObject) -> None:
        self._api = api
        self.newest = pod
        self.vanished = False
        self.uid = str(pod["metadata"]["uid"])
        self.namespace = str(pod["metadata"]["namespace"])
        self.name = str(pod["metadata"]["name"])
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def spec(self) -> KubeObject:
        spec: KubeObject = self.newest["spec"]
        return spec

    @property
    def status(self) -> KubeObject:
        return self.newest.get("status") or {}

    @property
    def is_finished(self) -> bool:
        """Whether its phase is a last one, which nothing changes any more."""
        return self.status.get("phase") in _FINAL

    @property
    def is_deleted(self) -> bool:
        return bool(self.newest["metadata"].get("deletionTimestamp"))

    @property
    def usual_grace_s(self) -> float:
        """The grace that the spec asks for."""
        return float(max(self.spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S), 1))

    @property
    def grace_s(self) -> float:
        """The grace of this deletion; of a forced one the spec's, as a kubelet has it."""
        return float(
            self.newest["metadata"].get("deletionGracePeriodSeconds") or self.usual_grace_s
        )

    def observe(self, pod: KubeObject) -> bool:
        """Take a version of the object; False for one that is older than the newest seen."""
        version = int(pod["metadata"]["resourceVersion"])
        if version < int(self.newest["metadata"]["resourceVersion"]):
            return False
        self.newest = pod
        return True

    async def report(self, state: Callable[[], PodState]) -> None:
        """Write the status unless the API server has it; waits for an answer.

        `state` is called for each attempt: a late answer must not bring old news.
        """
        await self._until_answered(lambda: self._report(state()))

    async def _report(self, state: PodState) -> None:
        status = build_status(self.newest, state, datetime.now(UTC))
        if is_reported(status, self.status):
            return
        if self.is_finished and self.status["phase"] != decide_phase(state):
            return
        # Lists of addresses are merged by address: a new one must not join the old one.
        replaced = {key: [*status[key], {"$patch": "replace"}] for key in ("podIPs", "hostIPs")}
        body = {"metadata": {"uid": self.uid}, "status": status | replaced}
        self.observe(await self._api.patch(f"{self._path}/status", body))

    async def delete(self) -> None:
        """Remove the object at once; waits for an answer."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        await self._until_answered(lambda: self._remove(body))

    async def _remove(self, body: KubeObject) -> None:
        await self._api.delete(self._path, body)

    async def _until_answered(self, act: Callable[[], Awaitable[None]]) -> None:
        """Repeat while there is no answer; a refusal is one, too."""
        while not self.vanished:
            try:
                await act()
            except ApiError as error:
                if error.status not in {404, 409}:
                    log.warning("pod %s/%s: %s", self.namespace, self.name, error)
            except ApiUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            return
