"""One round: a window of each stream, from its plan to its findings, as one Spark plan.

The number of Spark jobs does not depend on the number of streams and groups. The last step writes
the findings, which make the round valid. If a run dies before that, the next run repeats the round.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.outcome import COPYING_KINDS, EntryStatus
from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.entries import (
    WindowRange,
    archive_entries,
    count_beyond,
    list_parts,
    place_rows,
    read_round,
)
from pelops.pipeline.archive.ids import LAST_HELD
from pelops.pipeline.archive.ledger import GroupHistory, read_history
from pelops.pipeline.archive.records import Journal, Known, archived_rows, audited_rows, plan_rows
from pelops.pipeline.archive.snapshot import IDS, WindowSnapshot, take_snapshot
from pelops.pipeline.archive.tables import ENTRIES, EVENTS, SCHEMAS, STATUSES, WINDOWS, local_frame
from pelops.pipeline.archive.windows import Plan, StreamRecord
from pelops.pipeline.audit import measures, rules, status_rows
from pelops.pipeline.audit.act_times import find_times
from pelops.pipeline.audit.cases import (
    Case,
    CaseParts,
    FileCreation,
    StreamCounts,
    build_case,
    build_sides,
)
from pelops.pipeline.audit.group_audit import GroupAudit
from pelops.pipeline.audit.known_entries import (
    ENDS,
    SideKnown,
    find_ends,
    know_entries,
    name_copies,
)
from pelops.pipeline.audit.letters import EarlierEntry, find_earlier, find_moves
from pelops.pipeline.audit.rules import RowOrigin
from pelops.pipeline.audit.user_tables import compare_tables
from pelops.pipeline.context import PipelineRun
from pelops.pipeline.errors import RunOvertaken
from pelops.pipeline.evidence.stage import (
    BEFORE_GROUP,
    SOURCE,
    STREAM_DELETED,
    FileFindings,
    archive_evidence,
)
from pelops.pipeline.settings import AuditTarget
from pelops.pipeline.spark_errors import explain_failure, is_of_spark
from pelops.policy.audit.classification import Why

log: Final = logging.getLogger(__name__)
LEDGER: Final = "ledger"  # source of events
_PRESENT: Final = pa.schema([("stream", pa.string()), *IDS])
_CLASSIFIED_TYPES: Final = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
}
_CLASSIFIED: Final = pa.schema(
    [
        (name, _CLASSIFIED_TYPES[kind])
        for name, kind in (part.strip().split(" ") for part in rules.CLASSIFIED_SCHEMA.split(","))
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRound:
    """The entries of a round in the archive."""

    parts: Sequence[WindowRange]
    runs: Mapping[str, int]  # by stream: the run that archived its window
    has_beyond: bool


def archive_round(
    run: PipelineRun, plans: Sequence[Plan], known: Mapping[str, Known], journal: Journal
) -> ArchivedRound:
    """Claim a run for these windows, and archive the entries that are not archived.

    Raises RunOvertaken, ArchiveUnusable, and errors of Spark.
    """
    run.check_time()
    # First, so that a run whose Spark does not start claims nothing.
    spark = run.spark.get(sum(plan.produced for plan in plans))
    archive = run.archive
    archive.claim(plan_rows(plans), since=journal.run)
    _remove_left(run, journal)
    left = [plan for plan in plans if plan.number not in known[plan.stream].archived]
    parts = list_parts(run.watch, plans)
    wanted = [part for part in parts if part.plan in left]
    with _timed("entries archived"), _explained(run):
        has_beyond = archive_entries(spark, run.watch, archive, wanted)
    archive.append(WINDOWS, archived_rows(left))
    runs = {
        plan.stream: known[plan.stream].archived.get(plan.number, archive.run) for plan in plans
    }
    return ArchivedRound(parts=parts, runs=runs, has_beyond=has_beyond)


def _remove_left(run: PipelineRun, journal: Journal) -> None:
    """Remove the rows of runs that did not finish, which are not valid."""
    for dead, is_archived in journal.dead_runs().items():
        for table in (EVENTS, STATUSES, *(() if is_archived else (ENTRIES,))):
            if run.archive.count_rows(table, {dead}):
                removed = run.archive.remove(table, f"run = {dead}")
                if removed:
                    log.info("removed %d rows of %s that run %d left", removed, table, dead)


def audit_round(
    run: PipelineRun, plans: Sequence[Plan], known: Mapping[str, Known], journal: Journal
) -> list[AuditSummary]:
    """Archive and audit one window of each stream; return the summary of each group.

    Raises RunOvertaken, ArchiveUnusable, StageFailed and RedisStreamsError.
    """
    archived = archive_round(run, plans, known, journal)
    try:
        return _Round(run, plans, known, archived).audit()
    except RunOvertaken:
        for table in (EVENTS, STATUSES):
            run.archive.remove(table, f"run = {run.archive.run}")
        raise


class _Round:
    """The audit of one round."""

    def __init__(
        self,
        run: PipelineRun,
        plans: Sequence[Plan],
        known: Mapping[str, Known],
        archived: ArchivedRound,
    ) -> None:
        self.run = run
        self.plans = plans
        self.known = known
        self.archived = archived
        self.has_files = run.settings.aof_path is not None
        self.snapshots: dict[str, WindowSnapshot] = {}
        self.histories: dict[tuple[str, str], GroupHistory] = {}
        self.files = FileFindings(rows=0, created={})

    def audit(self) -> list[AuditSummary]:
        run = self.run
        with _timed("groups observed"):
            self._take_snapshots()
        run.check_time()
        with _timed("events archived"):
            self._archive_events()
        run.check_time()
        with _timed("entries audited"), _explained(run):
            audits, written = self._audit_groups()
        groups = [audit.build() for audit in audits]
        run.check_time()
        with _timed("statuses written"), _explained(run):
            written()
        rows = []
        for plan in self.plans:
            ours = [one for one in groups if one.summary.stream == plan.stream]
            rows.append(audited_rows(self._record(plan), ours))
        run.archive.end(pa.concat_tables(rows))
        return [one.summary for one in groups]

    def _take_snapshots(self) -> None:
        watch = self.run.watch
        for plan in self.plans:
            self.snapshots[plan.stream] = take_snapshot(watch, plan, self.known[plan.stream])
            for target in plan.targets:
                keys = derive_keys(plan.stream, target.group)
                after = plan.ledger_from.get(target.group, EntryId.MIN)
                self.histories[plan.stream, target.group] = read_history(watch, keys, after)

    def _archive_events(self) -> None:
        archive, settings = self.run.archive, self.run.settings
        rows = [
            _event_rows(self.histories[plan.stream, target.group].acts, plan, target.group)
            for plan in self.plans
            for target in plan.targets
        ]
        archive.append(EVENTS, pa.concat_tables([SCHEMAS[EVENTS].empty_table(), *rows]))
        if settings.aof_path is not None:
            self.files = archive_evidence(archive, settings, self.plans, self.known)

    # Spark.

    def _audit_groups(self) -> tuple[list[GroupAudit], Callable[[], None]]:
        """Audit all groups; return their audits, and a function that writes the statuses."""
        spark, archive = self.run.spark.get(), self.run.archive
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        entries = read_round(spark, archive, place_rows(self.archived.parts, self.archived.runs))
        entries.createOrReplaceTempView("pelops_entries")
        cases, counts = self._cases(spark)
        moves = {case.g: find_moves(case.history.acts, case.retry) for case in cases}
        known = know_entries(self._sides(cases, moves), {case.g: case.retry for case in cases})
        earlier = {
            case.g: []
            if case.plan.breaks
            else find_earlier(
                archive, (case.plan.stream, case.retry), case.target.group, moves[case.g]
            )
            for case in cases
        }
        ends = _last_ends(
            [find_ends(case.g, case.history.acts, moves[case.g], case.retry) for case in cases],
            earlier,
        )
        present = self._present()
        sides = build_sides(cases)
        frames = {
            "sides": sides,
            "known": known,
            "ends": ends,
            "earlier": _earlier_rows(cases, earlier),
            "present": present,
        }
        for name, rows in frames.items():
            local_frame(spark, rows).createOrReplaceTempView(f"pelops_{name}")
        scope = self._scope(cases, counts, sides, known, earlier)
        if scope.has_before:
            self._name_statuses(spark, cases)
        if self.has_files:
            self._name_proofs(spark)
        kept = rules.classify(spark, scope)
        rules.follow_roots(spark, scope)
        group_measures = measures.count_rows(spark, scope)
        steps = self._steps(cases, counts)
        streams = measures.measure_streams(spark, self.plans, steps)
        compared = compare_tables(
            spark, archive, self.run.settings, self.plans, {case.g: case.plan for case in cases}
        )
        rows = sum(one.rows for group in group_measures.values() for one in group.counts)

        def write() -> None:
            archive.append_frame(STATUSES, status_rows.status_rows(spark), rows)
            for frame in kept:
                frame.unpersist()

        audits = [
            GroupAudit(
                case=case,
                measures=group_measures.get(case.g, measures.Measures()),
                stream=streams[case.plan.stream],
                compared=compared[case.g],
                statuses_path=archive.place.path(STATUSES),
            )
            for case in cases
        ]
        return audits, write

    def _scope(
        self,
        cases: Sequence[Case],
        counts: Mapping[str, StreamCounts],
        sides: pa.Table,
        known: pa.Table,
        earlier: Mapping[int, Sequence[EarlierEntry]],
    ) -> rules.Scope:
        entries = sum(counts.get(case.plan.stream, StreamCounts()).entries for case in cases)
        left = sum(0 if case.record is None else case.record.left for case in cases)
        acts = set(pc.unique(known["act"]).to_pylist())
        followed = any(earlier.values()) or any(
            case.record is not None and case.record.followed for case in cases
        )
        ranges = [field.name for field in sides.schema if pa.types.is_list(field.type)]
        return rules.Scope(
            rows=entries + left + known.num_rows + self.files.rows,
            has_known=known.num_rows > 0,
            has_holes=self._present().num_rows > 0,
            has_files=self.has_files,
            has_before=left > 0,
            ranges=frozenset(
                name for name in ranges if pc.sum(pc.list_value_length(sides[name])).as_py()
            ),
            has_roots=bool(followed or self.has_files or acts & set(map(str, COPYING_KINDS))),
        )

    def _cases(self, spark: Any) -> tuple[list[Case], dict[str, StreamCounts]]:
        asked: dict[tuple[str, EntryId], None] = {}
        # The first pass only collects the IDs to count up to; the second uses the counts.
        self._number(asked, {}, None)
        counts, upto = measures.count_archived(spark, asked)
        for plan in self.plans:
            if self.archived.has_beyond or plan.window.to_id > LAST_HELD:
                beyond, beyond_seq = count_beyond(self.run.watch, plan)
                stream_counts = counts.get(plan.stream, StreamCounts())
                counts[plan.stream] = replace(stream_counts, beyond=beyond, beyond_seq=beyond_seq)
        return self._number(asked, counts, upto), counts

    def _number(
        self,
        asked: dict[tuple[str, EntryId], None],
        counts: Mapping[str, StreamCounts],
        upto: Mapping[tuple[str, EntryId], int] | None,
    ) -> list[Case]:
        cases: list[Case] = []
        for plan in self.plans:

            def count_until(entry_id: EntryId, plan: Plan = plan) -> int:
                # Entries before the window were removed before it was archived.
                if entry_id <= plan.window.from_id:
                    return 0
                asked[plan.stream, entry_id] = None
                return 0 if upto is None else upto[plan.stream, entry_id]

            for target in plan.targets:
                cases.append(self._case(len(cases), plan, target, counts, count_until))
        return cases

    def _case(
        self,
        g: int,
        plan: Plan,
        target: AuditTarget,
        counts: Mapping[str, StreamCounts],
        count_until: Callable[[EntryId], int],
    ) -> Case:
        key = (plan.stream, target.group)
        parts = CaseParts(
            g=g,
            plan=plan,
            target=target,
            window_snapshot=self.snapshots[plan.stream],
            history=self.histories[key],
            created=self.files.created.get(key, FileCreation()),
            counts=counts.get(plan.stream, StreamCounts()),
            known=self.known[plan.stream],
            has_files=self.has_files,
        )
        return build_case(parts, count_until)

    def _sides(self, cases: Sequence[Case], moves: Mapping[int, Any]) -> Iterator[SideKnown]:
        acts: dict[str, list[pa.Table]] = {}
        for case in cases:
            acts.setdefault(case.plan.stream, []).append(case.history.acts)
        for case in cases:
            plan = case.plan
            # If the archive of a stream begins here, include entries that were removed before.
            after = EntryId.MIN if plan.starts_over else plan.window.from_id
            shared = {"g": case.g, "acts": case.history.acts, "moves": moves[case.g]}
            yield SideKnown(
                **shared,
                copy=False,
                stream=plan.stream,
                pending=case.snapshots.pending,
                named=name_copies(
                    acts[plan.stream], plan.stream, after, plan.window.to_id, is_retry=False
                ),
            )
            retry = case.window_snapshot.retries.get(case.target.group)
            if retry is not None and retry[0].before is not None:
                ends = plan.retries[case.target.group]
                yield SideKnown(
                    **shared,
                    copy=True,
                    stream=case.retry,
                    pending=retry[0].pending,
                    named=name_copies([case.history.acts], case.retry, *ends, is_retry=True),
                )

    def _present(self) -> pa.Table:
        parts = [_PRESENT.empty_table()]
        for plan in self.plans:
            snapshot = self.snapshots[plan.stream]
            listed = {plan.stream: snapshot.presence}
            for group, (_, presence) in snapshot.retries.items():
                listed[derive_keys(plan.stream, group).retry] = presence
            for stream, presence in listed.items():
                ids = presence.listed
                names = pa.repeat(stream, ids.num_rows)
                parts.append(pa.table([names, ids["ms"], ids["seq"]], schema=_PRESENT))
        return pa.concat_tables(parts)

    def _name_statuses(self, spark: Any, cases: Sequence[Case]) -> None:
        runs = {case.known.run for case in cases if case.record is not None} or {0}
        self.run.archive.frame(spark, STATUSES, runs).createOrReplaceTempView("pelops_statuses")
        status_rows.before_rows(spark).createOrReplaceTempView("pelops_before")

    def _name_proofs(self, spark: Any) -> None:
        columns = [name for name in SCHEMAS[EVENTS].names if name not in {"reason", "target"}]
        runs = {self.run.archive.run} if self.has_files else {0}
        events = self.run.archive.frame(spark, EVENTS, runs, columns)
        events.createOrReplaceTempView("pelops_events")
        spark.sql(f"""
        SELECT s.g, e.ms, e.seq, e.act, e.proof, e.covered,
            (e.covered OR e.proof IS NOT NULL OR e.act IS NOT NULL) AND e.kind <> '{BEFORE_GROUP}'
            AND NOT (coalesce(e.removal = '{STREAM_DELETED}', FALSE)
                AND (e.ms < s.from_ms OR (e.ms = s.from_ms AND e.seq <= s.from_seq))) AS is_known
        FROM pelops_events e JOIN pelops_sides s
            ON NOT s.copy AND e.stream = s.stream AND e.`group` = s.grp
        WHERE e.source = '{SOURCE}'
        """).createOrReplaceTempView("pelops_proofs")

    def _steps(self, cases: Sequence[Case], counts: Mapping[str, StreamCounts]) -> dict[str, int]:
        steps = {}
        for plan in self.plans:
            of_stream = counts.get(plan.stream, StreamCounts())
            times = [
                at for case in cases if case.plan.stream == plan.stream for at in find_times(case)
            ]
            ends = [one for one in (of_stream.first_ms, of_stream.last_ms) if one is not None]
            times += measures.are_times(ends)
            if times:
                steps[plan.stream] = measures.choose_step(min(times), max(times))
        return steps

    def _record(self, plan: Plan) -> StreamRecord:
        snapshot = self.snapshots[plan.stream]
        return StreamRecord(
            plan=plan,
            at_ms=snapshot.at_ms,
            stream=snapshot.stream,
            before={g: one.before for g, one in snapshot.groups.items() if one.before is not None},
            after={g: one.after for g, one in snapshot.groups.items() if one.after is not None},
            all_groups=snapshot.all_groups,
            retries=snapshot.retry_snapshots,
            ledgers={
                target.group: self.histories[plan.stream, target.group].end
                for target in plan.targets
            },
            counts_trimmed=snapshot.counts_trimmed,
        )


def _event_rows(acts: pa.Table, plan: Plan, group: str) -> pa.Table:
    size = acts.num_rows
    columns = {
        "date": pa.repeat(pa.scalar(plan.day, pa.date32()), size),
        "stream": pa.repeat(plan.stream, size),
        "window": pa.repeat(pa.scalar(plan.number, pa.int32()), size),
        "group": pa.repeat(group, size),
        "source": pa.repeat(LEDGER, size),
    } | {name: acts[name] for name in acts.column_names}
    schema = SCHEMAS[EVENTS]
    return pa.table(
        [columns.get(field.name, pa.nulls(size, field.type)) for field in schema], schema=schema
    )


def _earlier_rows(cases: Sequence[Case], earlier: Mapping[int, Sequence[EarlierEntry]]) -> pa.Table:
    """Entries of earlier windows whose dead letters were moved, and the roots of such copies."""
    rows = []
    for case in cases:
        for entry in earlier[case.g]:
            row, move = entry.row, entry.move
            is_copied = row["status"] in {EntryStatus.REQUEUED, EntryStatus.REDRIVEN}
            if move is None and not is_copied:
                continue
            fields = {
                "g": case.g,
                "copy": row["stream"] == case.retry,
                "ms": row["ms"],
                "seq": row["seq"],
                "window": row["window"],
                "origin": RowOrigin.FOLLOWED if move is None else RowOrigin.MOVED,
                "status": row["status"] if move is None else move.status.value,
                "why": row["why"] if move is None else Why.LEDGER.value,
                "status_before": row["status"],
                "retry_count": row["retry_count"],
                "reason": row["reason"],
            }
            if entry.root is not None:
                fields |= {"root_ms": entry.root.ms, "root_seq": entry.root.seq}
            if move is not None:
                fields |= {"new_ms": move.new_ms, "new_seq": move.new_seq, "act_at_ms": move.at[0]}
                fields |= {"copy_in_retry": move.in_retry}
            else:
                fields |= _last_copy(row, case)
            rows.append(fields)
    return pa.Table.from_pylist(rows, _CLASSIFIED)


def _last_copy(row: Mapping[str, Any], case: Case) -> dict[str, Any]:
    fields: dict[str, Any] = {"copy_in_retry": row["last_copy_stream"] == case.retry}
    for name, text in (("new", row["new_id"]), ("copy", row["last_copy"])):
        if text is not None:
            entry_id = parse_entry_id(text)
            fields |= {f"{name}_ms": entry_id.ms, f"{name}_seq": entry_id.seq}
    if row["acted_at"] is not None:
        fields["act_at_ms"] = int(row["acted_at"].timestamp() * 1000)
    return fields


def _last_ends(ends: Sequence[pa.Table], earlier: Mapping[int, Sequence[EarlierEntry]]) -> pa.Table:
    """The last act on each chain of copies, including moves of earlier dead letters."""
    moved = [
        {
            "g": g, "ms": root.ms, "seq": root.seq, "act": str(entry.move.act),
            "new_ms": entry.move.new_ms, "new_seq": entry.move.new_seq,
            "in_retry": entry.move.in_retry, "at_ms": entry.move.at[0], "at_seq": 0,
        }
        for g, entries in earlier.items()
        for entry in entries
        if entry.move is not None
        for root in [entry.root or entry.entry_id]
    ]  # fmt: skip
    whole = pa.concat_tables(
        [ENDS.empty_table(), *ends, pa.Table.from_pylist(moved, ENDS)]
    ).sort_by([("at_ms", "ascending"), ("at_seq", "ascending")])
    numbered = whole.append_column("at", pa.array(range(whole.num_rows), pa.int64()))
    last = numbered.group_by(["g", "ms", "seq"]).aggregate([("at", "max")])
    return whole.take(last["at_max"])


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    log.info("%s in %.1f s", what, time.monotonic() - began)


@contextmanager
def _explained(run: PipelineRun) -> Iterator[None]:
    """Raise errors of Spark as errors with a one-sentence explanation."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        if run.spark.interrupted.is_set():
            raise KeyboardInterrupt from error
        raise explain_failure(error, run.settings.archive) from error
