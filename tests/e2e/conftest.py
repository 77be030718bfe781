"""What every end-to-end test of the operator begins with."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import StandaloneServers
from tests.cluster_fixtures import FAST, own_node, own_plane
from tests.e2e.recovering import Group
from tests.operators import Operators, Resources


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that these tests share, each in a namespace of its own."""
    with own_plane(tmp_path_factory.mktemp("operated-plane")) as started:
        yield started


@pytest.fixture(scope="session")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that runs pods as processes."""
    with own_node(plane, tmp_path_factory.mktemp("node")) as started:
        yield started


@pytest.fixture(scope="session")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """Two operator replicas that watch everything, with the rights of manifests/base alone."""
    with Operators(plane, tmp_path_factory.mktemp("operator"), environment=FAST) as operators:
        operators.start(2)
        yield operators


@pytest.fixture
def resources(plane: ControlPlane, operator: Operators, namespace: str) -> Resources:
    """An empty namespace that two operator replicas watch."""
    return Resources(plane, namespace)


@pytest.fixture
def group(resources: Resources, redis_86: StandaloneServers, stream: str) -> Group:
    """A group that is yet to be declared."""
    return Group(resources, redis_86, stream)


@pytest.fixture
def stream() -> str:
    """The name of a stream of this test alone, so that tests may share a server."""
    return f"orders-{uuid.uuid4().hex[:12]}"
