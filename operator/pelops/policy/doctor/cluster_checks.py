"""Checks of the categories `target` and `installation`: what Kubernetes has."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Final

from pelops.policy.doctor.check import (
    Check,
    CheckVerdict,
    count,
    error,
    known,
    list_names,
    ok,
    unknown,
    warning,
)
from pelops.policy.doctor.facts import (
    AccessRight,
    Installation,
    InstallationFacts,
    ServedKind,
    TargetFacts,
)

OLDEST_KUBERNETES: Final = (1, 30)
_AUTO: Final = "Auto"
_APPLY: Final = "kubectl apply --server-side -k manifests/base"


def _exists(facts: TargetFacts) -> CheckVerdict:
    target = facts.resource.target
    if known(facts.exists):
        return ok(f"{target} exists")
    return error(f"{target} does not exist", "create it, or correct spec.targetRef")


def _autoscalers(facts: TargetFacts) -> CheckVerdict:
    autoscalers, resource = known(facts.autoscalers), facts.resource
    if not autoscalers:
        return ok(f"no autoscaler refers to {resource.target}")
    names = list_names(map(str, autoscalers))
    if resource.scaling_mode != _AUTO:
        return ok(f"{names} scales {resource.target}; scaling.mode is {resource.scaling_mode}")
    return error(
        f"{names} scales {resource.target} too: both change its replicas alternately",
        "delete the autoscaler, or set spec.scaling.mode to Disabled",
    )


def _replicas(facts: TargetFacts) -> CheckVerdict:
    resource, owners = facts.resource, known(facts.replicas_owners)
    if not owners:
        return ok(f"nothing else sets spec.replicas of {resource.target}")
    names = list_names(owners)
    if resource.scaling_mode not in {_AUTO, "Manual"}:
        return ok(f"{names} sets spec.replicas; scaling.mode is {resource.scaling_mode}")
    return warning(
        f"{names} sets spec.replicas of {resource.target}: its next apply resets the number of "
        "workers",
        "remove spec.replicas from the manifest in Git",
    )


TARGET_CHECKS: Final[tuple[Check[TargetFacts], ...]] = (
    Check("target", "workload", _exists),
    Check("autoscalers", "other autoscalers of the workload", _autoscalers),
    Check("replicas-owner", "other managers of spec.replicas", _replicas),
)


def _kubernetes(facts: InstallationFacts) -> CheckVerdict:
    version = known(facts.kubernetes)
    shown = f"Kubernetes {version[0]}.{version[1]}"
    if version < OLDEST_KUBERNETES:
        return error(
            f"{shown} is too old: admission policies need 1.30 or later", "upgrade the cluster"
        )
    return ok(f"{shown} is supported")


def _kinds(facts: InstallationFacts) -> CheckVerdict:
    kinds = known(facts.kinds)
    absent = [one.kind for one in kinds if not one.is_served]
    if facts.is_before and len(absent) == len(kinds):
        return ok("no kind of pelops.dev is installed yet")
    if absent:
        return error(
            f"the API server does not serve {list_names(absent)}",
            "apply the CRDs of this version: kubectl apply --server-side -k crds",
        )
    return _compare(kinds)


def _compare(kinds: Iterable[ServedKind]) -> CheckVerdict:
    missing = [f"{one.kind} {field}" for one in kinds for field in known(one.missing)]
    if missing:
        return error(
            f"the CRDs are older than this program: {count(len(missing), 'field')} missing: "
            f"{list_names(missing)}",
            "apply the CRDs of this version: kubectl apply --server-side -k crds",
        )
    newer = [f"{one.kind} {field}" for one in kinds for field in one.unknown]
    if newer:
        return warning(
            f"the CRDs are newer than this program: {list_names(newer)}",
            "use the program of the installed version",
        )
    return ok("the CRDs are those of this version")


def _operators(facts: InstallationFacts) -> CheckVerdict:
    installations = known(facts.installations)
    running = [one for one in installations if one.replicas]
    if facts.is_before:
        return _no_operator(running)
    if not running:
        return error(
            "no replica of the operator renews its Lease",
            "see `kubectl -n pelops-system get pods`, and the runbook operator-down",
        )
    overlapping = [pair for pair in combinations(running, 2) if _overlap(*pair) is not False]
    if not overlapping:
        return ok("; ".join(_describe(one) for one in running))
    first, second = overlapping[0]
    message = f"{_describe(first)} and {_describe(second)}"
    hint = "remove one of them, or give each its own namespaces with PELOPS_NAMESPACE"
    if _overlap(first, second) is None:
        return warning(f"{message}: which namespaces they serve is not known", hint)
    return error(f"{message} serve the same resources", hint)


def _no_operator(running: list[Installation]) -> CheckVerdict:
    if not running:
        return ok("no operator runs yet")
    return warning(
        f"already there: {'; '.join(_describe(one) for one in running)}",
        "upgrade it, or give each operator its own namespaces with PELOPS_NAMESPACE",
    )


def _overlap(one: Installation, other: Installation) -> bool | None:
    """Whether two operators serve a common namespace; None if this is not known."""
    if one.serves is None or other.serves is None:
        return None
    return not one.serves or not other.serves or bool(one.serves & other.serves)


def _describe(installation: Installation) -> str:
    replicas = count(installation.replicas, "replica")
    return f"operator in namespace {installation.namespace} ({replicas})"


def _versions(facts: InstallationFacts) -> CheckVerdict | None:
    if facts.is_before:
        return None
    running = [one for one in known(facts.installations) if one.replicas]
    if not running:
        return unknown("no operator runs")
    other = [f"{one.namespace}: {one.version}" for one in running if _differs(one, facts.version)]
    if other:
        return warning(
            f"the operator has another version than this program ({facts.version}): "
            f"{list_names(other)}",
            "use the program of the operator's version",
        )
    if all(one.version is None for one in running):
        return unknown("the image of the operator names no version")
    return ok(f"the operator and this program have version {facts.version}")


def _differs(installation: Installation, version: str) -> bool:
    return installation.version is not None and installation.version != version


def _rights(facts: InstallationFacts) -> CheckVerdict:
    refused = known(facts.refused)
    needed = [one for one in refused if one.is_needed]
    if needed:
        return error(
            f"{facts.subject} may not {_list_rights(needed)} in {facts.scope}",
            "install with a user who may" if facts.is_before else f"apply the rights: {_APPLY}",
        )
    if refused:
        return ok(
            f"{facts.subject} has all required rights in {facts.scope} "
            f"(without optional ones: {_list_rights(refused)})"
        )
    return ok(f"{facts.subject} has all rights in {facts.scope}")


def _list_rights(rights: Iterable[AccessRight]) -> str:
    return list_names(map(str, rights))


INSTALLATION_CHECKS: Final[tuple[Check[InstallationFacts], ...]] = (
    Check("kubernetes", "version of Kubernetes", _kubernetes),
    Check("crds", "CRDs", _kinds),
    Check("operators", "operators", _operators),
    Check("operator-version", "version of the operator", _versions),
    Check("rights", "rights (RBAC)", _rights),
)
