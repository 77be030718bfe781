"""The kopf operator of a replica: its settings, its login, and a handler for each kind's events.

The handlers write nothing and keep nothing: each event goes to the cache of the replica, whose
queues give resources their passes. So kopf has no state of its own in any object (no annotations,
no finalizers), and several replicas may run at once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import kopf

from pelops.controller.runtime.watch import Listener, Subscription, WatchPace
from pelops.domain.backoff import backoff_s
from pelops.errors import KubernetesError
from pelops.kube.client import Kind
from pelops.kube.json_text import cut_value

CONNECT_S: Final = 5
IDLE_S: Final = 0.1  # then the task of an object ends, which keeps its last event in memory
LOGIN_PAUSE_S: Final = 2.0
SESSION_S: Final = 600  # then the credentials are read again: a pod's token is replaced each hour


class Pauses:
    """The pauses between the tries of one request: they grow, and have no end.

    kopf gives a request up, and with it the kind, when there are no more of them.
    """

    def __init__(self, pace: WatchPace) -> None:
        self._pace = pace

    def __iter__(self) -> Iterator[float]:
        first_s, longest_s = self._pace.first_pause_s, self._pace.longest_pause_s
        for failures in itertools.count(1):
            pause_s = backoff_s(failures, first_s=first_s, longest_s=longest_s)
            yield pause_s * random.uniform(0.5, 1.0)


class NoDiffs(kopf.DiffBaseStorage):
    """No comparison of an object with its last state, which kopf would copy for each event."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def run_operator(subscription: Subscription) -> Coroutine[Any, Any, None]:
    """kopf's operator until the stop event. Raises whatever ends it before."""
    return kopf.operator(
        registry=register(subscription),
        clusterwide=not subscription.namespaces,
        namespaces=subscription.namespaces,
        standalone=True,
        stop_flag=subscription.stop,
    )


def register(subscription: Subscription) -> kopf.OperatorRegistry:
    """The handlers for these kinds."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        pace = subscription.pace
        settings.watching.server_timeout = max(1, round(pace.stream_s * random.uniform(0.8, 1.0)))
        settings.watching.inactivity_timeout = pace.stream_s + pace.late_s
        settings.networking.connect_timeout = CONNECT_S
        settings.networking.error_backoffs = Pauses(pace)
        settings.persistence.diffbase_storage = NoDiffs()
        settings.queueing.idle_timeout = IDLE_S
        settings.posting.enabled = False
        settings.scanning.disabled = True  # the rights to follow CRDs and namespaces are not needed
        settings.process.ultimate_exiting_timeout = None  # would kill the process

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        try:
            server, session = await subscription.open_session()
        except KubernetesError as error:
            raise kopf.TemporaryError(str(error), delay=LOGIN_PAUSE_S) from error
        expiration = datetime.now(UTC) + timedelta(seconds=SESSION_S)
        return kopf.AiohttpSession(server=server, aiohttp_session=session, expiration=expiration)

    @kopf.on.cleanup(registry=registry)
    async def announce_end(**_: Any) -> None:
        subscription.ending.set()

    for kind in subscription.kinds:
        on_event = _handler(kind, subscription.on_event)
        kopf.on.event(
            group=kind.group,
            version=kind.version,
            plural=kind.plural,
            id=kind.plural,
            registry=registry,
        )(on_event)
    return registry


def _handler(kind: Kind, on_event: Listener) -> Callable[..., Coroutine[Any, Any, None]]:
    async def handle(event: kopf.RawEvent, **_: Any) -> None:
        on_event(kind, cut_value(event["object"]), event["type"] == "DELETED")

    return handle
