"""The informer: kopf watches, and passes every event on. It decides nothing and writes nothing.

Only `on.event` handlers are used: kopf's other handlers, timers, daemons and indexes keep their
state in annotations or run once per replica. kopf may end by itself after a long outage of the API
server; it is then started anew, while all else in this process goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import kopf

from pelops.kube.client import Credentials, KubeApi, Manifest
from pelops.kube.resources import Kind
from pelops.metrics import WATCH_RESTARTS

log = logging.getLogger(__name__)
# It warns at each start that signals are ignored, which is what we want.
logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)

# Called with the kind, the object, and whether it is gone.
Listener = Callable[[Kind, Manifest, bool], None]

LONGEST_BACKOFF_S = 10.0
# kopf takes away the finalizer that it is told is its own. Ours must have another name.
KOPF_FINALIZER = "pelops.dev/unused-by-kopf"


async def run_watch(
    api: KubeApi,
    kinds: Collection[Kind],
    *,
    namespaces: Collection[str],
    listener: Listener,
    stop: asyncio.Event,
) -> None:
    """Watch until `stop` is set; `listener` hears of every object at the start and each change."""
    backoff_s = 1.0
    while not stop.is_set():
        began = asyncio.get_running_loop().time()
        try:
            await _watch_once(api, kinds, namespaces, listener, stop)
        except Exception as error:
            # kopf raises whatever ended its tasks; nothing here can tell these causes apart.
            log.warning("the watch ended: %s: %s", type(error).__name__, error)
        if stop.is_set():
            return
        WATCH_RESTARTS.inc()
        if asyncio.get_running_loop().time() - began > 60:
            backoff_s = 1.0
        await _wait(stop, backoff_s * random.uniform(0.5, 1.0))
        backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _watch_once(
    api: KubeApi,
    kinds: Collection[Kind],
    namespaces: Collection[str],
    listener: Listener,
    stop: asyncio.Event,
) -> None:
    here = asyncio.get_running_loop()

    def hear(kind: Kind, manifest: Manifest, is_gone: bool) -> None:
        here.call_soon_threadsafe(listener, kind, manifest, is_gone)

    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        asked = asyncio.run_coroutine_threadsafe(api.credentials(), here)
        return _connection(await asyncio.wrap_future(asked))

    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="log_in")(log_in)
    for kind in kinds:
        _register_kind(registry, kind, hear)
    stopped = asyncio.run_coroutine_threadsafe(stop.wait(), here)
    # In a thread and a loop of its own: where kopf ends, it cancels all other tasks of its loop,
    # after 5 s of patience, and in the main thread it takes the signals away from us.
    await asyncio.to_thread(asyncio.run, _run_kopf(registry, namespaces, stopped))


async def _run_kopf(
    registry: kopf.OperatorRegistry, namespaces: Collection[str], stopped: Future[Any]
) -> None:
    await kopf.operator(
        registry=registry,
        settings=_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=asyncio.wrap_future(stopped),
    )


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    # Namespaced rights cannot list namespaces or CRDs; that the kind is served is checked before.
    settings.scanning.disabled = True
    settings.persistence.finalizer = KOPF_FINALIZER
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    # Longer retries would hide for a minute that a watch is forbidden; `run_watch` repeats anyway.
    settings.networking.error_backoffs = (0.5, 1, 2, 4)
    settings.watching.chunk_size = 500
    # It would kill this process some minutes after kopf alone ended, though all else goes on.
    settings.process.ultimate_exiting_timeout = None
    return settings


def _connection(credentials: Credentials) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_file,
        insecure=not credentials.verify,
        certificate_path=credentials.certificate_file,
        private_key_path=credentials.key_file,
        scheme="Bearer" if credentials.token else None,
        token=credentials.token,
    )


def _register_kind(registry: kopf.OperatorRegistry, kind: Kind, listener: Listener) -> None:
    async def hear(event: kopf.RawEvent, **_: Any) -> None:
        # Never returns a value: kopf would write it into the status.
        manifest: Manifest = dict(event["object"])
        listener(kind, manifest, event["type"] == "DELETED")

    decorate = kopf.on.event(
        group=kind.group, version=kind.version, plural=kind.plural, registry=registry, id="hear"
    )
    decorate(hear)
