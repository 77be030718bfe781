"""The examples for GitOps: the order of Argo CD's waves, and Flux' health checks.

The health checks are evaluated by the API server, which has the CEL library that Flux has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from pelops.policy.status.reasons import Reason
from tests.gitops_cases import KINDS, complete
from tests.kstatus import compute
from tests.operators import ROOT
from tests.unit.test_health import LATE, seen

EXAMPLES = ROOT / "examples" / "gitops"
GROUP = "cases.tests.pelops.dev"
WAVE = "argocd.argoproj.io/sync-wave"
# A field of the resource as Flux has it: a variable of the expression.
VARIABLE = re.compile(r"(?<![\w.])(?=(?:metadata|spec|status)\.)")
Object = dict[str, Any]


def flux_kustomizations() -> list[Object]:
    text = (EXAMPLES / "flux" / "kustomizations.yaml").read_text()
    return list(yaml.safe_load_all(text))


def policy(check: Object) -> Object:
    """A policy that refuses each case, with Flux' answer as the reason."""
    name = check["kind"].lower()
    asked = {key: VARIABLE.sub("object.thing.", check[key]) for key in check if key in STEPS}
    answer = " : ".join(f"({asked[step]}) ? '{STEPS[step]}'" for step in STEPS)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"flux-{name}"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["tests.pelops.dev"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["cases"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "kind", "expression": f"object.thing.kind == '{check['kind']}'"}
            ],
            "validations": [
                {"expression": "false", "messageExpression": f"{answer} : 'InProgress'"}
            ],
        },
    }


# In this order, by RFC 0009 of Flux.
STEPS = {"inProgress": "InProgress", "failed": "Failed", "current": "Current"}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": GROUP},
    "spec": {
        "group": "tests.pelops.dev",
        "names": {"kind": "Case", "plural": "cases"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


class Flux:
    """Judges resources by the health checks of the example."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def judge(self, thing: Object) -> str:
        """The status, as Flux' StatusEvaluator finds it."""
        observed = (thing.get("status") or {}).get("observedGeneration")
        if observed is not None and observed != thing["metadata"]["generation"]:
            return "InProgress"
        case = {
            "apiVersion": "tests.pelops.dev/v1",
            "kind": "Case",
            "metadata": {"name": "case"},
            "thing": json.loads(json.dumps(thing)),
        }
        path = "/apis/tests.pelops.dev/v1/cases?dryRun=All"
        try:
            answer = self._plane.request("POST", path, case, timeout_s=60.0)
        except HTTPError as error:
            answer = error.read()
        found = re.search(r"denied request: (\w+)", answer.decode())
        return found[1] if found else f"not judged: {answer.decode()}"


@pytest.fixture(scope="module")
def flux(plane: ControlPlane) -> Iterator[Flux]:
    checks = flux_kustomizations()[-1]["spec"]["healthCheckExprs"]
    policies = [policy(check) for check in checks]
    bindings = [
        {
            "apiVersion": one["apiVersion"],
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": one["metadata"],
            "spec": {"policyName": one["metadata"]["name"], "validationActions": ["Deny"]},
        }
        for one in policies
    ]
    text = yaml.safe_dump_all([CRD, *policies, *bindings])
    plane.kubectl("apply", "-f", "-", stdin=text)
    judging = Flux(plane)
    try:
        for kind in KINDS:
            thing = complete(kind, seen(Reason.READY))
            wait_until(
                lambda thing=thing: judging.judge(thing) in STEPS.values(),  # type: ignore[misc]
                timeout_s=60.0,
                what=f"the policy of {kind}",
                every_s=0.2,
            )
        yield judging
    finally:
        plane.kubectl("delete", "-f", "-", "--wait=false", stdin=text)


SAMPLES = (
    *(Reason.READY, Reason.SCHEDULED, Reason.INVALID_SPEC, Reason.NEWER_FORMAT),
    *(Reason.REDIS_UNREACHABLE, Reason.WORKERS_NOT_READY, Reason.CRASH_LOOPING),
)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "reason",
    [pytest.param(one, marks=[] if one in SAMPLES else pytest.mark.full) for one in Reason],
)
def test_the_health_checks_for_flux_agree_with_its_own_rules(
    flux: Flux, kind: str, reason: Reason
) -> None:
    early = seen(reason)
    for thing in (early, seen(reason, before=early, now=LATE)):
        assert flux.judge(complete(kind, thing)) == compute(thing)


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspended_resource_is_ready_and_one_without_conditions_is_not(
    flux: Flux, kind: str
) -> None:
    paused = seen(Reason.SUSPENDED)
    suspended = {"type": "Suspended", "status": "True", "reason": "Suspended", "message": ""}
    paused["status"]["conditions"].append(suspended)
    assert flux.judge(complete(kind, paused)) == "Current"
    empty: Object = {"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}
    assert flux.judge(complete(kind, empty)) == "InProgress"


@pytest.mark.full
def test_the_example_for_argo_cd_has_its_objects_in_three_waves(plane: ControlPlane) -> None:
    waves: dict[int, set[str]] = {}
    built = annotations_of(plane, EXAMPLES / "argocd" / "deploy")
    for name, found in built.items():
        waves.setdefault(int(found.get(WAVE, "0")), set()).add(name)
    assert {one.partition("/")[0] for one in waves[-2]} == {
        "Namespace",
        "CustomResourceDefinition",
    }
    assert "Deployment/pelops-operator" in waves[-1]
    # In one wave: the group is healthy when its workers are ready, and the next wave waits for it.
    assert waves[0] == {"Deployment/order-workers", "StreamConsumerGroup/order-processing"}
    for name, found in annotations_of(plane, ROOT / "manifests" / "base").items():
        assert found.items() <= built[name].items()


def annotations_of(plane: ControlPlane, folder: Path) -> dict[str, dict[str, str]]:
    """The annotations of each object that kustomize builds, by kind and name."""
    built = yaml.safe_load_all(plane.kubectl("kustomize", str(folder)).stdout)
    return {
        f"{one['kind']}/{one['metadata']['name']}": one["metadata"].get("annotations") or {}
        for one in built
    }


def test_the_examples_leave_replicas_to_pelops() -> None:
    deployment, group = yaml.safe_load_all((EXAMPLES / "shop" / "shop.yaml").read_text())
    assert "replicas" not in deployment["spec"]
    assert group["spec"]["targetRef"]["name"] == deployment["metadata"]["name"]
    application = yaml.safe_load((EXAMPLES / "argocd" / "application.yaml").read_text())
    (ignored,) = application["spec"]["ignoreDifferences"]
    assert ignored["jsonPointers"] == ["/spec/replicas"]
    assert "RespectIgnoreDifferences=true" in application["spec"]["syncPolicy"]["syncOptions"]
    for path in (application["spec"]["source"]["path"], *_flux_paths()):
        assert (ROOT / path / "kustomization.yaml").is_file()


def _flux_paths() -> list[str]:
    return [one["spec"]["path"] for one in flux_kustomizations()]
