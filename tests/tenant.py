"""A user who may create the resources of Pelops in one namespace, and what these need."""

from __future__ import annotations

from typing import Any, Final

import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from tests.operators import Resources

WAIT_S: Final = 60.0
TENANT: Final = "eve"
NAME: Final = "orders"
# What the admission policies ask of the author of a resource that names Secrets or runs pods.
ASKED_FOR: Final = {
    "": {"resources": ["secrets"], "verbs": ["get"]},
    "apps": {"resources": ["deployments"], "verbs": ["create"]},
    "policy": {"resources": ["poddisruptionbudgets"], "verbs": ["create"]},
    "batch": {"resources": ["cronjobs"], "verbs": ["create"]},
}
REFUSED: Final = {"CredentialsNotAllowed", "InvalidSpec", "AddressNotAllowed"}


class Tenant(Resources):
    """Resources, applied by a user who has in one namespace the rights that policies ask for.

    So that what is refused is refused by the operator, not by the policies: on a cluster without
    them it is the only one.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self._config = plane.kubeconfig_for(TENANT, ("system:authenticated",))
        api = "rbac.authorization.k8s.io"
        verbs = ["get", "list", "create", "delete"]
        kinds = ["streamconsumergroups", "streamaudits"]
        rules = [
            {"apiGroups": ["pelops.dev"], "resources": kinds, "verbs": verbs},
            *({"apiGroups": [group], **asked} for group, asked in ASKED_FOR.items()),
        ]
        role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": TENANT}}
        binding = {**role, "kind": "RoleBinding"}
        super().apply_raw(
            {**role, "rules": rules},
            {
                **binding,
                "roleRef": {"apiGroup": api, "kind": "Role", "name": TENANT},
                "subjects": [{"apiGroup": api, "kind": "User", "name": TENANT}],
            },
        )

    def create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """kubectl create, by the tenant."""
        manifest = {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        config = ("--kubeconfig", str(self._config))
        self.plane.kubectl(*config, "create", "-f", "-", stdin=yaml.safe_dump(manifest))

    def await_refusal(self, name: str = NAME, kind: str = "scg") -> dict[str, Any]:
        """The condition Ready, once the resource is refused."""

        def found() -> dict[str, Any] | None:
            conditions = ((self.get(kind, name) or {}).get("status") or {}).get("conditions") or ()
            found_ready = (one for one in conditions if one["type"] == "Ready")
            ready: dict[str, Any] = next(found_ready, {})
            return ready if ready.get("reason") in REFUSED else None

        condition = wait_until(found, timeout_s=WAIT_S, what=f"{name} to be refused", every_s=0.1)
        assert condition is not None
        return condition
