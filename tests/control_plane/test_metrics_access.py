"""With authentication, `/metrics` answers only users that the API server authorizes to read it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from tests.cluster_fixtures import FAST
from tests.operators import ROOT, Operators

ROLES = ROOT / "manifests" / "components" / "metrics-authentication" / "roles.yaml"
READER = "pelops-metrics-reader"


@pytest.fixture
def operator(plane: ControlPlane, tmp_path: Path) -> Iterator[int]:
    """The port of an operator that guards its metrics."""
    plane.kubectl("apply", "-f", str(ROLES))
    environment = FAST | {"PELOPS_METRICS_AUTHENTICATION": "token"}
    with Operators(plane, tmp_path, environment=environment) as operators:
        operators.start(1)
        yield operators.ports[0]
    plane.kubectl("delete", "-f", str(ROLES))


def _read(port: int, authorization: str | None) -> tuple[int, str]:
    headers = {} if authorization is None else {"Authorization": authorization}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _token(plane: ControlPlane, namespace: str, account: str) -> str:
    plane.kubectl("create", "serviceaccount", account, "-n", namespace)
    return plane.kubectl("create", "token", account, "-n", namespace).stdout.strip()


def test_metrics_need_a_token_with_the_right_to_read_them(
    plane: ControlPlane, operator: int, namespace: str
) -> None:
    allowed = f"Bearer {_token(plane, namespace, 'prometheus')}"
    refused = f"Bearer {_token(plane, namespace, 'other')}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-reads-metrics"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": READER,
        },
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}],
    }
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(binding))
    try:
        wait_until(
            lambda: _read(operator, allowed)[0] == 200, timeout_s=60.0, what="metrics", every_s=0.2
        )
        assert "pelops_reconciles_total" in _read(operator, allowed)[1]
        for authorization, status in (
            (None, 401),
            ("Bearer", 401),
            ("Bearer eve", 401),
            (allowed.replace("Bearer", "Basic"), 401),
            (allowed[:-8] + "AAAAAAAA", 401),
            (refused, 403),
        ):
            assert _read(operator, authorization) == (status, "")
    finally:
        plane.kubectl("delete", "clusterrolebinding", f"{namespace}-reads-metrics")
