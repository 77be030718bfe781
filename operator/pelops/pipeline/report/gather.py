"""A group's part of the report, read from the archive: audit.json, and what Parquet tells more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from pelops.domain.audit import AuditSummary, EntryStatus, parse_summary
from pelops.pipeline.engine import on_driver
from pelops.pipeline.layout import WindowPlace, stream_path, window_numbers
from pelops.pipeline.plan import parse_plan
from pelops.pipeline.report.gather_rows import (
    read_duplicates,
    read_exceptions,
    read_indeterminate,
    read_stuck_ages,
    read_timeline,
)
from pelops.pipeline.report.model import (
    Comparison,
    CountCheck,
    GroupReport,
    Letters,
    Spread,
    Unproven,
)
from pelops.pipeline.settings import Target
from pelops.pipeline.work import Run

EARLIER: Final = 12  # windows before the newest one that are told
_SPREADS: Final = {
    "recovery_ms": "From delivery to recovery",
    "age_when_moved_ms": "From arrival to recovery",
    "pending_idle_ms": "Pending until now",
}
_MOST_DELIVERIES: Final = 20


def gather_group(
    run: Run, target: Target, find_letters: Callable[[], Letters | None]
) -> GroupReport | None:
    """The group in its newest window that was audited; None when there is none."""
    audited = list(islice(find_audits(run, target), EARLIER + 1))
    if not audited:
        return None
    with on_driver(_is_small(run, audited[0][1])):
        return _read_group(run, target, audited, find_letters)


def _is_small(run: Run, audit: Mapping[str, Any]) -> bool:
    """Whether the rows of a window are read without Spark."""
    summary = _summary(audit)
    return summary.produced + summary.archived + summary.open < run.settings.spark_from


def _read_group(
    run: Run,
    target: Target,
    audited: Sequence[tuple[WindowPlace, Mapping[str, Any]]],
    find_letters: Callable[[], Letters | None],
) -> GroupReport:
    place, audit = audited[0]
    summary = _summary(audit)
    times = audit.get("times", {})
    return GroupReport(
        summary=summary,
        earlier=tuple(_summary(one) for _, one in reversed(audited[1:])),
        checks=_checks(audit, summary),
        roots={EntryStatus(name): count for name, count in audit.get("roots", {}).items()},
        timeline=read_timeline(run, place, target.group),
        stuck_ages=read_stuck_ages(run, place, target.group),
        exceptions=read_exceptions(run, place, target.group),
        letters=find_letters(),
        duplicates=read_duplicates(run, place, audit.get("duplicates", {}).get("found", {})),
        unproven=(
            *_not_audited(run, place),
            *_limits(audit),
            *read_indeterminate(run, place, target.group),
        ),
        deliveries=_deliveries(times.get("deliveries_when_moved")),
        spreads=tuple(_spreads(times)),
        comparisons=tuple(_comparisons(audit)),
    )


def find_groups(run: Run, stream: str, targets: Sequence[Target]) -> list[Target]:
    """The groups of a stream that its newest windows were audited for, beside those of this run."""
    found = {target.group: target for target in targets}
    for place in islice(_windows(run, stream), EARLIER + 1):
        path = place.part("plan.json")
        plan = run.storage.read_json(path)
        for target in () if plan is None else parse_plan(plan, path).targets:
            found.setdefault(target.group, target)
    return list(found.values())


def find_audits(run: Run, target: Target) -> Iterator[tuple[WindowPlace, dict[str, Any]]]:
    """The windows in which a group was audited, the newest first."""
    for place in _windows(run, target.stream):
        audit = run.storage.read_json(place.of_group(target.group, "audit.json"))
        if audit is not None:
            yield place, audit


def _windows(run: Run, stream: str) -> Iterator[WindowPlace]:
    names = run.storage.list_names(stream_path(run.settings.archive, stream))
    for number in reversed(window_numbers(names)):
        yield WindowPlace(root=run.settings.archive, stream=stream, number=number)


def _summary(audit: Mapping[str, Any]) -> AuditSummary:
    return parse_summary(json.dumps(audit["summary"]))


def _checks(audit: Mapping[str, Any], summary: AuditSummary) -> tuple[CountCheck, ...]:
    """The identities that the audit has checked; of an older audit that of its own counts."""
    told = audit.get("identities")
    if not told:
        found = sum(summary.counts.values())
        return (CountCheck(name="produced", expected=summary.produced, found=found),)
    return tuple(
        CountCheck(name=one["name"], expected=one["expected"], found=one["found"]) for one in told
    )


def _not_audited(run: Run, place: WindowPlace) -> Iterator[Unproven]:
    """Windows after the newest one that was audited for the group."""
    newest = next(_windows(run, place.stream), place).number
    if newest > place.number:
        first = place.number + 1
        which = f"Window {first} was" if newest == first else f"Windows {first} to {newest} were"
        yield Unproven(
            why="not-audited",
            entries=None,
            sentence=f"{which} not audited for this group yet: this report ends before.",
        )


def _limits(audit: Mapping[str, Any]) -> Iterator[Unproven]:
    for sentence in audit.get("limits", ()):
        yield Unproven(why="limit", entries=None, sentence=sentence)


def _deliveries(histogram: Mapping[str, int] | None) -> tuple[int, ...] | None:
    if histogram is None:
        return None
    return tuple(histogram.get(str(number), 0) for number in range(1, _MOST_DELIVERIES + 1))


def _spreads(times: Mapping[str, Any]) -> Iterator[Spread]:
    for key, name in _SPREADS.items():
        told = times.get(key)
        if told:
            p50, p90, p99, most = (
                timedelta(milliseconds=told[part]) for part in ("p50", "p90", "p99", "p100")
            )
            yield Spread(name=name, entries=told["n"], p50=p50, p90=p90, p99=p99, most=most)


def _comparisons(audit: Mapping[str, Any]) -> Iterator[Comparison]:
    told = {
        "never-arrived": ("sent", "never_arrived", "Sent by your table, and in no entry."),
        "without-effect": ("effects", "without_effect", "Acknowledged, and not in your table."),
    }
    for kind, (part, name, sentence) in told.items():
        if part in audit:
            found = audit[part]
            yield Comparison(
                kind=kind,
                count=found[name],
                sentence=sentence,
                examples=tuple(map(str, found.get("examples", ()))),
            )
