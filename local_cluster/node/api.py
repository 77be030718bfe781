"""A small client of the Kubernetes API: dictionaries in and out, one pooled session.

`cut` makes the API server as good as away, for a node that plays dead.
"""

import asyncio
import base64
import json
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import yaml

from local_cluster.node.fields import KubeObject

log = logging.getLogger(__name__)

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
_REQUEST_TIMEOUT_S = 30
_WATCH_S = 300
# Bookmarks come about once a minute: a watch without a byte for longer than two is dead.
_WATCH_SILENCE_S = 150
_RETRY_S = 0.5


class ApiError(Exception):
    """The API server refused: nothing was changed."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status


class ApiUnavailable(Exception):
    """No answer: the request may or may not have had its effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    url: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All objects that exist now; any other was deleted."""

    items: list[KubeObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    kind: str  # ADDED, MODIFIED or DELETED
    item: KubeObject


def read_kubeconfig(path: Path) -> Endpoint:
    """The API server and the credentials of the kubeconfig's current context."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    parts = urlsplit(cluster["server"])
    secure = parts.scheme == "https"
    return Endpoint(
        url=cluster["server"].rstrip("/"),
        host=parts.hostname or "",
        port=parts.port or (443 if secure else 80),
        tls=_build_tls(cluster, user, path.parent) if secure else None,
        token=user.get("token"),
    )


def _named(items: list[KubeObject], name: str) -> KubeObject:
    return next(item for item in items if item["name"] == name)


def _build_tls(cluster: KubeObject, user: KubeObject, base: Path) -> ssl.SSLContext:
    authority = _material(cluster, "certificate-authority", base)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate = _material(user, "client-certificate", base)
    key = _material(user, "client-key", base)
    if certificate and key:
        # The ssl module reads client certificates from files only.
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(certificate + b"\n" + key)
            pem.flush()
            tls.load_cert_chain(pem.name)
    return tls


def _material(holder: KubeObject, field: str, base: Path) -> bytes | None:
    if holder.get(f"{field}-data"):
        return base64.b64decode(holder[f"{field}-data"])
    return (base / holder[field]).read_bytes() if holder.get(field) else None


class Api:
    """One connection pool to one API server."""

    def __init__(self, endpoint: Endpoint, *, connections: int = 32) -> None:
        self.endpoint = endpoint
        self._is_cut = False
        self._watching: set[aiohttp.ClientResponse] = set()
        # The audit log names it, which distinguishes a node's requests from an operator's.
        headers = {"User-Agent": "local-cluster-node"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=endpoint.tls or False, limit=connections),
            headers=headers,
        )

    async def close(self) -> None:
        await self._session.close()

    def cut(self) -> None:
        """From now on every request fails with ApiUnavailable, and every watch ends."""
        self._is_cut = True
        for response in list(self._watching):
            response.close()

    def restore(self) -> None:
        self._is_cut = False

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> KubeObject:
        return await self._request("GET", path, params=params)

    async def find(self, path: str) -> KubeObject | None:
        """The object at `path`, None if there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def post(self, path: str, body: KubeObject) -> KubeObject:
        return await self._request("POST", path, body)

    async def patch(self, path: str, body: KubeObject, *, kind: str = STRATEGIC) -> KubeObject:
        return await self._request("PATCH", path, body, content_type=kind)

    async def delete(self, path: str, body: KubeObject) -> KubeObject:
        return await self._request("DELETE", path, body)

    async def _request(
        self,
        method: str,
        path: str,
        body: KubeObject | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> KubeObject:
        if self._is_cut:
            raise ApiUnavailable("this node plays dead")
        timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        try:
            async with self._session.request(
                method,
                self.endpoint.url + path,
                data=content,
                params=params,
                headers=headers,
                timeout=timeout,
            ) as response:
                text = await response.read()
                return _read_answer(response.status, text)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiUnavailable(f"{method} {path}: {error!r}") from error

    async def follow(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[Listed | Changed]:
        """All that is at `path`: a list at first and after every gap, then changes. Endless."""
        while True:
            try:
                listed = await self.get(path, params)
            except (ApiError, ApiUnavailable) as error:
                log.debug("cannot list %s: %s", path, error)
                await asyncio.sleep(_RETRY_S)
                continue
            yield Listed(items=listed["items"])
            version: str | None = listed["metadata"]["resourceVersion"]
            while version is not None:
                async for kind, item in self._watch(path, params, version):
                    version = None if kind == "ERROR" else item["metadata"]["resourceVersion"]
                    if kind in {"ADDED", "MODIFIED", "DELETED"}:
                        yield Changed(kind=kind, item=item)
                if self._is_cut:
                    version = None

    async def _watch(
        self, path: str, params: Mapping[str, str] | None, version: str
    ) -> AsyncIterator[tuple[str, KubeObject]]:
        """Events after `version`, until the connection ends; ERROR when a new list is due."""
        if self._is_cut:
            return
        query = dict(params or {}) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
            "resourceVersion": version,
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_WATCH_SILENCE_S)
        try:
            async with self._session.get(
                self.endpoint.url + path, params=query, timeout=timeout
            ) as response:
                if response.status != 200:
                    yield "ERROR", _read_status(await response.read())
                    return
                self._watching.add(response)
                try:
                    async for line in _read_lines(response.content):
                        event = json.loads(line)
                        yield event["type"], event["object"]
                finally:
                    self._watching.discard(response)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            log.debug("watch of %s ended: %r", path, error)
            await asyncio.sleep(_RETRY_S)


def _read_answer(status: int, text: bytes) -> KubeObject:
    if status < 400:
        answer: KubeObject = json.loads(text)
        return answer
    refusal = _read_status(text)
    error = ApiError(status, str(refusal.get("reason", "")), str(refusal.get("message", "")))
    if status >= 500 or status == 429:
        raise ApiUnavailable(str(error)) from error
    raise error


def _read_status(text: bytes) -> KubeObject:
    with suppress(ValueError):
        parsed = json.loads(text)
        if isinstance(parsed, dict):
            return parsed
    return {"message": text.decode(errors="replace")[:500]}


async def _read_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: StreamReader's own readline refuses long ones."""
    pending = b""
    async for chunk in content.iter_any():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield line
