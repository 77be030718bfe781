"""The informer: kopf watches, and passes every event on. It decides nothing and writes nothing.

Only `on.event` handlers are used: kopf's other handlers, timers, daemons and indexes keep their
state in annotations or run once per replica. kopf may end by itself after a long outage of the API
server; it is then started anew, while all else in this process goes on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Any

import kopf

from pelops.kube.client import KubeApi, Manifest
from pelops.kube.resources import Kind
from pelops.metrics import WATCH_RESTARTS

log = logging.getLogger(__name__)

# Called with the kind, the object, and whether it is gone.
Listener = Callable[[Kind, Manifest, bool], None]

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
            # kopf takes SIGTERM and SIGINT over while it runs, and returns only for one of them.
            stop.set()
        except Exception as error:
            # kopf raises whatever ended its tasks; nothing here can tell these causes apart.
            log.warning("the watch ended: %s: %s", type(error).__name__, error)
        if stop.is_set():
            return
        WATCH_RESTARTS.inc()
        if asyncio.get_running_loop().time() - began > 60:
            backoff_s = 1.0
        await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
        backoff_s = min(backoff_s * 2, 30.0)


async def _watch_once(
    api: KubeApi,
    kinds: Collection[Kind],
    namespaces: Collection[str],
    listener: Listener,
    stop: asyncio.Event,
) -> None:
    registry = kopf.OperatorRegistry()
    _register_login(registry, api)
    for kind in kinds:
        _register_kind(registry, kind, listener)
    await kopf.operator(
        registry=registry,
        settings=_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
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
    settings.watching.chunk_size = 500
    # It would kill this process some minutes after kopf alone ended, though all else goes on.
    settings.process.ultimate_exiting_timeout = None
    return settings


def _register_login(registry: kopf.OperatorRegistry, api: KubeApi) -> None:
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        credentials = await api.credentials()
        return kopf.ConnectionInfo(
            server=credentials.server,
            ca_path=credentials.ca_file,
            insecure=not credentials.verify,
            certificate_path=credentials.certificate_file,
            private_key_path=credentials.key_file,
            scheme="Bearer" if credentials.token else None,
            token=credentials.token,
        )

    kopf.on.login(registry=registry, id="log_in")(log_in)


def _register_kind(registry: kopf.OperatorRegistry, kind: Kind, listener: Listener) -> None:
    async def hear(event: kopf.RawEvent, **_: Any) -> None:
        # Never returns a value: kopf would write it into the status.
        manifest: Manifest = dict(event["object"])
        listener(kind, manifest, event["type"] == "DELETED")

    decorate = kopf.on.event(
        group=kind.group, version=kind.version, plural=kind.plural, registry=registry, id="hear"
    )
    decorate(hear)
