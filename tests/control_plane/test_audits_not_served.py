"""An operator that is newer than the CRDs of its cluster reconciles all kinds that it can."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.cluster_fixtures import FAST, own_plane
from tests.e2e.auditing import an_audit, apply_audit, await_reason
from tests.e2e.declaring import NAME, WAIT_S, a_spec
from tests.operators import Operators, Resources, install, metrics

OFTEN = FAST | {"PELOPS_RESYNC_INTERVAL": "2"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, of which a CRD may be taken."""
    with own_plane(tmp_path_factory.mktemp("served")) as plane:
        yield plane


@pytest.mark.full
def test_audits_are_reconciled_once_their_crd_exists_and_groups_without_it(
    plane: ControlPlane, redis_86: StandaloneServers, namespace: str, tmp_path: Path
) -> None:
    plane.kubectl("delete", "crd", "streamaudits.pelops.dev")
    resources = Resources(plane, namespace)
    with Operators(plane, tmp_path, environment=OFTEN) as operators:
        operators.start(1)
        resources.apply(NAME, a_spec(redis_86.url, f"{namespace}-orders"))
        resources.await_condition(NAME, reason="Ready")
        assert "does not serve streamaudits: install the CRDs" in operators.logs()
        _await_served(operators, is_served=False)
        install(plane)
        _await_served(operators, is_served=True)
        apply_audit(resources, an_audit(NAME))
        await_reason(resources, "Ready", "Scheduled")
        plane.kubectl("delete", "crd", "streamaudits.pelops.dev")
        _await_served(operators, is_served=False)
        resources.apply("more", a_spec(redis_86.url, f"{namespace}-more"))
        resources.await_condition("more", reason="Ready")


def _await_served(operators: Operators, *, is_served: bool) -> None:
    (port,) = operators.ports
    wait_until(
        partial(_reports, port, f"pelops_audits_served {float(is_served)}"),
        timeout_s=WAIT_S,
        what=f"pelops_audits_served to be {is_served}",
    )


def _reports(port: int, line: str) -> bool:
    return line in metrics(port)
