"""The parts of a kubelet's HTTPS interface that are here: `kubectl logs` and `kubectl exec`.

It listens on the loopback only, with a certificate of its own making, and without authentication.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from local_cluster.node.containers import Container
from local_cluster.node.exec_server import answer_exec
from local_cluster.node.output import Section
from local_cluster.node.settings import HOST_IP

FindContainer = Callable[[str, str, str], Container | None]
_CHUNK = 1 << 16
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWish:
    """What of a log is asked for."""

    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None


def parse_wish(query: dict[str, str]) -> LogWish:
    """The kubelet's query parameters; raises ValueError."""
    tail, limit = query.get("tailLines"), query.get("limitBytes")
    return LogWish(
        follow=query.get("follow", "").lower() == "true",
        previous=query.get("previous", "").lower() == "true",
        tail_lines=int(tail) if tail else None,
        limit_bytes=int(limit) if limit else None,
    )


async def start_log_server(state: Path, find: FindContainer) -> tuple[web.AppRunner, int]:
    """Serve on a free loopback port; gives the runner (to clean up) and the port."""
    application = web.Application()
    application["find"] = find
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", _answer)
    application.router.add_route("*", "/exec/{namespace}/{pod}/{container}", _answer_exec)
    application.router.add_get("/healthz", _answer_health)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, HOST_IP, 0, ssl_context=_build_tls(state))
    await site.start()
    port: int = runner.addresses[0][1]
    return runner, port


async def _answer_health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _find(request: web.Request) -> Container:
    where = request.match_info
    find: FindContainer = request.app["find"]
    container = find(where["namespace"], where["pod"], where["container"])
    if container is None:
        raise web.HTTPNotFound(text="this node has no such container\n")
    return container


async def _answer_exec(request: web.Request) -> web.StreamResponse:
    return await answer_exec(request, _find(request))


async def _answer(request: web.Request) -> web.StreamResponse:
    container = _find(request)
    try:
        wish = parse_wish(dict(request.query))
    except ValueError as error:
        return web.Response(status=400, text=f"{error}\n")
    section = container.output.section(previous=wish.previous)
    if section is None:
        which = "previous terminated container" if wish.previous else "started container"
        return web.Response(status=400, text=f'there is no {which} "{container.name}"\n')
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for chunk in _read(container, section, wish):
        await response.write(chunk)
    return response


async def _read(container: Container, section: Section, wish: LogWish) -> AsyncIterator[bytes]:
    left = wish.limit_bytes if wish.limit_bytes is not None else 1 << 62
    position = find_tail(section, wish.tail_lines)
    with section.path.open("rb") as file:
        file.seek(position)
        while left > 0:
            # Asked before the read: what was written before the end must not be missed.
            goes_on = wish.follow and container.output.is_current(section)
            until = section.end if section.end is not None else 1 << 62
            chunk = file.read(max(0, min(_CHUNK, left, until - file.tell())))
            left -= len(chunk)
            if chunk:
                yield chunk
            elif not goes_on:
                return
            else:
                await asyncio.sleep(_LOOK_S)


def find_tail(section: Section, lines: int | None) -> int:
    """Where the last `lines` lines of the section begin."""
    if lines is None:
        return section.start
    with section.path.open("rb") as file:
        file.seek(0, 2)
        end = position = section.end if section.end is not None else file.tell()
        seen = b""
        while position > section.start and seen.count(b"\n") <= lines:
            position = max(section.start, position - _CHUNK)
            file.seek(position)
            seen = file.read(end - position)
    kept = b"".join(seen.splitlines(keepends=True)[-lines:]) if lines > 0 else b""
    return end - len(kept)


def _build_tls(state: Path) -> ssl.SSLContext:
    path = state / "kubelet.pem"
    path.touch(mode=0o600)
    path.write_bytes(build_certificate())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    return tls


def build_certificate() -> bytes:
    """A self-signed certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST_IP)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
