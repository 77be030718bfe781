"""A resource gives its author nothing that the author's own Kubernetes rights do not give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from tests.api_objects import create_namespace, empty_namespace
from tests.control_plane.admission_cases import (
    CASES,
    GROUP,
    GUARDED,
    GUARDED_AUDIT,
    GUARDED_TEMPLATE,
    Case,
    manifest,
)
from tests.control_plane.tenants import (
    ACTIVE_S,
    DENIED,
    PELOPS_ALONE,
    RBAC,
    User,
    await_policies,
    await_rights,
    request,
    right,
    user_as,
    user_with,
)
from tests.operators import ROOT

ADMISSION = ROOT / "manifests" / "admission"
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
REDRIVE = ROOT / "manifests" / "samples" / "12-redrive.yaml"
APPROVAL = ROOT / "manifests" / "components" / "redrive-approval"
TABLE = ROOT / "docs" / "guides" / "rights.md"
# What the policy of groups compares, field by field.
PARTS = ("changesRedis", "changesWorkers", "changesReplicas")
SPARK = "sparkoperator.k8s.io"


@pytest.fixture(scope="module")
def policies(plane: ControlPlane) -> Iterator[None]:
    """They are in force."""
    create_namespace(plane, "probe")
    await_policies(plane, "probe")
    yield
    empty_namespace(plane, "probe")


@pytest.fixture
def namespace(policies: None, namespace: str) -> str:
    """An empty namespace where the policies are in force."""
    return namespace


def _ask(user: User, case: Case) -> str:
    """Do what a case asks for; why it was refused, empty when it was not."""
    if case.change is None:
        return user.create(manifest(case))
    return user.patch(manifest(case), {"spec": case.change})


def _prepare(plane: ControlPlane, namespace: str, case: Case) -> None:
    if case.change is not None:
        assert User(plane, namespace, None).create(manifest(case)) == ""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_operator_would_do_needs_the_right_to_do_it(
    plane: ControlPlane, namespace: str, case: Case
) -> None:
    _prepare(plane, namespace, case)
    for number, lacking in enumerate(case.rights):
        rest = [rule for rule in case.rights if rule is not lacking]
        refusal = _ask(user_with(plane, namespace, f"lacks-{number}", [PELOPS_ALONE, *rest]), case)
        assert DENIED in refusal, f"without {lacking}: {refusal or 'it was done'}"
        assert case.names in refusal
        assert "ask for that right" in refusal
    entitled = user_with(plane, namespace, "entitled", [PELOPS_ALONE, *case.rights])
    assert _ask(entitled, case) == ""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_user_with_all_the_rights_of_a_case_is_admitted(
    plane: ControlPlane, namespace: str, case: Case
) -> None:
    _prepare(plane, namespace, case)
    user = user_as(plane, namespace, "admin" if case.kind == "srd" else "edit")
    # Kinds of others, which edit has once these aggregate them to it.
    others = [rule for rule in case.rights if "." in rule["apiGroups"][0]]
    if others:
        _add_rights(user, others)
    assert _ask(user, case) == ""


@pytest.mark.parametrize("sample", SAMPLES, ids=[path.stem for path in SAMPLES])
def test_users_with_edit_rights_can_create_and_patch_the_samples(
    plane: ControlPlane, namespace: str, sample: Path
) -> None:
    user = user_as(plane, namespace, "admin" if sample == REDRIVE else "edit")
    _add_rights(user, [right("create", "scheduledsparkapplications", SPARK)])
    for one in yaml.safe_load_all(sample.read_text()):
        one["metadata"].pop("namespace", None)
        assert user.create(one) == ""
        assert user.patch(one, {"metadata": {"labels": {"team": "orders"}}}) == ""


def _add_rights(user: User, rules: list[dict[str, Any]]) -> None:
    user_with(user.plane, user.namespace, "more", rules)
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "more-for-edit"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "more"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user.name}],
    }
    assert User(user.plane, user.namespace, None).create(binding) == ""
    await_rights(user, rules)


@pytest.mark.parametrize(
    ("case", "scale"),
    [
        (GUARDED, right("patch", "deployments/scale", "apps", "workers")),
        (GUARDED, right("update", "deployments/scale", "apps")),
        (GUARDED_TEMPLATE, right("patch", "deployments/scale", "apps", f"{GROUP}-workers")),
    ],
    ids=["a target", "as autoscalers may", "a template"],
)
def test_scaling_a_resource_needs_the_right_to_scale_its_workers(
    plane: ControlPlane, namespace: str, case: Case, scale: dict[str, Any]
) -> None:
    body = manifest(case)
    administrator = User(plane, namespace, None)
    assert administrator.create(body) == ""
    # Another resource of the namespace, on which nothing is to be checked.
    other = {**manifest(CASES["add a Secret"]), "metadata": {"name": "other"}}
    assert administrator.create(other) == ""
    lacking = user_with(plane, namespace, "lacks", [PELOPS_ALONE])
    wait_until(  # the API server reads the resources of its policies from a watch
        lambda: DENIED in lacking.scale(body, 9), timeout_s=30.0, what="the resource to be known"
    )
    assert "may not patch deployments/scale" in lacking.scale(body, 9)
    entitled = user_with(plane, namespace, "entitled", [PELOPS_ALONE, scale])
    assert entitled.scale(body, 8) == ""
    assert user_as(plane, namespace, "edit").scale(body, 7) == ""


@pytest.mark.parametrize(
    "case", [GUARDED, GUARDED_TEMPLATE, GUARDED_AUDIT], ids=["target", "template", "audit"]
)
def test_what_is_not_guarded_can_be_changed_without_any_of_these_rights(
    plane: ControlPlane, namespace: str, case: Case
) -> None:
    body = manifest(case)
    assert User(plane, namespace, None).create(body) == ""
    # Without rights beyond those on Pelops' kinds, as the operator: no user is exempted by name.
    user = user_with(plane, namespace, "lacks", [PELOPS_ALONE])
    for change in (
        {"metadata": {"labels": {"team": "orders"}}},
        {"metadata": {"annotations": {"pelops.dev/acknowledge": "DataLoss"}}},
        {"metadata": {"finalizers": ["pelops.dev/group"]}},
        {"spec": {"suspend": True}},
        {"metadata": {"annotations": {"pelops.dev/acknowledge": None}}},
    ):
        assert user.patch(body, change) == ""
    assert user.patch(body, {"status": {"observedGeneration": 7}}, "/status") == ""
    assert user.delete(body) == ""
    assert user.patch(body, {"metadata": {"finalizers": []}}) == ""


def test_a_field_that_is_not_guarded_hides_no_other(plane: ControlPlane, namespace: str) -> None:
    assert User(plane, namespace, None).create(manifest(GUARDED_AUDIT)) == ""
    user = user_with(plane, namespace, "lacks", [PELOPS_ALONE])
    for change in ({"image": "eve"}, {"jobSecretRef": None}, {"schedule": "@hourly"}):
        body = {"spec": {"suspend": True, **change}}
        assert DENIED in user.patch(manifest(GUARDED_AUDIT), body)


def test_rights_elsewhere_or_on_another_name_do_not_help(
    plane: ControlPlane, namespace: str
) -> None:
    case = CASES["name a Secret in `redis.secretRef`"]
    elsewhere = f"{namespace}-b"
    create_namespace(plane, elsewhere)
    name = user_with(plane, elsewhere, "entitled", [PELOPS_ALONE, *case.rights]).name
    binding = user_with(plane, namespace, "lacks", [PELOPS_ALONE])
    assert DENIED in binding.create(manifest(case))
    assert "cannot create" in User(plane, namespace, name).create(manifest(case))
    other = right("get", "secrets", "", "another")
    user = user_with(plane, namespace, "other-name", [PELOPS_ALONE, other])
    assert DENIED in user.create(manifest(case))


def test_editors_can_read_redrives_and_only_admins_can_create_them(
    plane: ControlPlane, namespace: str
) -> None:
    (redrive,) = yaml.safe_load_all(REDRIVE.read_text())
    editor = user_as(plane, namespace, "edit")
    assert "cannot create" in editor.create(redrive)
    assert user_as(plane, namespace, "admin").create(redrive) == ""
    for verb in ("patch", "delete"):
        change = {"spec": {"suspend": True}}
        refusal = editor.patch(redrive, change) if verb == "patch" else editor.delete(redrive)
        assert f"cannot {verb}" in refusal
    await_rights(editor, [right("get,list,watch", "streamredrives", "pelops.dev")])


def test_a_redrive_is_approved_by_another_user_where_the_policy_is_applied(
    plane: ControlPlane, namespace: str
) -> None:
    alice = user_with(plane, namespace, "alice", [PELOPS_ALONE])
    bob = user_with(plane, namespace, "bob", [PELOPS_ALONE])
    plane.kubectl("apply", "-k", str(APPROVAL))
    try:
        body: dict[str, Any] = {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamRedrive",
            "metadata": {"name": "after-fix"},
            "spec": {"groupRef": {"name": GROUP}},
        }
        wait_until(
            lambda: DENIED in alice.create(body, dry=True), timeout_s=ACTIVE_S, what="the policy"
        )
        assert "set spec.approval: Required" in alice.create(body)
        body["spec"]["approval"] = "Required"
        assert "requested-by" in alice.create(body)
        body["metadata"]["annotations"] = {"pelops.dev/requested-by": bob.name}
        assert f"to your user name, {alice.name}" in alice.create(body)
        body["metadata"]["annotations"] = {"pelops.dev/requested-by": alice.name}
        approved = {**body, "spec": {**body["spec"], "approved": True}}
        assert "cannot be approved by the user who created it" in alice.create(approved)
        assert alice.create(body) == ""
        approval = {"spec": {"approved": True}}
        assert "cannot be approved by the user who created it" in alice.patch(body, approval)
        other = {"metadata": {"annotations": {"pelops.dev/requested-by": bob.name}}}
        assert "is immutable" in alice.patch(body, other)
        assert alice.patch(body, {"spec": {"suspend": True}}) == ""
        assert bob.patch(body, approval) == ""
        assert alice.patch(body, {"spec": {"ratePerSecond": 5}}) == ""
        count = {**body, "metadata": {**body["metadata"], "name": "count"}}
        count["spec"] = {"groupRef": {"name": GROUP}, "mode": "DryRun"}
        assert alice.create(count) == ""
    finally:
        plane.kubectl("delete", "-k", str(APPROVAL))


def test_a_large_template_is_within_the_cost_that_a_policy_may_have(
    plane: ControlPlane, namespace: str
) -> None:
    variables = [{"name": f"V{number}", "value": "x" * 1000} for number in range(800)]
    worker = {"name": "worker", "image": "worker", "env": variables}
    body = manifest(GUARDED_TEMPLATE)
    body["spec"]["template"] = {"spec": {"containers": [worker]}}
    user = user_as(plane, namespace, "edit")
    assert user.create(body) == ""
    worker["env"] = [*variables[:-1], {"name": "V799", "value": "y" * 1000}]
    assert user.patch(body, {"spec": {"template": {"spec": {"containers": [worker]}}}}) == ""


def test_the_policies_refer_to_nothing_that_the_kinds_do_not_have(plane: ControlPlane) -> None:
    def checked() -> list[dict[str, Any]] | None:
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        found = [one.get("status", {}) for one in request(plane, "GET", path).body["items"]]
        return found if all("observedGeneration" in one for one in found) else None

    statuses = wait_until(checked, timeout_s=60.0, what="the policies to be checked")
    assert statuses is not None
    assert len(statuses) == 4
    for status in statuses:
        assert status.get("typeChecking", {}).get("expressionWarnings", []) == []


def test_every_field_of_a_group_is_guarded_but_for_suspend() -> None:
    (policy, _) = yaml.safe_load_all((ADMISSION / "groups.yaml").read_text())
    variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    guarded = {
        field
        for part in PARTS
        for found in re.findall(r"\[('[^\]]*')\]\.exists", variables[part])
        for field in re.findall(r"'(\w+)'", found)
    }
    fields = {info.alias or name for name, info in StreamConsumerGroupSpec.model_fields.items()}
    assert fields - guarded == {"suspend"}
    assert guarded <= fields


def test_the_page_lists_every_case() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", TABLE.read_text(), re.MULTILINE)
    assert {row.strip() for row in rows} >= {*CASES}
