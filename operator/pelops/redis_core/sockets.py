"""How many connections to Redis servers each namespace may have open in this process.

Places at the gate bound what is under way. A connection stays open when it is done, one for each
node of a cluster and each address that a resource ever named, and those a hostile server or author
chooses. All of the process share its file descriptors, the connections to the API server as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from pelops.errors import RedisUnavailable

# The namespace that the present task works for; empty: the operator itself.
TENANT: ContextVar[str] = ContextVar("tenant", default="")

# More than any number of resources needs whose servers number some hundreds.
MOST_SOCKETS: Final = 1000


class Sockets:
    """The open connections by namespace."""

    def __init__(self, most: int) -> None:
        """`most` is for each namespace."""
        self.most = most
        self._open: Counter[str] = Counter()

    def count(self, tenant: str) -> int:
        """How many a namespace has open."""
        return self._open[tenant]

    def take(self) -> Callable[[], None]:
        """Count one more for the present namespace, until what is returned is called.

        Raises RedisUnavailable when it has as many as it may.
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
