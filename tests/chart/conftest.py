"""Helm, for the tests of the chart; without it they are skipped."""

from __future__ import annotations

import pytest

from local_cluster.helm import find_helm
from tests.chart.helm import Helm, Renderer


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without access to a cluster."""
    program = find_helm()
    if program is None:
        pytest.skip("there is no Helm: run python -m local_cluster.helm")
    return Helm(program=program, home=tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def render(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """What the chart renders."""
    return Renderer(helm=helm, scratch=tmp_path_factory.mktemp("values"))
