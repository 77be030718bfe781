"""Rights of the operator, and of the user who installs it, that `pelops doctor` reviews.

A test compares the operator's with the ClusterRole in manifests/base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pelops.policy.doctor.facts import AccessRight

_PELOPS: Final = "pelops.dev"
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"


def _all_of(
    group: str, resource: str, verbs: str, *, is_needed: bool = True
) -> Iterator[AccessRight]:
    for verb in verbs.split():
        yield AccessRight(group=group, resource=resource, verb=verb, is_needed=is_needed)


OPERATOR_RIGHTS: Final = (
    *_all_of(_PELOPS, "streamconsumergroups", "list watch patch"),
    *_all_of(_PELOPS, "streamconsumergroups/status", "patch"),
    *_all_of(_PELOPS, "streamaudits", "list watch patch"),
    *_all_of(_PELOPS, "streamaudits/status", "patch"),
    *_all_of(_PELOPS, "streamredrives", "list watch delete"),
    *_all_of(_PELOPS, "streamredrives/status", "patch"),
    *_all_of("", "configmaps", "get"),
    *_all_of("batch", "cronjobs", "list watch create patch"),
    *_all_of("apps", "deployments", "list watch create patch delete"),
    *_all_of("apps", "deployments/scale", "patch"),
    *_all_of("apps", "statefulsets/scale", "get patch"),
    *_all_of("autoscaling", "horizontalpodautoscalers", "list watch"),
    *_all_of("policy", "poddisruptionbudgets", "list watch create patch delete"),
    *_all_of("", "pods", "get list watch patch"),
    *_all_of("", "secrets", "get"),
    *_all_of("events.k8s.io", "events", "create"),
    # An operator for named namespaces works without these two.
    *_all_of("", "nodes", "get list watch", is_needed=False),
    *_all_of("", "namespaces", "get", is_needed=False),
)
INSTALL_RIGHTS: Final = (
    *_all_of("apiextensions.k8s.io", "customresourcedefinitions", "create patch"),
    *_all_of("", "namespaces", "create patch"),
    *_all_of("", "serviceaccounts", "create patch"),
    *_all_of("", "services", "create patch"),
    *_all_of("apps", "deployments", "create patch"),
    *_all_of("policy", "poddisruptionbudgets", "create patch"),
    *_all_of(_RBAC, "clusterroles", "create patch"),
    *_all_of(_RBAC, "clusterrolebindings", "create patch"),
    *_all_of(_RBAC, "roles", "create patch"),
    *_all_of(_RBAC, "rolebindings", "create patch"),
    *_all_of(_ADMISSION, "validatingadmissionpolicies", "create patch"),
    *_all_of(_ADMISSION, "validatingadmissionpolicybindings", "create patch"),
)
