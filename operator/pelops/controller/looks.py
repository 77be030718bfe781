"""Live looks at pods and nodes: what the API server itself answers, whatever the watch has told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from pelops.domain.liveness import Cut, LivenessReason, no_cut
from pelops.domain.workload import NodeObservation, PodObservation
from pelops.errors import Forbidden, KubernetesError, NotFound
from pelops.kube.client import Address, KubeApi
from pelops.kube.observing import observe_node, observe_pod
from pelops.kube.resources import NODE, POD


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLooks:
    """Answers by name. A name that was not looked at is in neither."""

    pods: dict[str, PodObservation | None] = field(default_factory=dict)  # None: no such pod
    doubts: dict[str, Cut] = field(default_factory=dict)  # why it could not be looked at


async def look_at_pods(api: KubeApi, namespace: str, names: Iterable[str]) -> PodLooks:
    """Look at all of them together. Never raises for what the API server answers or does not."""
    looks = PodLooks()
    await asyncio.gather(*(_look_at_pod(api, namespace, name, looks) for name in names))
    return looks


async def look_at_node(api: KubeApi, name: str) -> NodeObservation | None:
    """The node; None when it may not be read. Nothing is known of it when nobody answers."""
    try:
        return observe_node(await api.get(Address(kind=NODE, namespace=None, name=name)))
    except NotFound:
        return NodeObservation(name=name, is_ready=None, exists=False)
    except Forbidden:
        return None
    except KubernetesError:
        return NodeObservation(name=name, is_ready=None)


async def _look_at_pod(api: KubeApi, namespace: str, name: str, looks: PodLooks) -> None:
    address = Address(kind=POD, namespace=namespace, name=name)
    try:
        looks.pods[name] = observe_pod(await api.get(address))
    except NotFound:
        looks.pods[name] = None
    except Forbidden as error:
        message = f"pods may not be read, so only idle time decides: {error}"
        looks.doubts[name] = no_cut(LivenessReason.FORBIDDEN, message)
    except KubernetesError as error:
        message = f"pod {name} cannot be looked at, so only idle time decides: {error}"
        looks.doubts[name] = no_cut(LivenessReason.UNREADABLE, message)
