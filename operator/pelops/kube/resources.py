"""The kinds that the operator reads and writes, and their paths on the API server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of the Kubernetes API."""

    group: str  # "" is the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The path of an object, of one of its subresources, or without a name of the list."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)


GROUP = "pelops.dev"

STREAM_CONSUMER_GROUP = Kind(
    group=GROUP, version="v1alpha1", kind="StreamConsumerGroup", plural="streamconsumergroups"
)
STREAM_AUDIT = Kind(group=GROUP, version="v1alpha1", kind="StreamAudit", plural="streamaudits")
CRON_JOB = Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs")
DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
POD = Kind(group="", version="v1", kind="Pod", plural="pods")
NODE = Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False)
NAMESPACE = Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)
SECRET = Kind(group="", version="v1", kind="Secret", plural="secrets")
DISRUPTION_BUDGET = Kind(
    group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
EVENT = Kind(group="events.k8s.io", version="v1", kind="Event", plural="events")
AUTOSCALER = Kind(
    group="autoscaling",
    version="v2",
    kind="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
)
