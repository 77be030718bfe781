"""A node's reports of one pod reach the API server in their order, as a kubelet's do."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from local_cluster.node.addresses import PodAddresses
from local_cluster.node.api import Api, Endpoint
from local_cluster.node.pod import Pod
from local_cluster.node.references import References
from local_cluster.node.sandbox import Host
from local_cluster.node.settings import NodeSettings

SLOW_S = 0.5


class SlowServer:
    """An API server with one pod, which is slow with the first report of that pod.

    As a real one it carries out what it was sent, whether or not the client waits for the answer.
    """

    def __init__(self) -> None:
        self.pod: dict[str, Any] = {
            "metadata": {"name": "one", "namespace": "test", "uid": "u", "resourceVersion": "1"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "command": ["sleep", "1000"]}],
            },
        }
        self.is_reported = asyncio.Event()
        self.is_overtaken = asyncio.Event()
        self.slow: asyncio.Task[web.Response] | None = None
        self.removed: dict[str, Any] | None = None

    def app(self) -> web.Application:
        app = web.Application()
        path = "/api/v1/namespaces/test/pods/one"
        app.router.add_patch(f"{path}/status", self._patch)
        app.router.add_delete(path, self._delete)
        return app

    async def _patch(self, request: web.Request) -> web.Response:
        status = (await request.json())["status"]
        if not self.is_reported.is_set():
            self.is_reported.set()
            self.slow = asyncio.create_task(self._take_slowly(status))
            return await asyncio.shield(self.slow)
        answer = self._take(status)
        self.is_overtaken.set()
        assert self.slow is not None
        await self.slow
        return answer

    async def _take_slowly(self, status: dict[str, Any]) -> web.Response:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.is_overtaken.wait(), SLOW_S)
        return self._take(status)

    def _take(self, status: dict[str, Any]) -> web.Response:
        version = str(int(self.pod["metadata"]["resourceVersion"]) + 1)
        self.pod["metadata"]["resourceVersion"] = version
        self.pod["status"] = status
        return web.json_response(self.pod)

    async def _delete(self, request: web.Request) -> web.Response:
        self.removed = copy.deepcopy(self.pod)
        return web.json_response(self.pod)


@pytest.fixture
async def server() -> AsyncIterator[tuple[SlowServer, Api]]:
    slow = SlowServer()
    running = TestServer(slow.app())
    await running.start_server()
    url = f"http://127.0.0.1:{running.port}"
    api = Api(Endpoint(url=url, host="127.0.0.1", port=running.port or 0, tls=None))
    yield slow, api
    await api.close()
    await running.close()


async def test_a_slow_report_never_overtakes_the_last_one(
    server: tuple[SlowServer, Api], tmp_path: Path
) -> None:
    slow, api = server
    host = Host(
        settings=NodeSettings(name="reports", state=tmp_path),
        api=api,
        references=References(api),
        addresses=PodAddresses("reports"),
        allocatable={},
    )
    pod = Pod(host, copy.deepcopy(slow.pod))
    running = asyncio.create_task(pod.run())
    await slow.is_reported.wait()
    deleted = copy.deepcopy(slow.pod)
    deleted["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "2"}
    slow.pod["metadata"]["resourceVersion"] = "2"
    pod.observe(deleted)
    await running
    assert slow.removed is not None
    assert slow.removed["status"]["phase"] == "Failed"
