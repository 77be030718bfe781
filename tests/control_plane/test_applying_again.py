"""What is installed can be applied again: an upgrade, or another layout of the rights."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

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


def apply(plane: ControlPlane, layout: str) -> None:
    """As the pages about manifests and rights have it."""
    plane.kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / layout))


def test_each_layout_can_be_applied_again_and_on_top_of_another(bare_plane: ControlPlane) -> None:
    """Once controllers have filled in their part of what was applied, too."""
    for layout in ("base", "base", "overlays/tenants", "overlays/tenants", "base"):
        apply(bare_plane, layout)
        rules = wait_until(
            lambda: json.loads(bare_plane.get(ROLE)).get("rules"),
            timeout_s=60.0,
            what="the rights to be aggregated",
        )
        assert rules is not None and len(rules) > 5
