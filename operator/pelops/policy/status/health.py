"""The conditions for GitOps tools: Reconciling and Stalled, in addition to Ready.

kstatus (Flux, `kubectl`-like tools) and the health scripts for Argo CD in `manifests/argocd` read
these conditions, and `status.observedGeneration`:

    Ready is True         healthy         neither of the two
    Reconciling is True   in progress     Pelops tries again, or waits for something
    Stalled is True       failed          a user must change something

A reason in `NEEDS_CHANGE` is Stalled at once. Every other problem is Reconciling first, because a
missing Secret, Deployment or server is often applied together with the resource. It is Stalled
after `PROGRESS_DEADLINE`. A reason in `UNDER_WAY` is never Stalled: if a rollout of workers makes
no progress, Kubernetes reports that with another reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.domain.condition import Condition, parse_time
from pelops.policy.status.reasons import NEEDS_CHANGE, UNDER_WAY, ConditionType, Reason

PROGRESS_DEADLINE: Final = timedelta(minutes=10)  # the default of a Deployment


def decide_health(
    ready: Condition, previous: Iterable[Mapping[str, Any]], *, generation: int, now: datetime
) -> list[Condition]:
    """Return Reconciling or Stalled; neither while Ready is True or the resource is suspended.

    `previous` are the conditions that the API server has, `generation` is the current one of the
    resource. Only conditions of this generation count: a change of the spec restarts the deadline.
    """
    if ready.is_true or ready.reason == Reason.SUSPENDED:
        return []
    if ready.reason in NEEDS_CHANGE:
        return [_stalled(ready, ready.message)]
    current_conditions = {
        condition.get("type"): condition
        for condition in previous
        if condition.get("observedGeneration") == generation and condition.get("status") == "True"
    }
    if _is_overdue(ready, current_conditions, now):
        minutes = PROGRESS_DEADLINE // timedelta(minutes=1)
        return [_stalled(ready, f"Not ready for more than {minutes} minutes: {ready.message}")]
    return [
        Condition(
            type=ConditionType.RECONCILING,
            status="True",
            reason=ready.reason,
            message=ready.message,
            begins_with_generation=True,
        )
    ]


def stays_as_it_is(ready: Condition) -> bool:
    """Whether time alone does not make a resource Stalled."""
    return ready.is_true or ready.reason in UNDER_WAY


def is_attended(status: Mapping[str, Any], generation: int) -> bool:
    """Whether a status shows that a replica has done all that this generation requires."""
    if status.get("observedGeneration") != generation:
        return False
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    found = (one for one in conditions if one.get("type") == ConditionType.READY)
    ready: Mapping[str, Any] = next(found, {})
    return ready.get("status") == "True" or ready.get("reason") == Reason.WORKERS_NOT_READY


def shows_nothing_pending(status: Mapping[str, Any], generation: int) -> bool:
    """Whether a status shows `is_attended` and a group without pending entries."""
    group = status.get("group") or {}
    return is_attended(status, generation) and group.get("pending") == 0


def _is_overdue(
    ready: Condition, current_conditions: Mapping[Any, Mapping[str, Any]], now: datetime
) -> bool:
    stalled = current_conditions.get(ConditionType.STALLED, {})
    if stalled and stalled.get("reason") not in NEEDS_CHANGE:
        return True  # a container that restarts repeatedly is not progress
    if ready.reason in UNDER_WAY:
        return False
    since = parse_time(
        current_conditions.get(ConditionType.RECONCILING, {}).get("lastTransitionTime")
    )
    return since is not None and now - since >= PROGRESS_DEADLINE


def _stalled(ready: Condition, message: str) -> Condition:
    return Condition(
        type=ConditionType.STALLED, status="True", reason=ready.reason, message=message
    )
