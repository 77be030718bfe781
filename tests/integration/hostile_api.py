"""An API server of a few kinds that misbehaves on request, in the event loop of the test."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any, Self

from aiohttp import web

from pelops.kube.client import Kind

Object = dict[str, Any]

# Everything that it can do to a request, and to a stream that is open.
REFUSALS = {f"answers {code}": code for code in (401, 403, 404, 410, 429, 500, 503)}
ENDINGS = ("closes at once", "hangs")
STREAMS = (
    *("ends streams at once", "cuts streams", "mutes streams", "writes no JSON"),
    *("cuts a line", "says 410 in the stream", "says 500 in the stream", "forgets a field"),
)
FAULTS = (*REFUSALS, *ENDINGS, *STREAMS, "is slow", "answers a page")
SLOW_S = 0.2
PREFIX = "/clusters/one"  # under which it answers as well, as a proxy for many clusters
STREAM_S = 2.0  # of a stream, however long the client asks for

RESOURCES = {
    "/api/v1": [("pods", "Pod"), ("namespaces", "Namespace")],
    "/apis/pelops.dev/v1alpha1": [("streamconsumergroups", "StreamConsumerGroup")],
}
GROUP = {
    "name": "pelops.dev",
    "versions": [{"version": "v1alpha1"}],
    "preferredVersion": {"version": "v1alpha1"},
}


class HostileApi:
    """Objects with versions, LIST and WATCH. Set `fault` to one of `FAULTS`; empty: none."""

    def __init__(self) -> None:
        self.fault = ""
        self.retry_after = ""
        self.token = ""  # the only one that is good, when there is one
        self.port = 0
        self.requests: Counter[str] = Counter()  # LIST, WATCH, and others by their path
        self.asked_s: defaultdict[str, list[float]] = defaultdict(list)  # when, by the plural
        self._versions = itertools.count(100)
        self._objects: dict[tuple[str, str], Object] = {}
        self._events: list[tuple[int, str, Object]] = []
        self._changed = asyncio.Condition()
        self._ended = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        async with self._changed:
            self._changed.notify_all()
        assert self._runner is not None
        await self._runner.cleanup()

    async def put(self, kind: Kind, name: str, **more: Any) -> None:
        """Add or change an object of the namespace `shop`."""
        version, known = next(self._versions), self._objects.get((kind.plural, name))
        metadata = {
            "name": name,
            "namespace": "shop",
            "uid": known["metadata"]["uid"] if known else f"{name}-{version}",
            "resourceVersion": str(version),
        }
        item = {"kind": kind.kind, "metadata": metadata, **more}
        self._objects[kind.plural, name] = item
        await self._record(version, "MODIFIED" if known else "ADDED", item)

    async def delete(self, kind: Kind, name: str) -> None:
        """Delete an object."""
        version, item = next(self._versions), self._objects.pop((kind.plural, name))
        metadata = {**item["metadata"], "resourceVersion": str(version)}
        await self._record(version, "DELETED", {**item, "metadata": metadata})

    async def set_fault(self, fault: str) -> None:
        """Misbehave from now on, on open streams as well."""
        self.fault = fault
        async with self._changed:
            self._changed.notify_all()

    async def _record(self, version: int, event: str, item: Object) -> None:
        async with self._changed:
            self._events.append((version, event, item))
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        watches = "watch" in request.query
        plural = request.path.rpartition("/")[2]
        self._count(request, plural, "WATCH" if watches else "LIST")
        if self.token and request.headers.get("Authorization", "").lower() != (
            f"bearer {self.token}".lower()
        ):
            return self._refuse(401)
        if self.fault in REFUSALS:
            return self._refuse(REFUSALS[self.fault])
        if self.fault == "closes at once":
            assert request.transport is not None
            request.transport.close()
        elif self.fault == "hangs":
            await self._ended.wait()
        elif self.fault == "is slow":
            await asyncio.sleep(SLOW_S)
        elif self.fault == "answers a page":
            return web.Response(text="<html>", content_type="text/html")
        if watches:
            return await self._watch(request, plural)
        found = _discover(request.path.removeprefix(PREFIX))
        return self._list(request, plural) if found is None else web.json_response(found)

    def _count(self, request: web.Request, plural: str, verb: str) -> None:
        if plural in {"pods", "streamconsumergroups"} and "fieldSelector" not in request.query:
            self.requests[verb] += 1
            self.asked_s[plural].append(asyncio.get_running_loop().time())
        else:
            self.requests[request.path] += 1

    def _refuse(self, code: int) -> web.Response:
        status = {"kind": "Status", "code": code, "message": f"it is a {code}"}
        headers = {"Retry-After": self.retry_after} if self.retry_after else None
        return web.json_response(status, status=code, headers=headers)

    def _list(self, request: web.Request, plural: str) -> web.Response:
        items = [item for (kind, _), item in self._objects.items() if kind == plural]
        if "fieldSelector" in request.query:
            items = []  # the watch asks for an object that does not exist
        version = str(self._events[-1][0] if self._events else 1)
        return web.json_response({"metadata": {"resourceVersion": version}, "items": items})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        sent = int(request.query["resourceVersion"])
        ends_at = asyncio.get_running_loop().time() + min(
            STREAM_S, float(request.query["timeoutSeconds"])
        )
        with suppress(ConnectionError):
            while not self._ended.is_set():
                if self.fault in STREAMS:
                    await self._spoil(stream, request)
                    return stream
                if self.fault == "is slow":
                    await asyncio.sleep(SLOW_S)
                for version, event, item in self._later_than(sent):
                    sent = version
                    if item["kind"].lower() + "s" == plural:
                        await _say(stream, event, item)
                if not await self._changes_before(ends_at, sent):
                    # As the API server does shortly before the end.
                    await _say(stream, "BOOKMARK", {"metadata": {"resourceVersion": str(sent)}})
                    return stream
        return stream

    def _later_than(self, version: int) -> list[tuple[int, str, Object]]:
        return [event for event in self._events if event[0] > version]

    async def _changes_before(self, time: float, version: int) -> bool:
        """Wait until something differs for a stream at this version; False: the time is over."""
        try:
            async with asyncio.timeout_at(time), self._changed:
                if not self._later_than(version):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _spoil(self, stream: web.StreamResponse, request: web.Request) -> None:
        """Do to the stream what was reported, and end it."""
        assert request.transport is not None
        if self.fault == "mutes streams":
            await self._ended.wait()
        elif self.fault == "cuts streams":
            request.transport.abort()
        elif self.fault == "writes no JSON":
            await stream.write(b"<html>\n")
        elif self.fault == "cuts a line":
            await stream.write(b'{"type": "ADDED", "obj')
        elif self.fault == "forgets a field":
            await stream.write(b'{"type": "ADDED", "object": {}}\n')
        elif self.fault != "ends streams at once":
            code = 410 if "410" in self.fault else 500
            await _say(stream, "ERROR", {"code": code, "message": "too old resource version"})


def _discover(path: str) -> Object | None:
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        return {"groups": [GROUP]}
    if path not in RESOURCES:
        return None
    verbs = ["list", "watch"]
    return {
        "resources": [
            {"name": name, "kind": kind, "singularName": "", "namespaced": True, "verbs": verbs}
            for name, kind in RESOURCES[path]
        ]
    }


async def _say(stream: web.StreamResponse, event: str, item: Object) -> None:
    await stream.write(json.dumps({"type": event, "object": item}).encode() + b"\n")
