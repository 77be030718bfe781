"""The dashboard of all groups: which one needs a person."""

from __future__ import annotations

from typing import Final

from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, Reason
from tools.dashboards.model import (
    GREEN,
    RED,
    Dashboard,
    Panel,
    Query,
    Row,
    Unit,
    Variable,
    red_from,
    stat,
    states,
    table,
    time_series,
    warn_from,
)

ALARM_TYPES: Final = "|".join((*ALARMS, *AUDIT_ALARMS))
READY_TEXTS: Final = {"0": ("Not ready", RED), "1": ("Ready", GREEN)}
_SELECTED: Final = 'namespace=~"$namespace"'


def _fact(metric: str) -> str:
    """Select the largest of what the replicas of the operator export of each group."""
    return f"max by (namespace, name) ({metric}{{{_SELECTED}}})"


def _rate(metric: str, by: str = "namespace, name") -> str:
    return f"sum by ({by}) (rate({metric}{{{_SELECTED}}}[$__rate_interval]))"


def _fact_rate(metric: str) -> str:
    return f"max by (namespace, name) (rate({metric}{{{_SELECTED}}}[$__rate_interval]))"


def prefer_bad(each: str, selected: str, labels: str) -> str:
    """Take one condition where replicas of the operator disagree for a moment: one that is False.

    `selected` is a selector of `pelops_condition` whose brace is open.
    """
    both = f'2 * {selected},status="False"}} or {selected},status!="False"}}'
    return f"topk by ({each}) (1, max by ({labels}) ({both}))"


# A replica that says that a group is not ready wins.
_READINESS: Final = f"min by (namespace, name) (pelops_ready{{{_SELECTED}}})"
_BACKLOG: Final = f"({_fact('pelops_lag_entries')} >= 0) + {_fact('pelops_pending_entries')}"
_REQUEUED: Final = _rate("pelops_requeued_total")
_RELEASED: Final = _rate("pelops_released_total")
# Each has only the groups whose strategy does it.
_RECOVERED: Final = f"({_REQUEUED} + {_RELEASED}) or {_REQUEUED} or {_RELEASED}"
_BY_GROUP: Final = "{{namespace}}/{{name}}"


def _by_group(title: str, expression: str, description: str, **more: object) -> Panel:
    query = Query(expression=expression, legend=_BY_GROUP)
    return time_series(title, [query], description, **{"width": 12, **more})


_TILES: Final = (
    stat(
        "Groups",
        f"count({_READINESS})",
        "Number of StreamConsumerGroups.",
    ),
    stat(
        "Not ready",
        f"count({_READINESS} == 0) or vector(0)",
        "Number of groups whose condition Ready is not True. The table shows the reason.",
        steps=red_from(1),
    ),
    stat(
        "With alarms",
        "count(count by (namespace, name) (pelops_condition"
        f'{{{_SELECTED},type=~"{ALARM_TYPES}",status="True"}})) or vector(0)',
        "Number of groups and audits with an alarm condition, such as DataLoss. A person must act.",
        steps=red_from(1),
    ),
    stat(
        "Backlog",
        f"sum({_BACKLOG})",
        "Number of undelivered and pending entries of all groups; without groups whose lag is "
        "unknown.",
    ),
    stat(
        "Oldest undelivered",
        f"max({_fact('pelops_oldest_undelivered_seconds')} >= 0)",
        "Seconds since the oldest undelivered entry of any group was added.",
        unit=Unit.SECONDS,
        steps=warn_from(60, 600),
    ),
    stat(
        "Stuck entries",
        f"sum({_fact('pelops_stuck_entries')} >= 0)",
        "Number of stuck entries that the last scans left pending, of all groups.",
        steps=warn_from(1),
    ),
    stat(
        "Dead letters",
        f"sum({_fact('pelops_dead_letters')} >= 0)",
        "Number of entries in all dead-letter streams.",
        steps=warn_from(1),
    ),
    stat(
        "At maximum",
        f"count({_fact('pelops_desired_replicas')} >= {_fact('pelops_max_replicas')}) or vector(0)",
        "Number of groups that scaling has given the maximum number of workers.",
        steps=warn_from(1),
    ),
)

_TABLE: Final = table(
    "Groups, worst first",
    (
        Query(
            expression=_fact("pelops_oldest_undelivered_seconds"),
            legend="Oldest undelivered",
            unit=Unit.SECONDS,
            steps=warn_from(60, 600),
            width=130,
        ),
        Query(
            expression=prefer_bad(
                "namespace, name",
                f'pelops_condition{{{_SELECTED},kind="StreamConsumerGroup",type="Ready"',
                "namespace, name, reason",
            ),
        ),
        Query(expression=_fact("pelops_lag_entries"), legend="Undelivered", width=100),
        Query(expression=_fact("pelops_pending_entries"), legend="Pending"),
        Query(
            expression=_fact("pelops_stuck_entries"), legend="Stuck", steps=warn_from(1), width=70
        ),
        Query(
            expression=_fact("pelops_oldest_pending_idle_seconds"),
            legend="No heartbeat",
            unit=Unit.SECONDS,
            width=100,
        ),
        Query(
            expression=_fact_rate("pelops_entries_added_total"),
            legend="Added",
            unit=Unit.PER_SECOND,
        ),
        Query(
            expression=_fact_rate("pelops_entries_read_total"),
            legend="Delivered",
            unit=Unit.PER_SECOND,
        ),
        Query(expression=_fact("pelops_worker_replicas"), legend="Workers"),
        Query(expression=_fact("pelops_desired_replicas"), legend="Wanted"),
        Query(expression=_fact("pelops_max_replicas"), legend="Max.", width=60),
        Query(
            expression=_fact("pelops_dead_letters"),
            legend="Dead letters",
            steps=warn_from(1),
            width=100,
        ),
    ),
    "All groups; the one with the oldest undelivered entry comes first. Ready repeats the reason "
    "of the condition. A number that is unknown is NaN. The name leads to the dashboard of the "
    "group.",
    labels={"namespace": "Namespace", "name": "Name", "reason": "Ready"},
    well={"Ready": (Reason.READY, Reason.SUSPENDED, Reason.DRY_RUN)},
    link="pelops-group",
    height=9,
)

_READY: Final = states(
    "Ready",
    Query(expression=_READINESS, legend=_BY_GROUP),
    "The condition Ready of each group over time.",
    texts=READY_TEXTS,
    width=12,
)
_ALARMS: Final = table(
    "Alarms and reasons",
    (
        Query(
            expression="max by (kind, namespace, name, type, reason) (pelops_condition"
            f'{{{_SELECTED},type=~"{ALARM_TYPES}",status="True"}})'
            " or max by (kind, namespace, name, type, reason) (pelops_condition"
            f'{{{_SELECTED},type=~"GroupReady|WorkloadReady|ScalingActive|RecoveryHealthy"'
            ',status="False",reason!="ScalingDisabled"})',
            legend="",
        ),
    ),
    "Alarm conditions that are True, and conditions that are False, with their reasons. "
    "The runbook has a page for each.",
    labels={
        "kind": "Kind",
        "namespace": "Namespace",
        "name": "Name",
        "type": "Condition",
        "reason": "Reason",
    },
    width=12,
)

FLEET: Final = Dashboard(
    name="fleet",
    title="Pelops / Fleet",
    description="All StreamConsumerGroups: which one needs a person.",
    variables=(
        Variable(name="namespace", label="Namespace", metric="pelops_ready", source="namespace"),
    ),
    rows=(
        Row(title="Now", panels=(*_TILES, _TABLE)),
        Row(title="Conditions", panels=(_READY, _ALARMS)),
        Row(
            title="Backlog and workers",
            panels=(
                _by_group(
                    "Backlog",
                    _BACKLOG,
                    "Number of undelivered and pending entries of each group; absent while the lag "
                    "is unknown.",
                ),
                _by_group(
                    "Oldest undelivered entry",
                    f"{_fact('pelops_oldest_undelivered_seconds')} >= 0",
                    "Seconds since the oldest undelivered entry of each group was added: the lag "
                    "in time.",
                    unit=Unit.SECONDS,
                ),
                _by_group(
                    "Entries added",
                    _fact_rate("pelops_entries_added_total"),
                    "Number of entries per second that producers and recovery add to each stream.",
                    unit=Unit.PER_SECOND,
                ),
                _by_group(
                    "Workers",
                    _fact("pelops_worker_replicas"),
                    "Number of worker pods of each group.",
                ),
            ),
        ),
        Row(
            title="Recovery and dead letters",
            panels=(
                _by_group(
                    "Entries recovered",
                    _RECOVERED,
                    "Number of stuck entries per second that were requeued or released, of each "
                    "group.",
                    unit=Unit.PER_SECOND,
                    width=8,
                ),
                _by_group(
                    "Stuck entries",
                    f"{_fact('pelops_stuck_entries')} >= 0",
                    "Number of stuck entries that the last scan of each group left pending.",
                    width=8,
                ),
                _by_group(
                    "Dead letters",
                    _fact("pelops_dead_letters"),
                    "Number of entries in the dead-letter stream of each group, from the operator "
                    "and from workers.",
                    width=8,
                ),
            ),
        ),
    ),
)
