"""Invariant 7 for audits: in the steady state replicas write nothing, however many there are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import StandaloneServers
from pelops.domain.naming import derive_keys
from tests.audit import LEASES, AuditTrail, writes
from tests.audits import a_summary
from tests.cluster_fixtures import FAST
from tests.control_plane.counting import await_members, await_quiet
from tests.e2e.auditing import AUDIT, an_audit, apply_audit, await_reason, record
from tests.e2e.declaring import NAME, a_spec, await_object
from tests.operators import SERVICE_ACCOUNT, Operators, Resources

pytestmark = pytest.mark.full

SETTLED_S = 10.0
WATCHED_S = 15.0  # ten looks at an audit


def test_replicas_do_not_write_to_an_audit_in_its_desired_state(
    plane: ControlPlane, redis_86: StandaloneServers, namespace: str, tmp_path: Path
) -> None:
    trail = AuditTrail(plane, SERVICE_ACCOUNT)
    resources = Resources(plane, namespace)
    with Operators(plane, tmp_path, environment=FAST) as operators:
        operators.start(3)
        await_members(operators, 3)
        stream = f"{namespace}-orders"
        resources.apply(NAME, a_spec(redis_86.url, stream))
        resources.await_condition(NAME, reason="Ready")
        template = {"spec": {"containers": [{"name": "audit", "resources": {}}]}}
        resources_asked = {"limits": {"memory": "2048Mi", "cpu": "1000m"}}  # not as stored
        spec = an_audit(NAME, template=template, resources=resources_asked)
        apply_audit(resources, spec)
        await_reason(resources, "Ready", "Scheduled")
        await_object(resources, "cronjob", f"{AUDIT}-audit")
        record(redis_86, derive_keys(stream, NAME), resources, a_summary(lost=1))
        await_reason(resources, "LossDetected", "LossDetected", of=("scg", NAME))
        # Quantities are stored in another form: each replica finds out once, one after the other.
        settling = await_quiet(trail, SETTLED_S)
        time.sleep(WATCHED_S)
        idle = trail.read()
    assert [str(one) for one in writes(idle)] == []
    assert {one.name for one in idle if one.resource == LEASES}, "the audit log sees them"
    jobs = [one for one in writes(settling) if one.resource == "cronjobs"]
    assert len(jobs) <= 1 + 3, [str(one) for one in jobs]
