"""Operator processes for tests, and what a user would do with kubectl beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import yaml

from local_cluster.operators import (
    GROUPS,
    ROOT,
    SERVICE_ACCOUNT,
    TIMEOUT_S,
    Operators,
    install,
    is_ready,
    metrics,
)
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from tests.api_objects import KINDS, NAMES, apply_object, delete_object, list_objects, read_object

__all__ = [
    "GROUPS",
    "ROOT",
    "SERVICE_ACCOUNT",
    "Operators",
    "Resources",
    "install",
    "is_ready",
    "metrics",
    "sleeping_template",
]


class Resources:
    """StreamConsumerGroups of one namespace, as a user handles them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def apply(self, name: str, spec: Mapping[str, Any]) -> None:
        """kubectl apply --server-side."""
        self.apply_raw(
            {
                "apiVersion": "pelops.dev/v1alpha1",
                "kind": "StreamConsumerGroup",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": dict(spec),
            }
        )

    def apply_raw(self, *manifests: Mapping[str, Any]) -> None:
        """kubectl apply --server-side of anything."""
        for manifest in manifests:
            if manifest["kind"] in NAMES:
                apply_object(self.plane, self.namespace, dict(manifest))
            else:
                text = yaml.safe_dump(dict(manifest), allow_unicode=True)
                self.plane.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=text)

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """The object, or None when it does not exist."""
        if kind in KINDS:
            return read_object(self.plane, self.namespace, kind, name)
        answer = self.plane.kubectl(
            "get", kind, name, "-n", self.namespace, "-o", "json", "--ignore-not-found"
        )
        found: dict[str, Any] | None = json.loads(answer.stdout) if answer.stdout.strip() else None
        return found

    def delete(self, name: str, *, wait: bool = False) -> None:
        """kubectl delete scg."""
        if wait:
            self.plane.kubectl("delete", "scg", name, "-n", self.namespace)
        else:
            delete_object(self.plane, self.namespace, "scg", name)

    def condition(self, name: str, kind: str = "Ready") -> dict[str, Any]:
        """One condition; empty while it is not there."""
        status = (self.get("scg", name) or {}).get("status") or {}
        return next((c for c in status.get("conditions") or () if c["type"] == kind), {})

    def await_condition(
        self, name: str, kind: str = "Ready", *, reason: str, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Wait until a condition has this reason."""

        def found() -> dict[str, Any] | None:
            condition = self.condition(name, kind)
            return condition if condition.get("reason") == reason else None

        try:
            condition = wait_until(found, timeout_s=timeout_s, what=f"{kind} {reason}", every_s=0.2)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {self.condition(name, kind)}") from error
        assert condition is not None
        return condition

    def await_events(self, name: str, *reasons: str) -> list[dict[str, Any]]:
        """The Events of these reasons, the oldest first, once there is one of each.

        They are written beside all else, so they come after what they report.
        """

        def found() -> list[dict[str, Any]]:
            events = [one for one in self.events(name) if one["reason"] in reasons]
            return events if {one["reason"] for one in events} == set(reasons) else []

        return wait_until(found, timeout_s=TIMEOUT_S, what=f"Events {reasons}", every_s=0.2)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The Events about a resource, the oldest first."""
        items = list_objects(self.plane, self.namespace, "event")
        ours = [e for e in items if e.get("regarding", {}).get("name") == name]
        return sorted(ours, key=lambda e: str(e["eventTime"]))


def sleeping_template(**pod: Any) -> dict[str, Any]:
    """A template whose worker does nothing until a signal ends it."""
    return {
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "worker",
                    "image": "local/worker",
                    "command": [sys.executable, "-c", "import signal; signal.pause()"],
                }
            ],
            **pod,
        }
    }


def count_exporting(operators: Operators, line: str) -> int:
    """How many replicas export exactly this sample, or one that begins so."""
    return sum(line in metrics(port) for port in operators.ports)
