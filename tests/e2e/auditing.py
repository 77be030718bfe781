"""Audits as users declare them, and what their jobs would record."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.domain.records.audit import AuditSummary
from pelops.redis_streams.audit.records import record_audit
from tests.e2e.declaring import WAIT_S, Object
from tests.integration.redis_adapter import connected, endpoint_of
from tests.operators import ROOT, Resources

AUDIT = "nightly"
JOB = f"{AUDIT}-audit"
Found = TypeVar("Found")


def an_audit(*groups: str, **more: Any) -> Object:
    """An audit that never comes to run by itself; a field that is None is left out."""
    spec = {
        "groups": list(groups),
        "schedule": "0 0 29 2 *",
        "archive": {"path": "/archive"},
        **more,
    }
    return {name: value for name, value in spec.items() if value is not None}


def apply_audit(resources: Resources, spec: Object, name: str = AUDIT) -> None:
    """kubectl apply."""
    resources.apply_raw(
        {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamAudit",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def record(
    servers: RedisServers,
    keys: GroupKeys,
    resources: Resources,
    summary: AuditSummary,
    *,
    archived: EntryId | None = None,
) -> None:
    """What the audit's job would write at its end."""

    async def write() -> None:
        async with connected(endpoint_of(servers)) as server:
            name = f"{resources.namespace}/{AUDIT}"
            await record_audit(server, keys, name, summary, archived=archived)

    asyncio.run(write())


def conditions_of(resources: Resources, kind: str, name: str) -> dict[str, Object]:
    """The conditions of an object by their types."""
    found = (resources.get(kind, name) or {}).get("status") or {}
    return {one["type"]: one for one in found.get("conditions") or ()}


def await_audit(
    resources: Resources,
    what: str,
    test: Callable[[Object], Found | None],
    *,
    timeout_s: float = WAIT_S,
) -> Found:
    """What the test finds in an audit, once it finds something."""

    def look() -> Found | None:
        found = resources.get("saudit", AUDIT)
        return test(found) if found is not None and found.get("status") else None

    try:
        found = wait_until(look, timeout_s=timeout_s, what=what, every_s=0.2)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; it is {resources.get('saudit', AUDIT)}") from error
    assert found is not None
    return found


def await_reason(
    resources: Resources,
    kind: str,
    reason: str | None,
    *,
    of: tuple[str, str] = ("saudit", AUDIT),
    timeout_s: float = WAIT_S,
) -> Object:
    """A condition, once it has this reason; None: once it is not there."""

    def look() -> Object | None:
        condition = conditions_of(resources, *of).get(kind, {})
        return {"found": condition} if condition.get("reason") == reason else None

    try:
        found = wait_until(look, timeout_s=timeout_s, what=f"{kind} {reason}", every_s=0.2)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; they are {conditions_of(resources, *of)}") from error
    assert found is not None
    condition: Object = found["found"]
    return condition


def own_job(module: str = "tests.e2e.audit_job") -> Object:
    """A template whose job is a module of the tests."""
    path = {"name": "PYTHONPATH", "value": f"{ROOT / 'operator'}:{ROOT}"}
    container = {"name": "audit", "command": [sys.executable, "-m", module], "env": [path]}
    return {"spec": {"containers": [container]}}


def run_now(resources: Resources, name: str = "now", *, timeout_s: float = 60.0) -> None:
    """kubectl create job --from=cronjob/..., and wait until it has ended well."""
    where = ("-n", resources.namespace)
    resources.plane.kubectl("create", "job", name, f"--from=cronjob/{JOB}", *where)

    def has_ended() -> bool:
        status = (resources.get("job", name) or {}).get("status") or {}
        reached = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
        assert not status.get("failed"), f"a pod failed: {logs_of(resources, name)}"
        return "Complete" in reached

    try:
        wait_until(has_ended, timeout_s=timeout_s, what=f"job {name} to end", every_s=0.3)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; its log: {logs_of(resources, name)}") from error


def logs_of(resources: Resources, job: str) -> str:
    """What the pods of a job have said."""
    return reported_logs(resources, "-l", f"job-name={job}", "--tail=100")


def reported_logs(resources: Resources, *which: str) -> str:
    """kubectl logs, as far as it answers."""
    answer = resources.plane.kubectl("logs", *which, "-n", resources.namespace, check=False)
    return answer.stdout or answer.stderr


def reported_columns(resources: Resources, name: str = AUDIT) -> list[str]:
    """What `kubectl get streamaudit` shows of one from VERDICT to WINDOW."""
    table = resources.plane.kubectl("get", "streamaudit", name, "-n", resources.namespace).stdout
    _, row = table.splitlines()
    return row.split()[3:8]


def env_of(job: Object) -> dict[str, Object]:
    """The variables of a CronJob's container by their names."""
    pod: Object = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return {variable["name"]: variable for variable in pod["containers"][0]["env"]}
