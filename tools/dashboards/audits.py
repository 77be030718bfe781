"""The dashboard of audits: whether every entry is accounted for."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import (
    BLUE,
    GREEN,
    ORANGE,
    Dashboard,
    Query,
    Row,
    Steps,
    Unit,
    Variable,
    bars,
    red_below,
    red_from,
    stat,
    table,
    time_series,
    warn_from,
)

_SELECTED: Final = 'namespace=~"$namespace",name=~"$name"'
_EACH: Final = "namespace, name, stream, group"
_LEGEND: Final = "{{stream}}, {{group}}"


def _fact(metric: str, by: str = _EACH, more: str = "") -> str:
    return f"max by ({by}) ({metric}{{{_SELECTED}{more}}})"


_TILES: Final = (
    stat(
        "Audits reconciled",
        "max(pelops_audits_served)",
        "Yes while StreamAudits are reconciled; no while their CRD or the permissions are missing.",
        unit=Unit.NONE,
        texts={"0": ("No", ORANGE), "1": ("Yes", GREEN)},
        steps=Steps(colors=(ORANGE, GREEN), limits=(1,)),
        width=4,
    ),
    stat(
        "Audited groups",
        f"count({_fact('pelops_audit_window_timestamp_seconds')}) or vector(0)",
        "Number of groups with at least one closed window.",
        width=4,
    ),
    stat(
        "Lost entries",
        f"sum({_fact('pelops_audit_lost_entries')}) or vector(0)",
        "Number of entries that are proven lost, and not acknowledged by a person.",
        steps=red_from(1),
        width=4,
    ),
    stat(
        "Alarms",
        f"sum({_fact('pelops_audit_alarm', 'namespace, name, type')}) or vector(0)",
        "Number of alarm conditions of StreamAudits.",
        steps=red_from(1),
        width=4,
    ),
    stat(
        "Oldest window",
        f"time() - min({_fact('pelops_audit_window_timestamp_seconds')})",
        "Seconds since the newest window of a group was closed, of the group where that is longest "
        "ago.",
        unit=Unit.SECONDS,
        steps=warn_from(86400, 172800),
        width=4,
    ),
    stat(
        "Smallest retention margin",
        f"min({_fact('pelops_audit_retention_margin_ratio')} >= -1e9)",
        "Smallest share of the entries in a stream that are archived. Below 0, entries were "
        "trimmed before they were archived.",
        unit=Unit.RATIO,
        steps=red_below(0, 0.25),
        width=4,
    ),
)

AUDITS: Final = Dashboard(
    name="audits",
    title="Pelops / Audits",
    description="StreamAudits: whether every entry is accounted for.",
    variables=(
        Variable(
            name="namespace",
            label="Namespace",
            metric="pelops_audit_window_timestamp_seconds",
            source="namespace",
        ),
        Variable(
            name="name",
            label="Audit",
            metric='pelops_audit_window_timestamp_seconds{namespace=~"$namespace"}',
            source="name",
        ),
    ),
    rows=(
        Row(title="Now", panels=_TILES),
        Row(
            title="Entries of the newest window",
            panels=(
                table(
                    "Groups",
                    (
                        Query(
                            expression=_fact("pelops_audit_lost_entries"),
                            legend="Lost",
                            steps=red_from(1),
                        ),
                        Query(
                            expression=f"time() - {_fact('pelops_audit_window_timestamp_seconds')}",
                            legend="Window closed",
                            unit=Unit.SECONDS,
                            width=110,
                        ),
                        Query(
                            expression=f"sum by ({_EACH}) "
                            f"({_fact('pelops_audit_entries', f'{_EACH}, status')})",
                            legend="Entries",
                        ),
                        Query(
                            expression=_fact("pelops_audit_oldest_stuck_seconds"),
                            legend="Oldest stuck",
                            unit=Unit.SECONDS,
                            width=100,
                        ),
                        Query(
                            expression=_fact("pelops_audit_retention_margin_ratio"),
                            legend="Margin",
                            unit=Unit.RATIO,
                            steps=red_below(0, 0.25),
                        ),
                    ),
                    "The audited groups; those with lost entries come first.",
                    labels={
                        "namespace": "Namespace",
                        "name": "Audit",
                        "stream": "Stream",
                        "group": "Group",
                    },
                    width=14,
                ),
                bars(
                    "Entries by status",
                    Query(
                        expression="sort_desc(sum by (status) "
                        f"({_fact('pelops_audit_entries', f'{_EACH}, status')}) > 0)",
                        legend="{{status}}",
                        color=BLUE,
                    ),
                    "Number of entries of the newest windows by status, of all selected groups.",
                    width=10,
                ),
            ),
        ),
        Row(
            title="Over time",
            panels=(
                time_series(
                    "Lost entries",
                    (Query(expression=_fact("pelops_audit_lost_entries"), legend=_LEGEND),),
                    "Number of entries of each group that are proven lost, and not acknowledged by "
                    "a person.",
                    width=12,
                ),
                time_series(
                    "Oldest stuck entry",
                    (Query(expression=_fact("pelops_audit_oldest_stuck_seconds"), legend=_LEGEND),),
                    "Seconds since the oldest stuck entry of each group was added, at the time of "
                    "the audit.",
                    unit=Unit.SECONDS,
                    width=12,
                ),
                time_series(
                    "Time to recovery",
                    (
                        Query(
                            expression=_fact("pelops_audit_recovery_seconds", f"{_EACH}, quantile"),
                            legend="{{group}}, quantile {{quantile}}",
                        ),
                    ),
                    "Seconds from the first observation of a stuck entry until it was recovered, "
                    "in the newest window, by quantile.",
                    unit=Unit.SECONDS,
                    width=12,
                ),
                time_series(
                    "Retention margin",
                    (
                        Query(
                            expression="clamp_min("
                            f"{_fact('pelops_audit_retention_margin_ratio')}, -1)",
                            legend=_LEGEND,
                        ),
                    ),
                    "Share of the entries in each stream that are archived. Below 0, entries were "
                    "trimmed before they were archived; the lowest value shown is -100%.",
                    unit=Unit.RATIO,
                    width=12,
                ),
                time_series(
                    "Age of the newest window",
                    (
                        Query(
                            expression=f"time() - {_fact('pelops_audit_window_timestamp_seconds')}",
                            legend=_LEGEND,
                        ),
                    ),
                    "Seconds since the newest window of each group was closed. It grows until the "
                    "next audit ends.",
                    unit=Unit.SECONDS,
                    width=12,
                ),
                time_series(
                    "Alarms",
                    (
                        Query(
                            expression=_fact("pelops_audit_alarm", "namespace, name, type"),
                            legend="{{name}}: {{type}}",
                        ),
                    ),
                    "1 while a StreamAudit has the alarm condition.",
                    unit=Unit.NONE,
                    width=12,
                ),
            ),
        ),
    ),
)
