"""The PodDisruptionBudget of workers that a resource owns, and the budgets of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.kube.client import DISRUPTION_BUDGET, Manifest
from pelops.kube.worker_deployment import (
    MANAGED_BY,
    RESOURCE_LABEL,
    build_owner_reference,
    deployment_name,
    is_applied,
)
from pelops.kube.workload_observation import Selector, controller_uid, parse_label_selector

# One of up to ten workers at a time, two of up to twenty: Kubernetes rounds up, so a node drain
# makes progress even with a single worker. With a fixed 1 the drain of many workers would take
# hours. Other workers receive the entries of evicted ones within a second.
MAX_UNAVAILABLE: Final = "10%"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget without its status, which changes with every pod."""

    uid: str
    generation: int
    controller_uid: str | None  # the uid in its controller ownerReference
    selector: Selector
    selects_all: bool  # every pod of its namespace
    spec: Manifest

    @property
    def resource(self) -> str | None:
        """The only resource whose workers it can select; None: it can select those of any."""
        return self.selector.required_value(RESOURCE_LABEL)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether the budget selects a pod with these labels."""
        return self.selects_all or self.selector.matches(labels)


def observe_budget(manifest: Manifest) -> DisruptionBudget:
    """Return the budget from its manifest."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    selector = spec.get("selector")
    return DisruptionBudget(
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        controller_uid=controller_uid(manifest),
        selector=parse_label_selector(selector),
        # In policy/v1 an empty selector selects all pods, and an absent one selects none.
        selects_all=selector is not None and not any(selector.values()),
        spec=spec,
    )


def build_budget(resource: StreamConsumerGroup) -> Manifest:
    """Return the budget of the Deployment that a resource owns; it is deleted with the resource."""
    metadata = resource.metadata
    labels = {RESOURCE_LABEL: metadata.name}
    return {
        "apiVersion": DISRUPTION_BUDGET.api_version,
        "kind": DISRUPTION_BUDGET.kind,
        "metadata": {
            "name": deployment_name(metadata.name),
            "namespace": metadata.namespace,
            "labels": {**MANAGED_BY, **labels},
            "ownerReferences": [build_owner_reference(resource)],
        },
        "spec": {
            "maxUnavailable": MAX_UNAVAILABLE,
            "selector": {"matchLabels": labels},
            # Workers that are not ready must not prevent the drain of a node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def is_as_built(body: Manifest, live: DisruptionBudget) -> bool:
    """Whether the live budget has the desired spec."""
    return is_applied(body["spec"], live.spec)
