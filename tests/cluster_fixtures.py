"""A real control plane with the CRDs and rights of Pelops, nodes, and operator processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from local_cluster.nodes import Node, start_nodes
from local_cluster.plane import ControlPlane
from tests.api_objects import create_namespace, delete_namespace
from tests.operators import Operators, install

FAST = {"PELOPS_OBSERVE_INTERVAL": "0.5", "PELOPS_STATUS_INTERVAL": "0.5"}


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that all tests share, each in a namespace of its own."""
    state = tmp_path_factory.mktemp("plane") / "control-plane"
    started = ControlPlane.start(state, prepare=install)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that runs pods as processes."""
    nodes = start_nodes(plane, 1, tmp_path_factory.mktemp("nodes"))
    try:
        yield nodes[0]
    finally:
        for started in nodes:
            started.stop()


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty namespace for one test."""
    name = f"test-{abs(hash(request.node.nodeid)) % 10**10}"
    create_namespace(plane, name)
    yield name
    with suppress(OSError):  # the test may have deleted it, or ended the API server
        delete_namespace(plane, name)


@pytest.fixture(scope="session")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """Two operator replicas that watch everything, with the rights of manifests/base alone."""
    with Operators(plane, tmp_path_factory.mktemp("operator"), environment=FAST) as operators:
        operators.start(2)
        yield operators


@pytest.fixture
def operators(plane: ControlPlane, tmp_path: Path) -> Iterator[Operators]:
    """Operator replicas of one test: call `start`, kill them, look at their logs."""
    with Operators(plane, tmp_path, environment=FAST) as started:
        yield started
