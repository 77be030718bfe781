"""An API server that fails on request: a proxy of HTTP before the real one, in a thread.

It acts for the operator's ServiceAccount, whatever the client shows; so no client needs TLS here.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
from aiohttp import web

from local_cluster.plane import ControlPlane
from tests.operators import GROUPS, SERVICE_ACCOUNT

REFUSALS = {str(code): code for code in (401, 403, 410, 429, 500)}
FAULTS = (*REFUSALS, "hangs", "closes at once", "slow")
SLOW_S = 0.4
DROPPED = {"host", "authorization", "connection", "transfer-encoding", "content-length"}


class ApiProxy:
    """Set `fault` to one of `FAULTS`; empty: it passes everything on."""

    def __init__(self, plane: ControlPlane) -> None:
        self.fault = ""
        self.port = 0
        self._plane = plane
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._streams: set[asyncio.Transport] = set()
        self._thread = threading.Thread(target=self._run, name="api-proxy", daemon=True)
        self._thread.start()
        assert self._listening.wait(10)

    def kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for operators behind it."""
        name = "behind-proxy"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        path.write_text(json.dumps(config))
        return path

    @contextmanager
    def failing(self, fault: str, *, cuts: bool) -> Iterator[None]:
        """For the block: every request meets this fault; `cuts` ends what is open, first."""
        self.fault = fault
        if cuts:
            self._loop.call_soon_threadsafe(self._cut)
        try:
            yield
        finally:
            self.fault = ""

    def close(self) -> None:
        """End it with all its connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _cut(self) -> None:
        for transport in self._streams:
            transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._listen())
        self._listening.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(runner.cleanup(), 2))
        self._loop.close()

    async def _listen(self) -> web.AppRunner:
        tls = self._plane.tls
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls), auto_decompress=False
        )
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._streams.add(transport)
        try:
            return await self._fail_or_pass_on(request, transport)
        except (aiohttp.ClientError, OSError):
            transport.abort()  # the API server is not there, or went away amid its answer
            return web.Response(status=502)
        finally:
            self._streams.discard(transport)

    async def _fail_or_pass_on(
        self, request: web.Request, transport: asyncio.Transport
    ) -> web.StreamResponse:
        fault = self.fault
        if fault in REFUSALS:
            status = {"kind": "Status", "code": REFUSALS[fault], "message": f"fault {fault}"}
            headers = {"Retry-After": "1"} if fault == "429" else None
            return web.json_response(status, status=REFUSALS[fault], headers=headers)
        if fault == "closes at once":
            transport.abort()
        while self.fault == "hangs":
            await asyncio.sleep(0.1)
        if fault == "hangs":
            transport.abort()  # never answered
        if fault == "slow":
            await asyncio.sleep(SLOW_S)
        return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in DROPPED]
        headers.append(("Impersonate-User", SERVICE_ACCOUNT))
        headers += [("Impersonate-Group", group) for group in GROUPS]
        async with self._session.request(
            request.method,
            self._plane.url + request.raw_path,
            headers=headers,
            data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as behind:
            kept = {k: v for k, v in behind.headers.items() if k.lower() not in DROPPED}
            answer = web.StreamResponse(status=behind.status, headers=kept)
            await answer.prepare(request)
            async for chunk in behind.content.iter_any():
                if self.fault == "slow":
                    await asyncio.sleep(SLOW_S)
                await answer.write(chunk)
            await answer.write_eof()
            return answer
