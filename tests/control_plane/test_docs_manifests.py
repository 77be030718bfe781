"""Every manifest that the documentation shows is accepted by a real API server, admission included.

A block without `apiVersion` that begins with `spec` is a part of a StreamConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from local_cluster.plane import ControlPlane
from tests.api_objects import create_namespace
from tests.docs_pages import Block, list_blocks

BLOCKS: Final = [block for block in list_blocks("yaml") if not block.is_marked]
BASE: Final[Mapping[str, Any]] = {
    "redis": {"secretRef": {"name": "orders-redis"}},
    "stream": "orders:events",
}
# Kinds of others, which this control plane does not serve.
OTHERS: Final = (
    "argoproj.io/",
    "keda.sh/",
    "kustomize.",
    "monitoring.coreos.com/",
)
TARGET: Final[Mapping[str, Any]] = {"targetRef": {"name": "order-workers"}}


def read_manifests(block: Block) -> list[dict[str, Any]]:
    """The objects of a block; of a part of a StreamConsumerGroup the whole of it."""
    documents = [one for one in yaml.safe_load_all(block.code) if isinstance(one, dict)]
    return [one if "apiVersion" in one else complete(one) for one in documents if is_object(one)]


def is_object(document: Mapping[str, Any]) -> bool:
    if "apiVersion" in document:
        return not str(document["apiVersion"]).startswith(OTHERS)
    return [*document] == ["spec"]


def complete(part: Mapping[str, Any]) -> dict[str, Any]:
    own = part["spec"]
    workers = {} if "template" in own else TARGET
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": "order-processing"},
        "spec": {**BASE, **workers, **own},
    }


MANIFESTS: Final = [block for block in BLOCKS if read_manifests(block)]


@pytest.fixture(scope="module")
def namespaces(plane: ControlPlane) -> set[str]:
    """Those that there are; a manifest may be of another one, which is added."""
    create_namespace(plane, "shop")
    return {"default", "kube-system", "pelops-system", "shop"}


@pytest.mark.full
@pytest.mark.parametrize("block", MANIFESTS, ids=str)
def test_a_manifest_of_the_documentation_is_accepted(
    plane: ControlPlane, namespaces: set[str], block: Block
) -> None:
    manifests = read_manifests(block)
    for manifest in manifests:
        namespace = manifest["metadata"].get("namespace", "shop")
        if namespace not in namespaces:
            create_namespace(plane, namespace)
            namespaces.add(namespace)
    text = yaml.safe_dump_all(manifests)
    asked: tuple[str, ...] = (
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-n",
        "shop",
    )
    # An object that names another namespace is not accepted beside `-n`.
    if any("namespace" in manifest["metadata"] for manifest in manifests):
        asked = asked[:-2]
    accepted = plane.kubectl(*asked, "-f", "-", stdin=text).stdout
    assert accepted.count("serverside-applied") == len(manifests)


@pytest.mark.full
def test_a_wrong_manifest_is_refused(plane: ControlPlane, namespaces: set[str]) -> None:
    code = "spec: {scaling: {minReplicas: 3, maxReplicas: 2}}"
    wrong = Block(page="page.md", line=1, language="yaml", code=code)
    with pytest.raises(Exception, match="minReplicas"):
        test_a_manifest_of_the_documentation_is_accepted(plane, namespaces, wrong)


def test_there_are_manifests_of_both_kinds() -> None:
    kinds = {manifest["kind"] for block in MANIFESTS for manifest in read_manifests(block)}
    assert kinds >= {"StreamConsumerGroup", "StreamAudit"}
