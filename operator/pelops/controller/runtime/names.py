"""Name lookups of one replica, where those of one namespace cannot delay those of others.

A lookup by the C library blocks a thread until the name server of that domain answers, which can
take half a minute and more. Few threads of asyncio serve all lookups, so some names in a domain
without a working name server would stop all other lookups. Here each lookup has a thread of its
own, and each namespace has a limit of lookups at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from pelops.redis_core.sockets import TENANT

LOOKUP_S: Final = 5.0
LOOKUPS_PER_TENANT: Final = 8
POLL_S: Final = 0.05

Lookup = Callable[..., list[tuple[Any, ...]]]


class ReplicaEventLoop(asyncio.SelectorEventLoop):
    """The event loop of a replica, whose name lookups are limited per namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup: Lookup = socket.getaddrinfo
        self._lookups: Counter[str] = Counter()  # threads by namespace

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name that asyncio gives it
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """As `socket.getaddrinfo`, within 5 s. Raises socket.gaierror, also when it takes longer.

        A thread that still waits for an answer counts until it has ended.
        """
        tenant = TENANT.get()
        try:
            async with asyncio.timeout(LOOKUP_S):
                while self._lookups[tenant] >= LOOKUPS_PER_TENANT and tenant:
                    await asyncio.sleep(POLL_S)
                return await self._start(tenant, (host, port, family, type, proto, flags))
        except TimeoutError as error:
            shown = host.decode(errors="replace") if isinstance(host, bytes) else host
            raise socket.gaierror(
                socket.EAI_AGAIN, f"the name {shown} could not be resolved within {LOOKUP_S:g} s"
            ) from error

    def _start(self, tenant: str, arguments: tuple[Any, ...]) -> asyncio.Future[list[Any]]:
        future: asyncio.Future[list[Any]] = self.create_future()
        self._lookups[tenant] += 1

        def end(result: list[Any] | None, error: BaseException | None) -> None:
            self._lookups[tenant] -= 1
            if not self._lookups[tenant]:
                del self._lookups[tenant]
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result or [])

        def run() -> None:
            try:
                outcome: tuple[list[Any] | None, BaseException | None] = (
                    self.lookup(*arguments),
                    None,
                )
            except BaseException as error:
                outcome = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self.call_soon_threadsafe(end, *outcome)

        # A daemon: the process does not wait at its end for a name server.
        threading.Thread(target=run, name="name-lookup", daemon=True).start()
        return future
