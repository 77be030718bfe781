"""What is installed can be applied again: an upgrade, or another layout of the rights."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from local_cluster.errors import LocalClusterError
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from tests.operators import ROOT

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/pelops-operator"


@pytest.fixture
def bare_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without anything of Pelops."""
    plane = ControlPlane.start(tmp_path_factory.mktemp("bare") / "control-plane")
    try:
        yield plane
    finally:
        plane.stop()


def apply(plane: ControlPlane, layout: str, *more: str) -> None:
    """As the pages about manifests and rights have it."""
    plane.kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / layout), *more)


@pytest.mark.full
def test_each_layout_can_be_applied_again_and_on_top_of_another(bare_plane: ControlPlane) -> None:
    """Also on top of a former version, once controllers have filled in their part."""
    replace_aggregated_role(bare_plane)
    for layout in ("base", "base", "overlays/tenants", "overlays/tenants", "base"):
        apply(bare_plane, layout)
        role = json.loads(bare_plane.get(ROLE))
        assert len(role["rules"]) > 5
        # The controller that aggregates would write it too, also while it is being deleted.
        assert "aggregationRule" not in role


FORMER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pelops-operator}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: {pelops.dev/aggregate-to-operator: "true"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pelops-operator-core, labels: {pelops.dev/aggregate-to-operator: "true"}}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [get]}
"""


def replace_aggregated_role(plane: ControlPlane) -> None:
    """As the page about upgrades has it, on what earlier manifests left."""
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=FORMER)
    wait_until(
        lambda: json.loads(plane.get(ROLE)).get("rules"), timeout_s=60.0, what="the aggregation"
    )
    with pytest.raises(LocalClusterError, match="conflict"):
        apply(plane, "base")
    apply(plane, "base", "--force-conflicts")
    assert "aggregationRule" not in json.loads(plane.get(ROLE))
    plane.kubectl("delete", "clusterrole", "pelops-operator-core")
