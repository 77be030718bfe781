"""The rights that the manifests give the operator, taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from local_cluster.plane import ControlPlane
from tests.control_plane.tenants import request
from tests.operators import GROUPS, ROOT, SERVICE_ACCOUNT

BASE = ROOT / "manifests" / "base"
# Asked only about the node of a pod whose end was not observed; when it is refused, the operator
# uses what the watch reported of the node.
RARE = frozenset({"get nodes"})
NAMESPACED = ROOT / "manifests" / "overlays" / "namespaced"
NAMESPACE_ROLE = ROOT / "manifests" / "namespace-role" / "role.yaml"
TENANTS = ROOT / "manifests" / "overlays" / "tenants"
TENANT = ROOT / "manifests" / "tenant"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One verb on one resource."""

    resource: str  # with its subresource
    verb: str
    api_group: str
    names: tuple[str, ...] = ()  # empty: all

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"

    def as_rule(self) -> dict[str, Any]:
        """The rule that grants it."""
        rule = {"apiGroups": [self.api_group], "resources": [self.resource], "verbs": [self.verb]}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule


def operator_rights() -> list[Right]:
    """Every right of manifests/base that the operator cannot do without, wherever it holds."""
    cluster = _rules((BASE / "cluster_role.yaml").read_text(), "ClusterRole")
    members = _rules((BASE / "member_role.yaml").read_text(), "Role")
    return sorted(one for one in _take_apart([*cluster, *members]) if str(one) not in RARE)


def optional_rights() -> list[Right]:
    """Those without which a setting is believed instead: nothing fails."""
    return sorted(_take_apart(_rules((BASE / "node_clock_role.yaml").read_text(), "Role")))


def namespaced_rights() -> list[Right]:
    """Every right of the overlay for one namespace, the members' aside."""
    return sorted(_take_apart(_rules(NAMESPACE_ROLE.read_text(), "Role")))


def may(plane: ControlPlane, right: Right, namespace: str) -> bool:
    """Whether the operator's ServiceAccount has a right in a namespace."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.api_group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": SERVICE_ACCOUNT,
            "groups": list(GROUPS),
            "resourceAttributes": attributes,
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(request(plane, "POST", path, review).body["status"]["allowed"])


def grant(user: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The manifests that give a user these rights in the whole cluster."""
    api = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": user},
            "rules": rules,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        },
    ]


def _rules(text: str, kind: str) -> list[dict[str, Any]]:
    manifests = [one for one in yaml.safe_load_all(text) if one["kind"] == kind]
    return [rule for manifest in manifests for rule in manifest.get("rules") or ()]


def _take_apart(rules: Iterable[dict[str, Any]]) -> set[Right]:
    return {
        Right(
            resource=resource,
            verb=verb,
            api_group=group,
            names=tuple(rule.get("resourceNames", ())),
        )
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
