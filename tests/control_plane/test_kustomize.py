"""What kustomize makes of the manifests: other namespaces, several namespaces, roles of users."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local_cluster.binaries import find_binaries
from local_cluster.plane import ControlPlane
from tests.api_objects import create_namespace
from tests.operators import ROOT

MANIFESTS: Final = ROOT / "manifests"
NODE_LEASES: Final = "kube-node-lease"
CLOCKS: Final = "pelops-operator-node-clocks"
CLUSTER_WIDE: Final = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}

Object = dict[str, Any]


def kustomize(directory: Path) -> list[Object]:
    """What `kubectl kustomize` renders."""
    kubectl = str(find_binaries().paths["kubectl"])
    done = subprocess.run(
        [kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=True
    )
    return [*yaml.safe_load_all(done.stdout)]


def in_namespace(directory: Path, base: str, **more: Any) -> Path:
    """The kustomization of a user, which moves a layout to the namespace `streams`."""
    resource = os.path.relpath(MANIFESTS / base, directory)
    text = yaml.safe_dump({"namespace": "streams", "resources": [resource], **more})
    (directory / "kustomization.yaml").write_text(text)
    return directory


def moved(directory: Path) -> Path:
    transformers = os.path.relpath(MANIFESTS / "transformers" / "namespace", directory)
    return in_namespace(directory, "base", transformers=[transformers])


def read(objects: list[Object], kind: str, name: str) -> list[Object]:
    return [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]


def test_in_another_namespace_the_role_for_node_leases_stays_where_they_are(
    tmp_path: Path,
) -> None:
    objects = kustomize(moved(tmp_path))
    for kind in ("Role", "RoleBinding"):
        (found,) = read(objects, kind, CLOCKS)
        assert found["metadata"]["namespace"] == NODE_LEASES
    for one in objects:
        meta = one["metadata"]
        if one["kind"] in CLUSTER_WIDE:
            assert "namespace" not in meta, one["kind"]
        elif meta["name"] != CLOCKS:
            assert meta.get("namespace") == ("streams" if one["kind"] != "Namespace" else None)
        for subject in one.get("subjects", ()):
            assert subject["namespace"] == "streams", meta


def test_a_namespace_alone_moves_the_role_for_node_leases_too(tmp_path: Path) -> None:
    """Why the transformers are needed."""
    (role,) = read(kustomize(in_namespace(tmp_path, "base")), "Role", CLOCKS)
    assert role["metadata"]["namespace"] == "streams"


def test_several_namespaces_have_roles_and_the_operator_has_no_cluster_role() -> None:
    objects = kustomize(MANIFESTS / "overlays" / "several-namespaces")
    assert not {one["kind"] for one in objects} & CLUSTER_WIDE
    assert read(objects, "Role", CLOCKS) == []
    for kind, name in (
        ("Role", "pelops-operator"),
        ("RoleBinding", "pelops-operator"),
        ("Role", "pelops-edit"),
        ("Role", "pelops-redrive"),
        ("Role", "pelops-view"),
    ):
        namespaces = {one["metadata"]["namespace"] for one in read(objects, kind, name)}
        assert namespaces == {"shop", "billing"}, name
    for binding in (one for one in objects if one["kind"] == "RoleBinding"):
        assert binding["subjects"][0]["namespace"] == "pelops-system"
    (deployment,) = read(objects, "Deployment", "pelops-operator")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "PELOPS_NAMESPACE", "value": "shop billing"} in container["env"]


def test_the_roles_of_users_in_one_namespace_are_those_of_the_cluster(tmp_path: Path) -> None:
    base = kustomize(MANIFESTS / "base")
    objects = kustomize(in_namespace(tmp_path, "overlays/namespaced"))
    assert not {one["kind"] for one in objects} & CLUSTER_WIDE
    for name in ("pelops-edit", "pelops-redrive", "pelops-view"):
        (whole,) = read(base, "ClusterRole", name)
        (role,) = read(objects, "Role", name)
        assert role["rules"] == whole["rules"]
        assert role["metadata"]["namespace"] == "streams"


def test_the_operator_has_one_plain_cluster_role() -> None:
    for layout in ("base", "overlays/tenants", "overlays/spark-operators"):
        for one in kustomize(MANIFESTS / layout):
            labels: Mapping[str, str] = one["metadata"].get("labels") or {}
            assert "aggregationRule" not in one, one["metadata"]["name"]
            assert not [label for label in labels if "aggregate-to-operator" in label]
    names = {one["metadata"]["name"] for one in kustomize(MANIFESTS / "base") if "rules" in one}
    assert {name for name in names if name.startswith("pelops-operator")} == {
        *("pelops-operator", "pelops-operator-members", CLOCKS),
    }


@pytest.mark.parametrize("layout", ["overlays/several-namespaces", "moved"])
def test_the_api_server_accepts_what_is_rendered(
    plane: ControlPlane, tmp_path: Path, layout: str
) -> None:
    objects = kustomize(moved(tmp_path) if layout == "moved" else MANIFESTS / layout)
    existing = json.loads(plane.kubectl("get", "namespaces", "-o", "json").stdout)["items"]
    names = {one["metadata"]["name"] for one in existing}
    for namespace in {one["metadata"].get("namespace") for one in objects} - names - {None}:
        create_namespace(plane, str(namespace))
    answer = plane.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"),
        stdin=yaml.safe_dump_all(objects),
    )
    assert answer.stdout.count("serverside-applied") == len(objects)
