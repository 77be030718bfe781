"""Fixtures of the tests of the node."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from tests.e2e.node.pods import PodNamespace


@pytest.fixture
def pods(plane: ControlPlane, node: Node, namespace: str) -> PodNamespace:
    """An empty namespace on a control plane with a ready node."""
    return PodNamespace(plane, namespace)


@pytest.fixture
def extra_node(plane: ControlPlane, tmp_path: Path) -> Iterator[Node]:
    """A node of the test's own, which it may fail and kill; takes only the pods that name it."""
    node = Node.start(plane, f"own-{os.urandom(3).hex()}", tmp_path / "state")
    try:
        node.await_ready()
        plane.kubectl("cordon", node.name)
        yield node
    finally:
        node.stop()
        plane.kubectl("delete", "node", node.name, "--ignore-not-found")
