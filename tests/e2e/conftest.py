"""What every end-to-end test of the operator begins with."""

from __future__ import annotations

import uuid

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import StandaloneServers
from tests.e2e.recovering import Group
from tests.operators import Operators, Resources


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
