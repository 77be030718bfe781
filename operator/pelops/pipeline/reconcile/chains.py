"""What became of what users added: chains of copies followed from the first entry to the last.

A requeued entry is acknowledged and goes on as a copy that names its root. So does an entry whose
dead letter was redriven. The balance of roots
leaves the copies out, and gives each root the outcome of its last copy: the ledger names that copy,
also when the entry and the copies between were trimmed before an archive saw them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.domain.naming import derive_keys
from pelops.pipeline.engine.sql import Column, DataFrame, bounded, unite_by_name
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.evidence.stage import read_proofs
from pelops.pipeline.reconcile.copies import COPYING_ACTS
from pelops.pipeline.reconcile.copies import PART as COPIES
from pelops.pipeline.reconcile.dead_letters import MOVED
from pelops.pipeline.reconcile.letter_moves import follow_letters
from pelops.pipeline.reconcile.reopened import Reopened
from pelops.pipeline.reconcile.retry_copies import PART as RETRIED
from pelops.pipeline.reconcile.retry_copies import Retried
from pelops.pipeline.reconcile.summary import Identity
from pelops.pipeline.reconcile.window_entries import (
    Case,
    Reconciled,
    count_statuses,
    is_open,
    letter_moves,
)
from pelops.pipeline.stages import write_sorted
from pelops.policy.audit.classification import ENDING_ACTS, LETTER_ACTS, Proof

_ROOTS: Final = (
    "ms BIGINT, seq BIGINT, window INT, copy_ms BIGINT, copy_seq BIGINT, in_retry BOOLEAN,"
    " status STRING, is_open BOOLEAN"
)
_COPY: Final = ("copy_ms", "copy_seq", "in_retry")
_ASKED: Final = ("ms", "seq", "window", *_COPY)
_ENDS: Final = {  # of a chain
    act: status
    for act, status in (ENDING_ACTS | LETTER_ACTS).items()
    if str(act) not in COPYING_ACTS
}
_END: Final = (
    *("root_ms", "root_seq", "act", "new_ms", "new_seq", "in_retry"),
    *("event_ms", "event_seq"),
)
_COPIED: Final = (EntryStatus.REQUEUED, EntryStatus.REDRIVEN)  # it goes on as a copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The balance of roots of one window."""

    counts: Mapping[EntryStatus, int]
    identities: tuple[Identity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEntries:
    """What the audit of the group has found of its entries, before it looks at roots."""

    produced: int  # entries of the window
    counts: Mapping[EntryStatus, int]  # their statuses
    found: Reconciled
    again: Reopened
    retried: Retried
    moved: Mapping[EntryStatus, int]  # of earlier windows, whose dead letters were moved


def follow_roots(case: Case, judged: JudgedEntries) -> Roots:
    """Follow roots that go on as copies, and write them with their outcomes."""
    path, number = f"{case.directory}/roots", case.work.plan.window.number
    of_copies = judged.found.copies
    own = {
        status: judged.counts.get(status, 0) - of_copies.get(status, 0) for status in EntryStatus
    }
    copied = sum(own[status] for status in _COPIED)
    asked = _asked(case, judged)
    outcomes = (
        case.work.session.createDataFrame([], _ROOTS)
        if asked is None
        else _judge(case, judged, asked)
    )
    followed: dict[EntryStatus, int] = {}
    if write_sorted(case.work, outcomes, path, "ms", "seq"):
        rows = case.work.load(path).coalesce(1)
        followed = count_statuses(rows.where(F.col("window") == number))
    own |= {EntryStatus.REDRIVEN: 0, EntryStatus.REQUEUED: copied - sum(followed.values())}
    total = {status: own[status] + followed.get(status, 0) for status in EntryStatus}
    return Roots(
        counts={status: n for status, n in total.items() if n},
        identities=(
            Identity(
                name="roots",
                expected=judged.produced - sum(of_copies.values()),
                found=sum(n for n in total.values() if n > 0),
                sentence="entries were added by users, and {found} have an outcome: copies of"
                " requeued or redriven entries were counted as entries, or entries as copies",
            ),
            Identity(
                name="requeued",
                expected=copied,
                found=sum(followed.values()),
                sentence="entries were requeued or redriven, and {found} were followed to their"
                " last copy",
            ),
        ),
    )


def _asked(case: Case, judged: JudgedEntries) -> DataFrame | None:
    """Roots of this window and of earlier ones that go on as copies; those that earlier audits
    left open; and those of earlier windows whose dead letters were moved.
    """
    names = {
        "exceptions": judged.found.counts,
        "unarchived": judged.found.unarchived,
        "settled": judged.again.settled,
    }
    is_copied = F.col("status").isin([str(status) for status in _COPIED])
    is_ours = is_copied & F.col("root_ms").isNull()
    parts = [
        case.work.load(f"{case.directory}/{name}")
        .where(is_ours)
        .select(
            "ms", "seq", "window",
            F.col("new_ms").alias("copy_ms"), F.col("new_seq").alias("copy_seq"),
            F.lit(False).alias("in_retry"),
        )
        for name, counts in names.items()
        if any(counts.get(status) for status in _COPIED)
    ]  # fmt: skip
    before = case.previous.table(case.target.group, "roots")
    if before is not None:
        parts.append(before.where("is_open").select(*_ASKED))
    asked = unite_by_name(parts) if parts else None
    if not judged.moved:
        return asked
    moved = _roots_of_moved(case)
    if asked is None:
        return moved
    others = moved.join(asked.select("ms", "seq"), ["ms", "seq"], "left_anti")
    return asked.unionByName(others.select(*asked.columns))


def _roots_of_moved(case: Case) -> DataFrame:
    """Roots of earlier windows whose dead letters were moved, one row for each."""
    is_root = F.col("root_ms").isNull()
    is_copied = F.col("act") == str(LedgerKind.REDRIVEN)
    moved = case.work.load(f"{case.directory}/{MOVED}").select(
        F.coalesce("root_ms", "ms").alias("root_ms"),
        F.coalesce("root_seq", "seq").alias("root_seq"),
        F.when(is_root, F.col("window")).alias("window"),  # that of a copy is another
        F.when(is_copied, F.col("new_ms")).alias("copy_ms"),
        F.when(is_copied, F.col("new_seq")).alias("copy_seq"),
        F.coalesce("in_retry", F.lit(False)).alias("in_retry"),
        "act_at_ms",
    )
    last = F.max_by(F.struct("window", *_COPY), F.struct("act_at_ms", "copy_ms", "copy_seq"))
    found = moved.groupBy("root_ms", "root_seq").agg(last.alias("last"))
    return found.select(
        F.col("root_ms").alias("ms"),
        F.col("root_seq").alias("seq"),
        *(F.col(f"last.{name}").alias(name) for name in ("window", *_COPY)),
    )


def _judge(case: Case, judged: JudgedEntries, asked: DataFrame) -> DataFrame:
    found = _last_copies(case, judged, asked).join(_fates(case, judged), list(_COPY), "left")
    pending = _pending(case).withColumnsRenamed({"ms": "copy_ms", "seq": "copy_seq"})
    found = found.join(pending, list(_COPY), "left")
    if case.has_files:
        proofs = read_proofs(case.work, case.target.group).select(
            F.col("ms").alias("copy_ms"), F.col("seq").alias("copy_seq"), "proof",
            F.lit(False).alias("in_retry"),
        )  # fmt: skip
        found = found.join(proofs, list(_COPY), "left")
    else:
        found = found.withColumn("proof", F.lit(None).cast("string"))
    return found.select(*_ASKED, _status(case).alias("status"), _stays_open(case).alias("is_open"))


def _last_copies(case: Case, judged: JudgedEntries, asked: DataFrame) -> DataFrame:
    """The last copy of each root, and the act that ended the chain, if one did."""
    known = asked.join(_last_acts_by_root(case, judged), ["ms", "seq"], "left")
    moved = F.col("end.act").isin(COPYING_ACTS)
    reported = {
        "copy_ms": F.when(moved, F.col("end.new_ms")).otherwise(F.col("copy_ms")),
        "copy_seq": F.when(moved, F.col("end.new_seq")).otherwise(F.col("copy_seq")),
        "in_retry": F.when(moved, F.col("end.in_retry")).otherwise(F.col("in_retry")),
    }
    placed = known.withColumns(reported)
    if not case.has_files or not case.copies:
        return placed
    # Files report a requeue that the ledger has no record of: the copy's own marks are left.
    copies = case.work.read(COPIES).groupBy("root_ms", "root_seq")
    marked = copies.agg(F.max(F.struct(F.col("ms"), F.col("seq"))).alias("marked"))
    marked = marked.withColumnsRenamed({"root_ms": "ms", "root_seq": "seq"})
    return placed.join(marked, ["ms", "seq"], "left").withColumns(
        {
            "copy_ms": F.coalesce("copy_ms", "marked.ms"),
            "copy_seq": F.coalesce("copy_seq", "marked.seq"),
        }
    )


def _last_acts_by_root(case: Case, judged: JudgedEntries) -> DataFrame:
    """The last act on any entry of a chain: where its dead letter is counts, if that was moved."""
    kinds = [str(kind) for kind in ENDING_ACTS]
    retry = derive_keys(case.work.plan.stream, case.target.group).retry
    acts = case.work.read(f"acts/{case.group_part}").where(F.col("kind").isin(kinds))
    ends = acts.withColumns(
        {
            "act": F.col("kind"),
            "act_at_ms": F.col("event_ms"),
            "is_in_retry": F.coalesce(F.col("target") == retry, F.lit(False)),
        }
    )
    if case.letter_moves:
        followed = follow_letters(ends, letter_moves(case))
        ends = followed.withColumn("is_in_retry", F.coalesce("in_retry", "is_in_retry"))
        ends = ends.drop("in_retry")
    ends = ends.withColumnRenamed("is_in_retry", "in_retry").select(*_END)
    if judged.moved:
        moved = case.work.load(f"{case.directory}/{MOVED}").withColumns(
            {
                "root_ms": F.coalesce("root_ms", "ms"),
                "root_seq": F.coalesce("root_seq", "seq"),
                "in_retry": F.coalesce("in_retry", F.lit(False)),
                "event_ms": F.col("act_at_ms"),
                "event_seq": F.lit(0).cast("bigint"),
            }
        )
        ends = ends.unionByName(moved.select(*_END))
    last = F.max_by(
        F.struct("act", "new_ms", "new_seq", "in_retry"), F.struct("event_ms", "event_seq")
    )
    by_root = ends.groupBy("root_ms", "root_seq").agg(last.alias("end"))
    return by_root.withColumnsRenamed({"root_ms": "ms", "root_seq": "seq"})


def _fates(case: Case, judged: JudgedEntries) -> DataFrame:
    """What the audit has found of each copy that is not simply acknowledged."""
    names = ["exceptions", "open", *(["unarchived"] if judged.found.gone else [])]
    names += ["settled"] if judged.again.settled else []
    parts = []
    for name in names:
        rows = case.work.load(f"{case.directory}/{name}").where(F.col("root_ms").isNotNull())
        if name == "open":  # it repeats those of this window
            rows = rows.where(~F.col("window").eqNullSafe(case.work.plan.window.number))
        parts.append(rows.select(*_fate_of_row(), F.lit(False).alias("in_retry")))
    if judged.retried.counts:
        rows = case.work.load(f"{case.directory}/{RETRIED}")
        parts.append(rows.select(*_fate_of_row(), F.lit(True).alias("in_retry")))
    return unite_by_name(parts)


def _fate_of_row() -> list[Column]:
    return [
        F.col("ms").alias("copy_ms"),
        F.col("seq").alias("copy_seq"),
        F.col("status").alias("fate"),
        is_open().alias("fate_is_open"),
    ]


def _status(case: Case) -> Column:
    chosen = F.when(F.lit(False), F.lit(""))
    for act, status in _ENDS.items():
        chosen = chosen.when(F.col("end.act") == str(act), F.lit(status.value))
    is_stuck = F.col("idle_ms") >= case.target.stuck_after_ms
    # Copied once more, and nothing names the next copy.
    is_copied = F.col("fate").isin([str(status) for status in _COPIED])
    is_lost_sight_of = F.col("copy_ms").isNull() | is_copied
    is_ahead = _is_later(case) & ~_is_reached(case)
    return (
        chosen.when(is_lost_sight_of, F.lit(EntryStatus.INDETERMINATE.value))
        .when(F.col("fate").isNotNull(), F.col("fate"))
        .when(~F.col("has_body"), F.lit(EntryStatus.PAYLOAD_GONE.value))
        .when(is_stuck, F.lit(EntryStatus.STUCK.value))
        .when(F.col("idle_ms").isNotNull(), F.lit(EntryStatus.IN_FLIGHT.value))
        .when(is_ahead, F.lit(EntryStatus.UNDELIVERED.value))
        .when(
            F.col("proof") == str(Proof.ACKNOWLEDGED), F.lit(EntryStatus.ACKNOWLEDGED_PROVEN.value)
        )
        .otherwise(F.lit(EntryStatus.ACKNOWLEDGED_INFERRED.value))
    )


def _stays_open(case: Case) -> Column:
    """Whether the next window looks again: at copies that are open, or that no window has yet."""
    is_ended = F.col("end.act").isin([str(act) for act in _ENDS])
    reported = F.coalesce("fate_is_open", _is_later(case), F.lit(False))
    return reported & ~F.coalesce(is_ended, F.lit(False))


def _is_later(case: Case) -> Column:
    """Whether a copy was made after what this window archives of its stream."""
    plan = case.work.plan
    last_of_retries = plan.retries.get(case.target.group, (EntryId.MIN, EntryId.MIN))[1]
    main, retry = _not_after(plan.window.to_id), _not_after(last_of_retries)
    return ~F.when(F.col("in_retry"), retry).otherwise(main)


def _is_reached(case: Case) -> Column:
    """Whether the group has passed the copy, in the stream that the copy is in."""
    main = case.snapshot.before.position if case.snapshot.before else EntryId.MIN
    look = _retry_look(case)
    retry = EntryId.MIN if look is None else parse_entry_id(look["before"]["position"])
    return F.when(F.col("in_retry"), _not_after(retry)).otherwise(_not_after(main))


def _not_after(position: EntryId) -> Column:
    ms, seq = bounded(position)
    at_ms, at_seq = F.col("copy_ms"), F.col("copy_seq")
    return (at_ms < ms) | ((at_ms == ms) & (at_seq <= seq))


def _retry_look(case: Case) -> Mapping[str, Any] | None:
    content = case.work.run.storage.read_json(case.work.place.part("snapshot.json")) or {}
    found: Mapping[str, Any] | None = content.get("retries", {}).get(case.target.group)
    return found if found and found.get("before") else None


def _pending(case: Case) -> DataFrame:
    """Pending entries of the stream and of the group's retry stream."""
    parts = {}
    if case.snapshot.before is not None:
        parts["pending"] = False
    if _retry_look(case) is not None:
        parts["retry_pending"] = True
    columns = "ms BIGINT, seq BIGINT, idle_ms BIGINT, has_body BOOLEAN, in_retry BOOLEAN"
    found = case.work.session.createDataFrame([], columns)
    for part, in_retry in parts.items():
        frame = case.work.read(f"snapshot/{case.group_part}/{part}")
        reported = frame.select(
            "ms", "seq", "idle_ms", "has_body", F.lit(in_retry).alias("in_retry")
        )
        found = found.unionByName(reported)
    return found
