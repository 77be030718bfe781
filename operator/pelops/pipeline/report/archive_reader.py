"""A group's part of the report, read from the archive: its audit.json and the tables beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from pelops.domain.audit import EXPECTED_STATUSES, AuditSummary, EntryStatus, parse_summary
from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import LedgerKind
from pelops.pipeline.archive.layout import (
    WindowPlace,
    slug,
    statuses_path,
    stream_path,
    window_numbers,
)
from pelops.pipeline.archive.windows import parse_plan
from pelops.pipeline.engine.sql import Column, DataFrame, Row, on_driver, unite
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.report.model import (
    AgeBand,
    Comparison,
    CountCheck,
    DeadLetters,
    Duplicate,
    Duplicates,
    EntrySource,
    ExceptionalEntry,
    Exceptions,
    GroupReport,
    Spread,
    Timeline,
    Unproven,
)
from pelops.pipeline.settings import AuditTarget
from pelops.pipeline.stages import PipelineRun
from pelops.policy.audit.classification import Why

MOST_ENTRIES: Final = 50  # that are shown one by one
MOST_DUPLICATES: Final = 20
STEPS: Final = 120  # of the timeline, about
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_370_764_800_000  # the year 9999: later ones are no times
_STEPS_MS: Final = (
    1, 10, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000,
    86_400_000,
)  # fmt: skip
_EDGES: Final = tuple(
    timedelta(seconds=seconds) for seconds in (0, 60, 300, 900, 3600, 21_600, 86_400, 604_800)
)
# What is worst comes first.
_WORST: Final = (
    EntryStatus.LOST,
    EntryStatus.PAYLOAD_GONE,
    EntryStatus.INDETERMINATE,
    EntryStatus.STUCK,
    EntryStatus.DEAD_LETTERED,
)
# Tables of a group that keep entries one by one; some are there only where they hold any.
_TABLES: Final = {
    "exceptions": EntrySource.WINDOW,
    "unarchived": EntrySource.WINDOW,
    "settled": EntrySource.SETTLED,
    "retried": EntrySource.COPY,
}
_OF_ENTRY: Final = {
    "ms": "bigint", "seq": "bigint", "status": "string", "why": "string", "reason": "string",
    "consumer": "string", "idle_ms": "bigint", "act_idle_ms": "bigint", "delivery_count": "bigint",
    "root_ms": "bigint", "root_seq": "bigint",
}  # fmt: skip
_INDETERMINATE: Final = {
    Why.POSITION_IN_DOUBT: "The group's position was moved by hand, went back, or is new.",
    Why.PASSED_MEANWHILE: "Delivered during the audit, and no longer pending after it.",
    Why.CONSUMER_DELETED: "Delivered at about the time at which a consumer with pending entries "
    "was deleted.",
    Why.TRIMMED_MEANWHILE: "Trimmed and delivered between two audits: no record shows the order.",
}


def read_timeline(run: PipelineRun, place: WindowPlace, group: str) -> Timeline | None:
    """Arrivals, recoveries and dead letters of the window; None when nothing has a time."""
    acts = run.session.read.parquet(place.part(f"acts/group={slug(group)}"))
    moved = [str(LedgerKind.REQUEUED), str(LedgerKind.RELEASED)]
    frames = (
        run.session.read.parquet(place.part("entries")).select(F.col("ms").alias("at_ms")),
        _acts(acts, moved),
        _acts(acts, [str(LedgerKind.DEAD_LETTERED)]),
    )
    sane = [frame.where((F.col("at_ms") > 0) & (F.col("at_ms") < _LAST_MS)) for frame in frames]
    whole = unite(sane).agg(F.min("at_ms"), F.max("at_ms")).first()
    if whole is None or whole[0] is None:
        return None
    step_ms = _step(whole[1] - whole[0] + 1)
    first = whole[0] // step_ms
    steps = whole[1] // step_ms - first + 1
    arrivals, recoveries, letters = (_count_steps(one, step_ms, first, steps) for one in sane)
    return Timeline(
        start=_EPOCH + timedelta(milliseconds=first * step_ms),
        step=timedelta(milliseconds=step_ms),
        arrivals=arrivals,
        recoveries=recoveries,
        dead_letters=letters,
    )


def read_stuck_ages(run: PipelineRun, place: WindowPlace, group: str) -> tuple[AgeBand, ...]:
    """What is stuck by the time since its last delivery; bands at both ends that are empty go."""
    rows = run.session.read.parquet(place.of_group(group, "open"))
    stuck = rows.where(F.col("status") == str(EntryStatus.STUCK))
    bounds = [*_EDGES[1:], None]
    counts = stuck.agg(
        *(F.count_if(_is_within(low, high)) for low, high in zip(_EDGES, bounds, strict=True))
    ).first()
    bands = [
        AgeBand(at_least=low, below=high, entries=count)
        for low, high, count in zip(_EDGES, bounds, counts or (), strict=True)
    ]
    held = [place for place, band in enumerate(bands) if band.entries]
    return tuple(bands[held[0] : held[-1] + 1]) if held else ()


def read_exceptions(run: PipelineRun, place: WindowPlace, group: str) -> Exceptions:
    """Entries that need a look, from every table of the group: none is left out of a verdict."""
    expected = [str(status) for status in EXPECTED_STATUSES]
    worth = _kept(run, place, group).where(~F.col("status").isin(expected))
    counts: dict[EntrySource, dict[EntryStatus, int]] = {}
    for row in worth.groupBy("source", "status").count().collect():
        of_source = counts.setdefault(EntrySource(row["source"]), {})
        of_source[EntryStatus(row["status"])] = row["count"]
    total = sum(sum(found.values()) for found in counts.values())
    order = F.array_position(F.array(*(F.lit(str(one)) for one in _WORST)), F.col("status"))
    first = worth.orderBy(order, "ms", "seq").limit(MOST_ENTRIES).collect() if total else []
    return Exceptions(
        count=total,
        counts=counts,
        first=tuple(map(_read_entry, first)),
        path=statuses_path(place.root),
    )


def _kept(run: PipelineRun, place: WindowPlace, group: str) -> DataFrame:
    """Every entry that was kept one by one, with the source that it is of."""
    found = [
        _load(run, place.of_group(group, name), source)
        for name, source in _TABLES.items()
        if run.storage.exists(place.of_group(group, name))
    ]
    # The window of what was found pending though none had it open is not known.
    is_earlier = ~F.col("window").eqNullSafe(place.number)
    found.append(_load(run, place.of_group(group, "open"), EntrySource.EARLIER, is_earlier))
    return unite(found)


def _load(
    run: PipelineRun, path: str, source: EntrySource, where: Column | None = None
) -> DataFrame:
    frame = run.session.read.parquet(path)
    chosen = frame if where is None else frame.where(where)
    known = set(frame.columns)
    columns = [
        F.col(name) if name in known else F.lit(None).cast(kind).alias(name)
        for name, kind in _OF_ENTRY.items()
    ]
    return chosen.select(*columns, F.lit(str(source)).alias("source"))


def read_indeterminate(run: PipelineRun, place: WindowPlace, group: str) -> list[Unproven]:
    """Why nothing shows what became of some entries."""
    unsure = _kept(run, place, group).where(F.col("status") == str(EntryStatus.INDETERMINATE))
    counted = unsure.groupBy("why").count().orderBy("why").collect()
    return [
        Unproven(
            why=row["why"],
            entries=row["count"],
            sentence=_INDETERMINATE.get(row["why"], "No record shows their outcome."),
        )
        for row in counted
    ]


def read_duplicates(
    run: PipelineRun, place: WindowPlace, found: Mapping[str, Mapping[str, int]]
) -> Duplicates | None:
    """What came more than once, by each way of looking; None when nobody looked."""
    if not found:
        return None
    first: list[Duplicate] = []
    for way, reported in sorted(found.items()):
        if reported["entries"]:
            frame = run.session.read.parquet(place.part(f"duplicates/{way}"))
            rows = frame.orderBy(F.desc("count"), "value").limit(MOST_DUPLICATES).collect()
            first += [_read_duplicate(way, row) for row in rows]
    return Duplicates(
        entries=sum(reported["entries"] for reported in found.values()),
        first=tuple(sorted(first, key=lambda one: -one.copies)[:MOST_DUPLICATES]),
    )


def _acts(acts: DataFrame, kinds: Sequence[str]) -> DataFrame:
    return acts.where(F.col("kind").isin(list(kinds))).select(F.col("event_ms").alias("at_ms"))


def _step(span_ms: int) -> int:
    """The shortest step that gives no more than about STEPS of them."""
    days = -(-span_ms // (STEPS * _STEPS_MS[-1])) * _STEPS_MS[-1]
    return next((step for step in _STEPS_MS if span_ms <= STEPS * step), days)


def _count_steps(frame: DataFrame, step_ms: int, first: int, steps: int) -> tuple[int, ...]:
    step = (F.floor(F.col("at_ms") / step_ms) - first).alias("step")
    counts = {row["step"]: row["count"] for row in frame.groupBy(step).count().collect()}
    return tuple(counts.get(number, 0) for number in range(steps))


def _is_within(low: timedelta, high: timedelta | None) -> Column:
    idle = F.col("idle_ms")
    above = idle >= low // timedelta(milliseconds=1)
    return above if high is None else above & (idle < high // timedelta(milliseconds=1))


def _read_entry(row: Row) -> ExceptionalEntry:
    is_pending = row["status"] in {EntryStatus.STUCK, EntryStatus.PAYLOAD_GONE}
    idle_ms = row["idle_ms"] if is_pending else row["act_idle_ms"]
    return ExceptionalEntry(
        entry_id=EntryId(row["ms"], row["seq"]),
        status=EntryStatus(row["status"]),
        why=row["reason"] or row["why"],
        consumer=row["consumer"] or "",
        idle=None if idle_ms is None or idle_ms < 0 else timedelta(milliseconds=idle_ms),
        deliveries=row["delivery_count"],
        source=EntrySource(row["source"]),
        root_id=None if row["root_ms"] is None else EntryId(row["root_ms"], row["root_seq"]),
    )


def _read_duplicate(way: str, row: Row) -> Duplicate:
    return Duplicate(
        by=way,
        key=str(row["value"]),
        copies=row["count"],
        examples=tuple(EntryId(one["ms"], one["seq"]) for one in row["ids"]),
    )


EARLIER: Final = 12  # windows before the newest one that are told
_SPREADS: Final = {
    "recovery_ms": "From delivery to recovery",
    "age_when_moved_ms": "From arrival to recovery",
    "pending_idle_ms": "Pending until now",
}
_MOST_DELIVERIES: Final = 20


def read_group(
    run: PipelineRun, target: AuditTarget, find_dead_letters: Callable[[], DeadLetters | None]
) -> GroupReport | None:
    """The group in its newest window that was audited; None when there is none."""
    audited = list(islice(find_audits(run, target), EARLIER + 1))
    if not audited:
        return None
    with on_driver(_is_small(run, audited[0][1])):
        return _read_group(run, target, audited, find_dead_letters)


def _is_small(run: PipelineRun, audit: Mapping[str, Any]) -> bool:
    """Whether the rows of a window are read without Spark."""
    summary = _summary(audit)
    return summary.produced + summary.archived + summary.open < run.settings.spark_from


def _read_group(
    run: PipelineRun,
    target: AuditTarget,
    audited: Sequence[tuple[WindowPlace, Mapping[str, Any]]],
    find_dead_letters: Callable[[], DeadLetters | None],
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
        dead_letters=find_dead_letters(),
        duplicates=read_duplicates(run, place, audit.get("duplicates", {}).get("found", {})),
        unproven=(
            *_not_audited(run, place),
            *_limits(audit),
            *read_indeterminate(run, place, target.group),
        ),
        deliveries=_deliveries(times.get("deliveries_when_moved")),
        times=tuple(_spreads(times)),
        comparisons=tuple(_comparisons(audit)),
    )


def find_groups(run: PipelineRun, stream: str, targets: Sequence[AuditTarget]) -> list[AuditTarget]:
    """The groups of a stream that its newest windows were audited for, beside those of this run."""
    found = {target.group: target for target in targets}
    for place in islice(_windows(run, stream), EARLIER + 1):
        path = place.part("plan.json")
        plan = run.storage.read_json(path)
        for target in () if plan is None else parse_plan(plan, path).targets:
            found.setdefault(target.group, target)
    return list(found.values())


def find_audits(
    run: PipelineRun, target: AuditTarget
) -> Iterator[tuple[WindowPlace, dict[str, Any]]]:
    """The windows in which a group was audited, the newest first."""
    for place in _windows(run, target.stream):
        audit = run.storage.read_json(place.of_group(target.group, "audit.json"))
        if audit is not None:
            yield place, audit


def _windows(run: PipelineRun, stream: str) -> Iterator[WindowPlace]:
    names = run.storage.list_names(stream_path(run.settings.archive, stream))
    for number in reversed(window_numbers(names)):
        yield WindowPlace(root=run.settings.archive, stream=stream, number=number)


def _summary(audit: Mapping[str, Any]) -> AuditSummary:
    return parse_summary(json.dumps(audit["summary"]))


def _checks(audit: Mapping[str, Any], summary: AuditSummary) -> tuple[CountCheck, ...]:
    """The identities that the audit has checked; of an older audit that of its own counts."""
    reported = audit.get("identities")
    if not reported:
        found = sum(summary.counts.values())
        return (CountCheck(name="produced", expected=summary.produced, found=found),)
    return tuple(
        CountCheck(name=one["name"], expected=one["expected"], found=one["found"])
        for one in reported
    )


def _not_audited(run: PipelineRun, place: WindowPlace) -> Iterator[Unproven]:
    """Windows after the newest one that was audited for the group."""
    newest = next(_windows(run, place.stream), place).number
    if newest > place.number:
        first = place.number + 1
        which = f"Window {first} was" if newest == first else f"Windows {first} to {newest} were"
        yield Unproven(
            why="not-audited",
            entries=None,
            sentence=f"{which} not audited for this group yet: this report ends before it.",
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
        reported = times.get(key)
        if reported:
            p50, p90, p99, most = (
                timedelta(milliseconds=reported[part]) for part in ("p50", "p90", "p99", "p100")
            )
            yield Spread(name=name, entries=reported["n"], p50=p50, p90=p90, p99=p99, most=most)


def _comparisons(audit: Mapping[str, Any]) -> Iterator[Comparison]:
    reported = {
        "never-arrived": (
            "sent",
            "never_arrived",
            "Sent according to your table, but not in the stream.",
        ),
        "without-effect": ("effects", "without_effect", "Acknowledged, but not in your table."),
    }
    for kind, (part, name, sentence) in reported.items():
        if part in audit:
            found = audit[part]
            yield Comparison(
                kind=kind,
                count=found[name],
                sentence=sentence,
                examples=tuple(map(str, found.get("examples", ()))),
            )
