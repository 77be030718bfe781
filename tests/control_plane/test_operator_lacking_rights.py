"""A right less than the manifests give: something fails where people see it."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.cluster_fixtures import FAST
from tests.control_plane.rights import Right, grant, operator_rights
from tests.control_plane.rights_cases import (
    acknowledged_audit,
    only,
    owning,
    redrive,
    retargeted,
    secret,
    stateful_set,
    targeting,
)
from tests.e2e.auditing import await_reason
from tests.e2e.declaring import await_object
from tests.e2e.recovering import Group
from tests.operators import Operators, Resources, metrics

pytestmark = pytest.mark.full

WAIT_S = 60.0
UNTOUCHED = {"observedGeneration": -1}  # a status as the API server makes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An operator without one right that it needs, in a namespace of its own."""

    resources: Resources
    redis: StandaloneServers
    operators: Operators
    kubeconfig: Path

    @property
    def namespace(self) -> str:
        """The one that it works in, and where its Lease is."""
        return self.resources.namespace

    def start(self, *, wait: bool = True) -> None:
        self.operators.start(1, kubeconfig=self.kubeconfig, wait=wait)

    def await_log(self, text: str) -> None:
        wait_until(lambda: text in self.operators.logs(), timeout_s=WAIT_S, what=text, every_s=0.2)

    def await_ready(self, spec: dict[str, Any]) -> None:
        self.start()
        self.resources.apply("orders", spec)
        self.resources.await_condition("orders", reason="Ready")

    def await_forbidden(
        self, right: Right, kind: str = "Ready", *, reason: str = "Forbidden"
    ) -> None:
        condition = self.resources.await_condition("orders", kind, reason=reason)
        assert f"cannot {right.verb} resource" in condition["message"]


Symptom = Callable[[Trial, Right], None]


def _is_not_ready(trial: Trial, right: Right) -> None:
    """The operator is not ready, and reports the missing right."""
    trial.start(wait=False)
    wait_until(
        lambda: f'cannot list resource "{right.resource}"' in _readiness(trial.operators.ports[0]),
        timeout_s=WAIT_S,
        what="the operator to say why it is not ready",
    )


def _audits_are_left(trial: Trial, right: Right) -> None:
    """All else works; a metric and the log report that audits are not reconciled, and why."""
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.await_log("Not reconciling any StreamAudit")
    trial.await_log(f'cannot list resource "{right.resource}"')
    assert "pelops_audits_served 0.0" in metrics(trial.operators.ports[0])


def _watch_ends(trial: Trial, right: Right) -> None:
    """The watch restarts again and again; a metric counts it, and the log gives the reason."""
    trial.start()
    trial.await_log(f'cannot watch resource "{right.resource}"')
    wait_until(
        lambda: (
            f'pelops_watch_restarts_total{{kind="{right.resource}"}} 0.0'
            not in metrics(trial.operators.ports[0])
        ),
        timeout_s=WAIT_S,
        what="a restart to be counted",
    )


def _nodes_are_not_reported(trial: Trial, right: Right) -> None:
    trial.start()
    trial.await_log("Not watching nodes")


def _members_are_not_known(trial: Trial, right: Right) -> None:
    trial.start()
    trial.await_log("Could not renew the Lease of this replica")
    trial.await_log(f'cannot {right.verb} resource "leases"')


def _member_does_not_leave(trial: Trial, right: Right) -> None:
    trial.start()
    (process,) = trial.operators.processes
    process.send_to_leader(signal.SIGTERM)
    trial.await_log('cannot delete resource "leases"')


def _finalizer_is_refused(trial: Trial, right: Right) -> None:
    trial.start()
    trial.resources.apply("orders", targeting(trial.redis.url, trial.namespace, "Delete"))
    trial.await_forbidden(right, "Ready")


def _status_stays_empty(trial: Trial, right: Right) -> None:
    trial.start()
    trial.resources.apply("orders", targeting(trial.redis.url, trial.namespace))
    trial.await_log('cannot patch resource "streamconsumergroups/status"')
    assert (trial.resources.get("scg", "orders") or {})["status"] == UNTOUCHED


def _deployment_is_refused(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.start()
    trial.resources.apply("orders", owning(trial.namespace))
    trial.await_forbidden(right)


def _former_deployment_stays(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply("orders", retargeted(trial.redis.url, trial.namespace))
    trial.await_forbidden(right)


def _number_is_refused(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply("orders", owning(trial.namespace, replicas=1))
    trial.await_forbidden(right)


def _budget_is_refused(trial: Trial, right: Right) -> None:
    """The workers run without one, and the resource is ready."""
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.await_log(f'cannot {right.verb} resource "{right.resource}"')
    wait_until(
        lambda: (
            "PodDisruptionBudgetRefused" in {e["reason"] for e in trial.resources.events("orders")}
        ),
        timeout_s=WAIT_S,
        what="an Event that says so",
    )
    assert trial.resources.condition("orders")["status"] == "True"


def _former_budget_stays(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    await_object(trial.resources, "poddisruptionbudget", "orders-workers")
    trial.resources.apply("orders", retargeted(trial.redis.url, trial.namespace))
    trial.await_forbidden(right)


def _victims_are_not_named(trial: Trial, right: Right) -> None:
    """The scale-in takes other pods than those that should go."""
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.start()
    trial.resources.apply("orders", owning(trial.namespace, replicas=2))
    wait_until(lambda: _replicas(trial) == 2, timeout_s=WAIT_S, what="two pods", every_s=0.2)
    trial.resources.apply("orders", owning(trial.namespace, replicas=1))
    trial.await_log('cannot patch resource "pods"')
    wait_until(lambda: _replicas(trial) == 1, timeout_s=WAIT_S, what="one pod", every_s=0.2)


def _target_is_forbidden(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(stateful_set("own"))
    trial.start()
    trial.resources.apply("orders", targeting(trial.redis.url, trial.namespace))
    trial.await_forbidden(right, reason="TargetForbidden" if right.verb == "get" else "Forbidden")


def _secret_is_forbidden(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.start()
    trial.resources.apply("orders", owning(trial.namespace))
    trial.await_forbidden(right)


def _events_are_missing(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.await_log('cannot create resource "events"')
    assert trial.resources.events("orders") == []


def _deaths_cannot_be_confirmed(trial: Trial, right: Right) -> None:
    """Entries of a dead worker wait for the processing timeout, and a condition reports why."""
    trial.start()
    group = Group(trial.resources, trial.redis, f"{trial.namespace}-dying")
    group.apply(replicas=1)
    group.resources.await_condition(group.name, "GroupReady", reason="GroupExists")
    (pod,) = group.until(group.manifests, "the worker's pod")
    metadata = pod["metadata"]
    lost = group.give(f"{metadata['name']}:{metadata['uid']}", 1)
    group.resources.plane.kubectl("delete", "pod", metadata["name"], "-n", trial.namespace)
    trial.await_forbidden(right, "RecoveryHealthy")
    assert group.pending().keys() == set(lost)


def _cluster_stays_nameless(trial: Trial, right: Right) -> None:
    """No cluster ID in the state: a resource of the same name elsewhere would look the same."""
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    state = f"{{{trial.namespace}-owned}}:workers:state"
    assert trial.redis.cli("HGET", state, "owner:uid") != ""
    assert trial.redis.cli("HGET", state, "owner:cluster") == ""


def _audit_is_refused(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply_raw(acknowledged_audit("orders"))
    refused = await_reason(trial.resources, "Ready", "Forbidden")
    assert f"cannot {right.verb} resource" in refused["message"]


def _audit_stays_without_status(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply_raw(acknowledged_audit("orders"))
    trial.await_log('cannot patch resource "streamaudits/status"')
    assert (trial.resources.get("saudit", "nightly") or {})["status"] == UNTOUCHED


def _redrives_are_left(trial: Trial, right: Right) -> None:
    """All else works; a metric and the log report that redrives are not reconciled, and why."""
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.await_log("Not reconciling any StreamRedrive")
    assert "pelops_redrives_served 0.0" in metrics(trial.operators.ports[0])


def _plan_cannot_be_read(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply_raw(redrive(selection={"planRef": {"name": "plan"}}))
    refused = await_reason(trial.resources, "Ready", "Forbidden", of=("srd", "after-fix"))
    assert f"cannot {right.verb} resource" in refused["message"]


def _redrive_is_kept(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply_raw(redrive(ttlSecondsAfterFinished=0))
    await_reason(trial.resources, "Ready", "Completed", of=("srd", "after-fix"))
    trial.await_log('cannot delete resource "streamredrives"')


def _redrive_stays_without_status(trial: Trial, right: Right) -> None:
    trial.resources.apply_raw(secret(trial.redis.url))
    trial.await_ready(owning(trial.namespace))
    trial.resources.apply_raw(redrive())
    trial.await_log('cannot patch resource "streamredrives/status"')
    assert (trial.resources.get("srd", "after-fix") or {})["status"] == UNTOUCHED


SYMPTOMS: dict[str, Symptom] = {
    "list streamredrives": _redrives_are_left,
    "watch streamredrives": _watch_ends,
    "delete streamredrives": _redrive_is_kept,
    "patch streamredrives/status": _redrive_stays_without_status,
    "get configmaps": _plan_cannot_be_read,
    "list streamaudits": _audits_are_left,
    "list cronjobs": _audits_are_left,
    "watch streamaudits": _watch_ends,
    "watch cronjobs": _watch_ends,
    "patch streamaudits": _audit_is_refused,
    "patch streamaudits/status": _audit_stays_without_status,
    "create cronjobs": _audit_is_refused,
    "patch cronjobs": _audit_is_refused,
    "list streamconsumergroups": _is_not_ready,
    "list deployments": _is_not_ready,
    "list pods": _is_not_ready,
    "list horizontalpodautoscalers": _is_not_ready,
    "list poddisruptionbudgets": _is_not_ready,
    "list nodes": _nodes_are_not_reported,
    "get pods": _deaths_cannot_be_confirmed,
    "watch streamconsumergroups": _watch_ends,
    "watch deployments": _watch_ends,
    "watch pods": _watch_ends,
    "watch horizontalpodautoscalers": _watch_ends,
    "watch poddisruptionbudgets": _watch_ends,
    "watch nodes": _watch_ends,
    "patch streamconsumergroups": _finalizer_is_refused,
    "patch streamconsumergroups/status": _status_stays_empty,
    "create deployments": _deployment_is_refused,
    "patch deployments": _deployment_is_refused,
    "delete deployments": _former_deployment_stays,
    "create poddisruptionbudgets": _budget_is_refused,
    "patch poddisruptionbudgets": _budget_is_refused,
    "delete poddisruptionbudgets": _former_budget_stays,
    "patch pods": _victims_are_not_named,
    "patch deployments/scale": _number_is_refused,
    "get statefulsets/scale": _target_is_forbidden,
    "patch statefulsets/scale": _target_is_forbidden,
    "get secrets": _secret_is_forbidden,
    "create events": _events_are_missing,
    "get namespaces": _cluster_stays_nameless,
    "list leases": _members_are_not_known,
    "create leases": _members_are_not_known,
    "patch leases": _members_are_not_known,
    "delete leases": _member_does_not_leave,
}


def _rights() -> Iterator[Any]:
    """Every right; `full` where another one has the same symptom."""
    seen: set[Symptom | None] = set()
    for right in operator_rights():
        symptom = SYMPTOMS.get(str(right))
        yield pytest.param(
            right, marks=[pytest.mark.full] if symptom in seen else [], id=str(right)
        )
        seen.add(symptom)


@pytest.mark.parametrize("right", [*_rights()])
def test_without_one_right_something_fails_visibly(
    plane: ControlPlane,
    redis_86: StandaloneServers,
    namespace: str,
    tmp_path: Path,
    right: Right,
) -> None:
    user = f"without-{right.verb}-{right.resource.replace('/', '-')}"[:64]
    rest = [other.as_rule() for other in operator_rights() if other != right]
    resources = Resources(plane, namespace)
    resources.apply_raw(*grant(user, rest))
    with Operators(plane, tmp_path, environment=FAST | only(namespace)) as operators:
        trial = Trial(
            resources=resources,
            redis=redis_86,
            operators=operators,
            kubeconfig=plane.kubeconfig_for(user),
        )
        SYMPTOMS[str(right)](trial, right)


def _replicas(trial: Trial) -> int | None:
    """How many pods of the workers the operator knows of."""
    found = trial.resources.get("scg", "orders") or {}
    known: int | None = (found.get("status") or {}).get("replicas")
    return known


def _readiness(port: int) -> str:
    """What the operator answers to a readiness probe; empty while it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""
