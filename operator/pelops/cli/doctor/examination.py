"""Runs the checks of `pelops doctor` that need the API server alone, and merges two runs.

No package beyond Python's own is needed here; `redis_examination` needs redis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pelops.cli.doctor.cluster import ClusterReader, Object
from pelops.cli.doctor.cluster_observation import (
    observe_installation,
    observe_target,
    read_resource,
    review_own_rights,
)
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.workload import PodObservation
from pelops.policy.doctor.check import (
    Category,
    CheckResult,
    Fact,
    Result,
    Unanswered,
    run_checks,
)
from pelops.policy.doctor.cluster_checks import INSTALLATION_CHECKS, TARGET_CHECKS
from pelops.policy.doctor.facts import (
    ClockFacts,
    GroupFacts,
    ServerFacts,
    WorkerFacts,
)
from pelops.policy.doctor.group_checks import CLOCK_CHECKS, GROUP_CHECKS, WORKER_CHECKS
from pelops.policy.doctor.server_checks import SERVER_CHECKS

DEFAULT_SKEW: Final = timedelta(seconds=2)  # as PELOPS_CLOCK_SKEW
_RIGHTS: Final = tuple(check for check in INSTALLATION_CHECKS if check.id == "rights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined: a resource, or names alone."""

    keys: GroupKeys | None  # None: the server alone
    manifest: Object | None = None  # of the StreamConsumerGroup


def subject_of(manifest: Object) -> Subject:
    """Return what a StreamConsumerGroup names. Raises InvalidSpec."""
    spec = manifest.get("spec") or {}
    keys = derive_keys(
        spec.get("stream", ""),
        spec.get("group") or manifest["metadata"]["name"],
        dead_letter=(spec.get("deadLetter") or {}).get("stream"),
    )
    return Subject(keys=keys, manifest=manifest)


def subject_of_names(stream: str | None, group: str | None) -> Subject:
    """Return the stream and the group of a command line."""
    if stream is None or group is None:
        return Subject(keys=None)
    return Subject(keys=derive_keys(stream, group))


def explain_unexamined(why: str, subject: Subject) -> list[CheckResult]:
    """Return every check that needs Redis as not answered, for this reason."""
    no = Unanswered(why)
    kind = ServerFacts(kind=no, nodes=no, denied=None if subject.keys is None else no)
    results = run_checks(
        Category.REDIS, [one for one in SERVER_CHECKS if one.id != "connection"], kind
    )
    if subject.keys is not None:
        group = GroupFacts(keys=subject.keys, topology=no, types=no, stream=no, groups=no)
        results += run_checks(
            Category.GROUP, [one for one in GROUP_CHECKS if one.id != "slots"], group
        )
    clocks = ClockFacts(
        reader="the operator", ahead=no, uncertainty=timedelta(0), nodes=no, allowed=DEFAULT_SKEW
    )
    results += run_checks(Category.CLOCKS, CLOCK_CHECKS, clocks)
    if subject.manifest is not None:
        pods: Fact[tuple[PodObservation, ...]] = no
        workers = WorkerFacts(
            consumers=no,
            pods=pods,
            others=no,
            has_workload=bool(read_resource(subject.manifest).target),
        )
        results += run_checks(Category.WORKERS, WORKER_CHECKS, workers)
    return results


async def examine_cluster(
    cluster: ClusterReader, manifest: Object | None, *, is_before: bool, subject: str | None
) -> list[CheckResult]:
    """Run the checks that need the API server alone."""
    results: list[CheckResult] = []
    if manifest is not None:
        target = await observe_target(cluster, manifest)
        if target is not None:
            results += run_checks(Category.TARGET, TARGET_CHECKS, target)
    namespace = None if manifest is None else manifest["metadata"]["namespace"]
    installation = await observe_installation(
        cluster, namespace=namespace, is_before=is_before, subject=subject
    )
    return results + run_checks(Category.INSTALLATION, INSTALLATION_CHECKS, installation)


async def examine_own_rights(cluster: ClusterReader, namespace: str) -> list[CheckResult]:
    """Review the rights of the operator from within it."""
    facts = await review_own_rights(cluster, namespace)
    return run_checks(Category.INSTALLATION, _RIGHTS, facts)


def merge_results(first: Iterable[CheckResult], second: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the checks of both, by category; of a check in both, the one with an answer."""
    checks: dict[str, CheckResult] = {}
    for check_result in (*first, *second):
        known = checks.get(check_result.id)
        if known is None or known.result is Result.UNKNOWN:
            checks[check_result.id] = check_result
    order = list(Category)
    return sorted(checks.values(), key=lambda one: order.index(one.category))


def worst_of(results: Collection[CheckResult]) -> Result:
    """Return the verdict of a report: its worst result, and `error` if no check was made.

    `ok` means that every check was made and passed.
    """
    outcomes = {one.result for one in results}
    if outcomes <= {Result.UNKNOWN}:
        return Result.ERROR
    return next(one for one in _WORST_FIRST if one in outcomes)


_WORST_FIRST: Final = (Result.ERROR, Result.WARNING, Result.UNKNOWN, Result.OK)
