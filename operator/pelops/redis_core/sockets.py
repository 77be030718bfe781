"""Limits the connections to Redis servers that each namespace may have open in this process.

The gates limit only concurrent work. Connections stay open after the work, one or more for each
cluster node and each address that a resource ever named. A hostile author or server can name many,
and they share the process's file descriptors with the connections to the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from pelops.errors import RedisUnavailable

# The namespace that the running task works for; empty: the operator itself.
TENANT: ContextVar[str] = ContextVar("tenant", default="")

# Enough for resources that name some hundreds of servers.
MOST_SOCKETS: Final = 1000


class Sockets:
    """The open connections by namespace."""

    def __init__(self, most: int) -> None:
        """`most` is for each namespace."""
        self.most = most
        self._open: Counter[str] = Counter()

    def count(self, tenant: str) -> int:
        """The number of open connections of a namespace."""
        return self._open[tenant]

    def acquire(self) -> Callable[[], None]:
        """Count one more connection of the task's namespace, until the returned function is called.

        Raises RedisUnavailable when the namespace has reached its limit.
        """
        tenant = TENANT.get()
        if tenant and self._open[tenant] >= self.most:
            raise RedisUnavailable(
                f"the resources of the namespace {tenant} have {self.most} connections to Redis "
                "open, which is the limit for one namespace: use fewer Redis servers in this "
                "namespace"
            )
        self._open[tenant] += 1
        is_open = True

        def release() -> None:
            nonlocal is_open
            if not is_open:
                return
            is_open = False
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

        return release


OPEN: Final = Sockets(MOST_SOCKETS)
