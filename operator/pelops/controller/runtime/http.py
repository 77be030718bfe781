"""The operator's HTTP endpoint: `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

# What is not yet well; empty when all is.
Check = Callable[[], str]


async def start_serving(
    *, host: str, port: int, is_alive: Check, is_ready: Check
) -> tuple[web.AppRunner, int]:
    """A server that answers from now on, and its port. The caller cleans the runner up."""
    app = web.Application()
    app.router.add_get("/livez", _answer(is_alive))
    app.router.add_get("/readyz", _answer(is_ready))
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    return runner, int(runner.addresses[0][1])


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")

    return answer


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
