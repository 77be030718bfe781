"""Users of one namespace who have the rights that a test gives them, and no others."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until

RBAC: Final = "rbac.authorization.k8s.io"
PELOPS: Final = "/apis/pelops.dev/v1alpha1"
# All that "may use Pelops, and nothing else" can mean.
PELOPS_ALONE: Final = {
    "apiGroups": ["pelops.dev"],
    "resources": ["*"],
    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
}
DENIED: Final = "ValidatingAdmissionPolicy"
MERGE: Final = "application/merge-patch+json"
ACTIVE_S: Final = (
    90.0  # a policy takes effect with a delay, one with parameters after half a minute
)
_CORE: Final = {
    "Secret": "/api/v1",
    "PersistentVolumeClaim": "/api/v1",
    "Role": f"/apis/{RBAC}/v1",
    "RoleBinding": f"/apis/{RBAC}/v1",
    "StreamConsumerGroup": PELOPS,
    "StreamAudit": PELOPS,
    "StreamRedrive": PELOPS,
}

Manifest = Mapping[str, Any]


def right(verbs: str, resource: str, group: str = "", *names: str) -> dict[str, Any]:
    """A rule of a Role; verbs separated by commas."""
    rule: dict[str, Any] = {
        "apiGroups": [group],
        "resources": [resource],
        "verbs": verbs.split(","),
    }
    return {**rule, "resourceNames": [*names]} if names else rule


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered."""

    code: int
    body: dict[str, Any]

    @property
    def refusal(self) -> str:
        """Why it was refused; empty when it was not."""
        return str(self.body.get("message") or self.body) if self.code >= 400 else ""


def request(
    plane: ControlPlane,
    method: str,
    path: str,
    body: Manifest | None = None,
    *,
    content_type: str = "application/json",
    user: str | None = None,
) -> Answer:
    """One request as administrator, who impersonates the user if one is named."""
    headers = {"Content-Type": content_type, "Accept": "application/json"}
    if user is not None:
        headers |= {"Impersonate-User": user, "Impersonate-Group": "system:authenticated"}
    data = None if body is None else json.dumps(dict(body)).encode()
    asked = urllib.request.Request(plane.url + path, data, headers, method=method)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=plane.tls)
    )
    try:
        with opener.open(asked, timeout=30) as answer:
            return Answer(answer.status, json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, json.loads(error.read()))


def path_of(manifest: Manifest, namespace: str) -> str:
    """Where objects of this kind are created."""
    kind = str(manifest["kind"])
    return f"{_CORE[kind]}/namespaces/{namespace}/{kind.lower()}s"


@dataclass(frozen=True, slots=True)
class User:
    """A person, impersonated; None: the administrator."""

    plane: ControlPlane
    namespace: str
    name: str | None

    def create(self, manifest: Manifest, *, dry: bool = False) -> str:
        """Create an object; why that was refused, empty when it was not."""
        path = path_of(manifest, self.namespace) + ("?dryRun=All" if dry else "")
        return request(self.plane, "POST", path, manifest, user=self.name).refusal

    def patch(self, manifest: Manifest, change: Manifest, subresource: str = "") -> str:
        """Merge a change into an object; why that was refused, empty when it was not."""
        return request(
            *(self.plane, "PATCH", self._path(manifest, subresource), change),
            content_type=MERGE,
            user=self.name,
        ).refusal

    def scale(self, manifest: Manifest, replicas: int) -> str:
        """What `kubectl scale` does; why that was refused, empty when it was not."""
        return self.patch(manifest, {"spec": {"replicas": replicas}}, "/scale")

    def delete(self, manifest: Manifest) -> str:
        """Delete an object; why that was refused, empty when it was not."""
        return request(self.plane, "DELETE", self._path(manifest), user=self.name).refusal

    def _path(self, manifest: Manifest, subresource: str = "") -> str:
        return f"{path_of(manifest, self.namespace)}/{manifest['metadata']['name']}{subresource}"


def user_with(plane: ControlPlane, namespace: str, name: str, rules: Sequence[Manifest]) -> User:
    """A user who has these rights in one namespace, and has them now."""
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [dict(rule) for rule in rules],
    }
    administrator = User(plane, namespace, None)
    assert administrator.create(role) == ""
    user = _bind(administrator, name, {"apiGroup": RBAC, "kind": "Role", "name": name})
    await_rights(user, rules)
    return user


def user_as(plane: ControlPlane, namespace: str, cluster_role: str) -> User:
    """A user who has the rights of a ClusterRole such as edit in one namespace."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": cluster_role}
    user = _bind(User(plane, namespace, None), cluster_role, role)
    known = [("streamconsumergroups", "pelops.dev"), ("deployments", "apps")]
    await_rights(user, [right("create", *one) for one in known])
    return user


def await_rights(user: User, rules: Sequence[Manifest]) -> None:
    """Wait until the API server knows that the user has these rights."""
    for rule in rules:
        _await_right(user, rule)


def await_policies(plane: ControlPlane, namespace: str) -> None:
    """Wait until the API server refuses what the policies forbid."""
    administrator = User(plane, namespace, None)
    probe = user_with(plane, namespace, "probe", [PELOPS_ALONE])
    group: dict[str, Any] = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": "probe"},
        "spec": {
            "redis": {"url": "redis://redis"},
            "stream": "probe",
            "targetRef": {"name": "probe"},
        },
    }
    audit = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamAudit",
        "metadata": {"name": "probe"},
        "spec": {"groups": ["probe"], "schedule": "@yearly", "archive": {"path": "/archive"}},
    }
    assert administrator.create(group) == ""
    other = {**group, "metadata": {"name": "other"}}
    replicas = iter(range(2, 10_000))
    _await_refusal("groups", lambda: probe.create(other, dry=True))
    _await_refusal("audits", lambda: probe.create(audit, dry=True))
    _await_refusal("scale", lambda: probe.scale(group, next(replicas)))
    assert administrator.delete(group) == ""


def _await_refusal(what: str, ask: Callable[[], str]) -> None:
    # Until its parameters are known a policy refuses everything, in other words.
    wait_until(lambda: "may not" in ask(), timeout_s=ACTIVE_S, what=f"the policy of {what}")


def _bind(administrator: User, name: str, role: Manifest) -> User:
    user = f"{administrator.namespace}:{name}"
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": dict(role),
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    assert administrator.create(binding) == ""
    return User(administrator.plane, administrator.namespace, user)


def _await_right(user: User, rule: Manifest) -> None:
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "namespace": user.namespace,
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "name": (rule.get("resourceNames") or [""])[0],
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user.name, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

    def is_allowed() -> bool:
        return bool(request(user.plane, "POST", path, review).body["status"]["allowed"])

    wait_until(is_allowed, timeout_s=30.0, what=f"{user.name} to have the right {rule}")
