"""Facts about one StreamConsumerGroup, read from its JSON without the API models.

Importing the models takes longer than everything else that `pelops status` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.cli.display.tables import Style
from pelops.cli.kubectl import Object

# Who paused a group, when and why: `pelops pause` writes them, `pelops resume` removes them.
PAUSED_BY: Final = "pelops.dev/paused-by"
PAUSED_AT: Final = "pelops.dev/paused-at"
PAUSE_REASON: Final = "pelops.dev/pause-reason"

_SUMMARY_TYPES: Final = frozenset({"Ready", "Reconciling", "Stalled"})
# Conditions that are good when True; of all others True is a problem.
_GOOD_TYPES: Final = frozenset(
    {"GroupReady", "WorkloadReady", "ScalingActive", "RecoveryHealthy", "RetentionActive"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionFacts:
    """One condition of the status."""

    type: str
    status: str
    reason: str
    message: str
    since: str

    @property
    def is_good(self) -> bool:
        """Whether the condition is as it is when everything works."""
        return self.status == ("True" if self.type in _GOOD_TYPES | {"Ready"} else "False")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedGroup:
    """One group, as its spec and status describe it. None stands for unknown."""

    namespace: str
    name: str
    created: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    annotations: Mapping[str, str]
    observed: bool  # whether the status describes the newest spec
    deleting: bool
    conditions: tuple[ConditionFacts, ...]

    @property
    def ready(self) -> ConditionFacts:
        """The condition Ready, Unknown if the operator has not observed the newest spec."""
        condition = next((one for one in self.conditions if one.type == "Ready"), None)
        if condition is not None and (self.observed or condition.status != "True"):
            return condition
        message = "the operator has not observed " + (
            "the resource" if condition is None else "the newest spec"
        )
        return ConditionFacts(
            type="Ready", status="Unknown", reason="NotObserved", message=message, since=""
        )

    @property
    def is_ready(self) -> bool:
        return self.ready.status == "True"

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def style(self) -> Style:
        """The color of the group's state."""
        if self.is_suspended:
            return Style.WARNING
        if self.is_ready:
            return Style.GOOD
        return Style.WARNING if self.is_in_progress else Style.BAD

    @property
    def state(self) -> str:
        """The group's state in a few words."""
        if not self.is_ready:
            return f"Not ready: {self.ready.reason}"
        return "Paused" if self.is_suspended else "Ready"

    @property
    def is_in_progress(self) -> bool:
        """Whether the group is not Ready, and no person needs to act."""
        return self.ready.status == "Unknown" or any(
            one.type == "Reconciling" and one.status == "True" for one in self.conditions
        )

    @property
    def other_conditions(self) -> tuple[ConditionFacts, ...]:
        """The conditions that Ready summarizes."""
        return tuple(one for one in self.conditions if one.type not in _SUMMARY_TYPES)

    @property
    def group_name(self) -> str:
        return str(self.spec.get("group") or self.name)

    @property
    def lag(self) -> int | None:
        """Number of undelivered entries, or a lower bound if `lag_known` is false."""
        return _int(self.part("group").get("lag"))

    @property
    def lag_known(self) -> bool:
        return bool(self.part("group").get("lagKnown"))

    @property
    def lag_cell(self) -> str | None:
        """The lag as a table shows it; None if nothing was observed."""
        if self.lag is None:
            return "unknown" if self.part("group") else None
        return f"{self.lag:,}" if self.lag_known else f">={self.lag:,}"

    @property
    def pending(self) -> int | None:
        return _int(self.part("group").get("pending"))

    @property
    def stuck(self) -> int | None:
        return _int(self.part("recovery").get("stuck"))

    @property
    def dead_letters(self) -> int | None:
        return _int(self.part("deadLetter").get("length"))

    @property
    def oldest_pending_time(self) -> str | None:
        """Time at which the oldest pending entry was added."""
        found = self.part("group").get("oldestPendingTime")
        return None if found is None else str(found)

    @property
    def workers(self) -> tuple[int, int] | None:
        """Workers that are ready, and workers that are wanted; None if there is no workload."""
        ready, wanted = self.status.get("readyReplicas"), self.status.get("desiredReplicas")
        if ready is None and wanted is None:
            return None
        return _int(ready) or 0, _int(wanted) or 0

    @property
    def workers_cell(self) -> str | None:
        return None if self.workers is None else f"{self.workers[0]}/{self.workers[1]}"

    def part(self, name: str) -> Mapping[str, Any]:
        """A part of the status, such as `group`; empty if it is absent."""
        found = self.status.get(name)
        return found if isinstance(found, Mapping) else {}


def read_group(resource: Object) -> DisplayedGroup:
    """Return the facts of a StreamConsumerGroup that the API server returned."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    return DisplayedGroup(
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=metadata.get("creationTimestamp", ""),
        spec=resource.get("spec") or {},
        status=status,
        annotations=metadata.get("annotations") or {},
        observed=status.get("observedGeneration") == metadata.get("generation"),
        deleting="deletionTimestamp" in metadata,
        conditions=tuple(_read_conditions(status.get("conditions") or ())),
    )


def render_facts(group: DisplayedGroup) -> Object:
    """Return the group as `-o json` shows it; an unknown number is null."""
    ready = group.ready
    return {
        "namespace": group.namespace,
        "name": group.name,
        "ready": ready.status,
        "reason": ready.reason,
        "message": ready.message,
        "stream": group.spec.get("stream"),
        "group": group.group_name,
        "lag": group.lag,
        "lagKnown": group.lag_known,
        "pending": group.pending,
        "stuck": group.stuck,
        "oldestPendingTime": group.oldest_pending_time,
        "deadLetters": group.dead_letters,
        "readyReplicas": group.status.get("readyReplicas"),
        "desiredReplicas": group.status.get("desiredReplicas"),
        "suspended": group.is_suspended,
        "pausedBy": group.annotations.get(PAUSED_BY),
        "pausedAt": group.annotations.get(PAUSED_AT),
        "pauseReason": group.annotations.get(PAUSE_REASON),
        "conditions": list(group.status.get("conditions") or ()),
    }


def suggest_next(group: DisplayedGroup) -> tuple[str, ...]:
    """Return the words of the command that helps with the group; empty if nothing is wrong."""
    where = (group.name, "-n", group.namespace)
    if group.is_suspended:
        return ("resume", *where)
    failing = {one.type for one in group.other_conditions if not one.is_good}
    if "GroupReady" in failing or group.part("group") == {}:
        return ("doctor", *where)
    if group.stuck or "RecoveryHealthy" in failing:
        return ("pending", *where)
    if group.dead_letters:
        return ("dlq", "list", *where)
    # The message of a workload that is not ready names its pods.
    return () if group.is_ready or failing == {"WorkloadReady"} else ("doctor", *where)


def _read_conditions(conditions: Iterable[Mapping[str, Any]]) -> Iterable[ConditionFacts]:
    for condition in conditions:
        yield ConditionFacts(
            type=str(condition.get("type")),
            status=str(condition.get("status")),
            reason=str(condition.get("reason", "")),
            message=str(condition.get("message", "")),
            since=str(condition.get("lastTransitionTime", "")),
        )


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
