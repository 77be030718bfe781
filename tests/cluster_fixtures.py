"""A real control plane with the CRDs and rights of Pelops, nodes, and operator processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from local_cluster.nodes import Node, start_nodes
from local_cluster.plane import ControlPlane
from tests.api_objects import create_namespace, empty_namespace
from tests.operators import Operators, install

FAST = {"PELOPS_OBSERVE_INTERVAL": "0.5", "PELOPS_STATUS_INTERVAL": "0.5"}


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for tests that start their own operators, or none.

    They share it: each works in namespaces of its own, and leaves nothing of the cluster changed.
    """
    with own_plane(tmp_path_factory.mktemp("plane")) as started:
        yield started


@contextmanager
def own_plane(directory: Path) -> Iterator[ControlPlane]:
    """A control plane with the CRDs, the policies and the rights of Pelops, without an operator."""
    started = ControlPlane.start(directory / "control-plane", prepare=install)
    try:
        yield started
    finally:
        started.stop()


@contextmanager
def own_node(plane: ControlPlane, directory: Path, *, light: bool = False) -> Iterator[Node]:
    """The only node of a control plane, which no pod is scheduled to afterwards."""
    (node,) = start_nodes(plane, 1, directory / "nodes", light=light)
    try:
        yield node
    finally:
        node.stop()
        plane.kubectl("delete", "node", node.name)


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty namespace for one test."""
    name = f"test-{abs(hash(request.node.nodeid)) % 10**10}"
    create_namespace(plane, name)
    yield name
    with suppress(OSError):  # the test may have taken a kind away, or ended the API server
        empty_namespace(plane, name)


@pytest.fixture
def operators(plane: ControlPlane, tmp_path: Path) -> Iterator[Operators]:
    """Operator replicas of one test: call `start`, kill them, look at their logs."""
    with Operators(plane, tmp_path, environment=FAST) as started:
        yield started
