"""One status for every entry of a window, for one group; what is not acknowledged is kept.

Most entries match nothing: they are read, found to lie at or below the position, and counted. Only
what is pending, was acted on, or lies after the position is looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Final, NamedTuple

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import CreationReason, LedgerKind
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.archive.local_files import is_local
from pelops.pipeline.archive.previous_window import PreviousWindow
from pelops.pipeline.archive.snapshot import PENDING, PreviousGroupState, Snapshot
from pelops.pipeline.engine.sql import (
    IDS,
    MOST_BROADCAST,
    Column,
    DataFrame,
    at_or_before,
    is_on_driver,
    on_driver,
    small,
    unite,
    within,
)
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.evidence.stage import join_proofs, read_covered
from pelops.pipeline.reconcile.copies import PART as COPIES
from pelops.pipeline.reconcile.copies import ROOT
from pelops.pipeline.reconcile.file_scan import read_ids, scan_entries
from pelops.pipeline.reconcile.gone_entries import loss_seen, loss_watched, may_be_dropped
from pelops.pipeline.reconcile.group_share import GroupShare, find_position_doubt
from pelops.pipeline.reconcile.ledger_history import GroupHistory
from pelops.pipeline.reconcile.letter_moves import follow_letters, read_letter_moves
from pelops.pipeline.settings import AuditTarget
from pelops.pipeline.stages import HEAVY, WindowWork, remove_part, write_part, write_sorted
from pelops.policy.audit.classification import (
    ENDING_ACTS,
    OPEN_STATUSES,
    EntryFacts,
    Why,
    list_rules,
)

_TYPES: Final = {"bool": "BOOLEAN", "int": "BIGINT"}
# The columns that the expression reads: the fields of EntryFacts.
FACTS: Final = ", ".join(
    f"{field.name} {_TYPES.get(str(field.type), 'STRING')}" for field in fields(EntryFacts)
)


def outcome_column() -> Column:
    """A struct of `status` and `why` for a row with the columns of `FACTS`.

    `act` and `proof` are null when there is none; no other column ever is.
    """
    facts = SimpleNamespace(**{field.name: F.col(field.name) for field in fields(EntryFacts)})
    *rules, (_, last) = [
        (
            condition,
            F.struct(
                F.lit(outcome.status.value).alias("status"), F.lit(outcome.why.value).alias("why")
            ),
        )
        for condition, outcome in list_rules(facts)
    ]
    (first, reported), *others = rules
    chosen = F.when(first, reported)
    for condition, reported in others:
        chosen = chosen.when(condition, reported)
    return chosen.otherwise(last)


_MANY: Final = 300_000  # entries; of more it pays to compile the query, and to share the work
# What is asked of archived entries, of which little is written again.
_OF_ENTRIES: Final = (*IDS, "bytes", "root_ms", "root_seq", "retry_count")
# What is kept of an entry that is not acknowledged.
KEPT: Final = (
    "ms", "seq", "window", "status", "why", "bytes", "root_ms", "root_seq", "retry_count",
    "consumer", "idle_ms", "delivery_count", "act_at_ms", "act_idle_ms", "new_ms", "new_seq",
    "reason", "was_reached", "was_pending",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One group in one window: all that its reconciliation rests on."""

    work: WindowWork
    target: AuditTarget
    snapshot: Snapshot
    history: GroupHistory
    share: GroupShare  # the group's part of the window
    previous: PreviousWindow
    copies: int  # of the whole window, archived or not
    audited_after: EntryId  # the first window that was audited for the group begins here
    previous_state: PreviousGroupState  # the group when the window before was looked at
    letter_moves: int  # dead letters that were redriven, discarded or restored
    directory: str  # what is found is written here

    @property
    def group_part(self) -> str:
        return f"group={slug(self.target.group)}"

    @property
    def reads_files(self) -> bool:
        """Whether this process reads the files of entries itself: see `file_scan`.

        What is known of entries, and copies, it then holds in memory.
        """
        known = self.snapshot.pending + self.history.rows
        is_here = not is_on_driver() and is_local(self.work.place.root)
        return (
            is_here and is_many(self.share.archived) and max(known, self.copies) <= MOST_BROADCAST
        )

    @property
    def reached_before(self) -> EntryId:
        """What the group had passed before the archive was made."""
        return self.work.plan.positions.get(self.target.group, EntryId.MIN)

    @property
    def is_reached_still(self) -> bool:
        """Whether the position is no lower than it was then; what lay below was not looked for."""
        before = self.snapshot.before
        return before is not None and before.position >= self.reached_before

    @property
    def has_files(self) -> bool:
        """Whether append-only files report entries."""
        return self.work.run.settings.aof_path is not None

    @property
    def position_holds(self) -> bool:
        """Whether the position went forward only, and only by deliveries."""
        before, after = self.snapshot.before, self.snapshot.after
        if before is None or after is None or after.is_another(before):
            return False
        if not self.reached_before <= before.position <= after.position:
            return False
        if before.position < self.previous_state.position:
            return False
        if self.position_doubt is not None and self.previous_state.group is None:
            return False  # nobody knows where it was before it was set: it may have been ahead
        new = [d for d in self.history.of(LedgerKind.GROUP_CREATED) if not _is_first(d)]
        return not new and not self.history.of(LedgerKind.POSITION_CHANGED)

    @property
    def last_known_position(self) -> EntryId:
        """Of a group that is missing now; the highest ID when nothing is known of it."""
        known = max(self.reached_before, self.previous_state.position)
        return EntryId.MAX if known == EntryId.MIN else known

    @property
    def position_doubt(self) -> str | None:
        """Why entries up to the position may never have been delivered; None when they were."""
        before = self.snapshot.before
        if before is None:
            return None
        return find_position_doubt(
            before,
            self.previous_state,
            max_deleted=self.snapshot.stream.max_deleted,
            created_at=self.share.begin,
        )

    @property
    def position_was_read(self) -> bool:
        """Whether what is not pending below the position was delivered."""
        return self.position_holds and self.position_doubt is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What became of the entries of a window."""

    archived: Tally  # of archived entries
    gone: Tally  # of those gone before the archive that something reports
    statuses: tuple[DataFrame, ...]  # a row with its status for each entry; lazy
    leaves_passed: bool  # without those that `passed_entries` gives
    looked_at: int  # rows of `statuses`, at most

    @property
    def counts(self) -> Mapping[EntryStatus, int]:
        """The statuses of archived entries."""
        return _by_status(self.archived)

    @property
    def unarchived(self) -> Mapping[EntryStatus, int]:
        """The statuses of entries that were gone before the archive."""
        return _by_status(self.gone)

    @property
    def copies(self) -> Mapping[EntryStatus, int]:
        """The statuses of all copies among them."""
        both = self.archived + self.gone
        return _by_status(Counter({kind: n for kind, n in both.items() if kind.is_copy}))

    @property
    def pending(self) -> int:
        """How many of all are pending in Redis."""
        return sum(n for kind, n in (self.archived + self.gone).items() if kind.is_pending)

    @property
    def lost(self) -> Mapping[str, int]:
        """By what decided it, how many of all are lost."""
        found: Counter[str] = Counter()
        for kind, n in (self.archived + self.gone).items():
            if kind.status is EntryStatus.LOST:
                found[kind.why] += n
        return found


class CountKey(NamedTuple):
    """What entries are counted by."""

    status: EntryStatus
    why: str
    is_copy: bool = False
    is_pending: bool = False


Tally = Counter[CountKey]


def reconcile_window(case: Case) -> Reconciled:
    """Give every archived entry its status, and write those that are not acknowledged."""
    window, archived = case.share.window, case.share.archived
    known = known_entries(case).where(within(case.share.after, window.to_id))
    in_window = known.where(within(window.from_id, window.to_id))
    size = case.snapshot.pending + case.history.rows
    entries = owed_entries(case, case.work.read("entries")).select(*_OF_ENTRIES)
    has_dropped = bool(case.history.dropped(EntryId.MIN))
    is_known_enough = case.position_was_read and not case.has_files and not has_dropped
    above = _found_above(case, entries, in_window, size)
    how = "inner" if is_known_enough else "left"
    near = f"{case.directory}/near" if is_known_enough and case.reads_files else None
    looked_at = archived + size
    below = entries
    if near is not None:
        looked_at -= _write_near(case, near)
        below = case.work.load(near)
    judged = judge(case, _found_below(case, below, in_window, size, how).unionByName(above))
    path = f"{case.directory}/exceptions"
    chosen = with_roots(case, judged.where(is_exception())).select(*KEPT)
    write_sorted(case.work, chosen, path, *IDS, is_heavy=looked_at > HEAVY)
    if near is not None:
        remove_part(case.work, near)
    kept = case.work.load(path)
    tally = count_kinds(kept.coalesce(1))
    if case.has_files:
        tally += count_kinds(with_roots(case, judged.where(~is_exception())))
    copies = _archived_copies(case) - sum(n for kind, n in tally.items() if kind.is_copy)
    inferred = CountKey(EntryStatus.ACKNOWLEDGED_INFERRED, Why.DELIVERED)
    tally[inferred] += archived - tally.total() - copies
    tally[inferred._replace(is_copy=True)] += copies
    gone = _judge_unarchived(case, known, entries if case.has_files else kept)
    statuses = [with_roots(case, judged)]
    if is_known_enough:
        # Few are looked at one by one; all others have one status, which is not worked out again.
        done = judge(case, above).where(~is_exception())
        statuses = [kept, with_roots(case, done)]
    return Reconciled(
        archived=tally,
        gone=Counter() if gone is None else count_kinds(gone),
        statuses=tuple(statuses) if gone is None else (*statuses, gone),
        leaves_passed=is_known_enough,
        looked_at=looked_at,
    )


def is_many(entries: int) -> bool:
    """Whether there are so many that several tasks or threads share the work."""
    return entries > _MANY


def _write_near(case: Case, path: str) -> int:
    """Write passed entries that are pending or that acts name; answers how many were passed.

    Of nearly all that were passed nothing is known: to look for the others is all the work.
    """
    work = case.work
    parts = (f"snapshot/{case.group_part}/pending", f"acts/{case.group_part}")
    with on_driver():
        known = read_ids(work, [work.place.part(part) for part in parts])
    found: dict[int, list[DataFrame]] = {}
    passed: Counter[int] = Counter()

    def look(number: int, batches: Iterator[DataFrame]) -> None:
        found[number] = []
        for entries in batches:
            below = owed_entries(case, entries).where(at_or_before(case.reached_before))
            passed[number] += below.count()
            found[number].append(below.join(known, list(IDS), "left_semi"))

    scan_entries(work, _OF_ENTRIES, look)
    with on_driver():
        write_part(work, unite(one for number in sorted(found) for one in found[number]), path)
    return passed.total()


def owed_entries(case: Case, entries: DataFrame) -> DataFrame:
    """Those of the archived entries that are the group's."""
    if not case.share.left_out:
        return entries
    return entries.where(~at_or_before(case.share.window.from_id))


def known_entries(case: Case) -> DataFrame:
    """Entries that are pending or were acted on, one row for each."""
    work, group = case.work, case.group_part
    acts = _together(last_acts(case, case.work.plan.stream), case.history.rows)
    pending = (
        _no_pending(work)
        if case.snapshot.before is None
        else work.read(f"snapshot/{group}/pending")
    )
    return (
        _together(pending, case.snapshot.pending)
        .withColumn("is_pending", F.lit(True))
        .withColumnRenamed("has_body", "pending_body")
        .join(acts, list(IDS), "full_outer")
        .withColumn("is_pending", F.coalesce("is_pending", F.lit(False)))
    )


def judge(case: Case, found: DataFrame) -> DataFrame:
    """Rows with all facts of an entry, with the two columns `status` and `why`."""
    before, after = case.snapshot.before, case.snapshot.after
    reached = before.position if before else EntryId.MIN
    reached_after = after.position if after else EntryId.MIN
    facts = (
        join_proofs(case.work, case.target.group, found)
        .withColumn("is_pending", F.coalesce("is_pending", F.lit(False)))
        .withColumn("has_body", F.coalesce("pending_body", "is_present", F.lit(False)))
        .withColumn("idle_ms", F.coalesce("idle_ms", F.lit(0).cast("bigint")))
        .withColumn("stuck_after_ms", F.lit(case.target.stuck_after_ms).cast("bigint"))
        .withColumn("is_reached", at_or_before(reached) if before else _was_reached(case))
        .withColumn("is_reached_after", at_or_before(reached_after))
        .withColumn("position_holds", F.col("covered") | _position_holds(case))
        .withColumn("loss_seen", loss_seen(case.history))
        .withColumn("loss_watched", loss_watched(case.history, case.snapshot.stream.max_deleted))
    )
    if "may_be_dropped" not in facts.columns:
        facts = facts.withColumn("may_be_dropped", may_be_dropped(case.history))
    return facts.withColumn("outcome", outcome_column()).select("*", "outcome.*").drop("outcome")


def _was_reached(case: Case) -> Column:
    """Whether a group that is missing now had passed an entry, as far as anything tells."""
    reported = F.col("proof").isNotNull()
    return F.when(F.col("covered"), reported).otherwise(at_or_before(case.last_known_position))


def _position_holds(case: Case) -> Column:
    """Of what lies below the position, also whether reads have moved it there."""
    below, above = F.lit(case.position_was_read), F.lit(case.position_holds)
    return F.when(F.col("is_reached"), below).otherwise(above)


def is_exception() -> Column:
    """Whether a row is kept: it is not acknowledged."""
    done = (EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.ACKNOWLEDGED_PROVEN)
    return ~F.col("status").isin([str(one) for one in done])


def count_statuses(frame: DataFrame) -> dict[EntryStatus, int]:
    """How many rows have each status."""
    rows = frame.groupBy("status").count().collect()
    return {EntryStatus(row["status"]): row["count"] for row in rows}


def count_kinds(frame: DataFrame) -> Tally:
    """How many rows of a judged frame are of each kind."""
    kind = {
        "is_copy": F.col("root_ms").isNotNull(),
        "is_pending": F.col("consumer").isNotNull(),
    }
    rows = frame.withColumns(kind).groupBy("status", "why", *kind).count().collect()
    return Counter(
        {
            CountKey(
                EntryStatus(row["status"]), row["why"], row["is_copy"], row["is_pending"]
            ): row["count"]
            for row in rows
        }
    )


def with_roots(case: Case, frame: DataFrame, copies: DataFrame | None = None) -> DataFrame:
    """Rows, by their IDs, with the roots of copies: also of those that the ledger alone names.

    `copies`: those of the window, when they were read already.
    """
    if not case.copies:
        return frame
    given = case.work.read(COPIES) if copies is None else copies
    reported = given.select(*IDS, *(F.col(name).alias(f"told_{name}") for name in ROOT))
    known = frame.join(small(reported, case.copies), list(IDS), "left")
    return known.withColumns({name: F.coalesce(f"told_{name}", name) for name in ROOT})


def is_open() -> Column:
    """Whether a later window looks at a row again: its worker may still acknowledge the entry."""
    is_waiting = F.col("status").isin([str(one) for one in OPEN_STATUSES])
    return is_waiting | (F.col("why") == str(Why.BODY_GONE))


def was_pending() -> Column:
    """Whether a row that is open was pending when it was judged."""
    return F.col("status") != str(EntryStatus.UNDELIVERED)


def open_rows(frame: DataFrame) -> DataFrame:
    """Rows whose status can still change."""
    return frame.where(is_open())


def join_known(entries: DataFrame, known: DataFrame, size: int, how: str) -> DataFrame:
    """Entries with what is known of them; one long number is looked up in half of the time."""
    ours = known.withColumnsRenamed({"ms": "known_ms", "seq": "known_seq"})
    if is_on_driver():
        return entries.join(known, list(IDS), how)
    # Not as equalities, which would become keys of the join as well.
    apart = F.col("ms").bitwiseXOR(F.col("known_ms"))
    apart = apart.bitwiseOR(F.col("seq").bitwiseXOR(F.col("known_seq")))
    near = _packed("ms", "seq") == _packed("known_ms", "known_seq")
    found = entries.join(small(ours, size), near & (apart == 0), how)
    return found.drop("known_ms", "known_seq")


def _packed(ms: str, seq: str) -> Column:
    return F.shiftleft(ms, 20).bitwiseXOR(F.col(seq))


def _found_below(
    case: Case, entries: DataFrame, known: DataFrame, size: int, how: str
) -> DataFrame:
    """Entries that the group had passed before the archive: to count, only what is known is needed.

    With append-only files each of them is, since they report each; and when the position does not
    hold, since then it does not tell that what is not pending was acknowledged.
    """
    below = entries.where(at_or_before(case.reached_before))
    return (
        join_known(below, known, size, how)
        .withColumn("is_present", F.lit(case.is_reached_still))
        .withColumn("was_reached", F.lit(True))
        .withColumn("was_pending", F.lit(False))
        .withColumn("window", F.lit(case.work.plan.window.number))
    )


def _found_above(case: Case, entries: DataFrame, known: DataFrame, size: int) -> DataFrame:
    """Entries after the position: whether they are still there decides."""
    present = case.work.read("snapshot/present").withColumn("is_present", F.lit(True))
    above = entries.where(~at_or_before(case.reached_before))
    return (
        join_known(above, known, size, "left")
        .join(present, list(IDS), "left")
        .withColumn("was_reached", F.lit(False))
        .withColumn("was_pending", F.lit(False))
        .withColumn("window", F.lit(case.work.plan.window.number))
    )


def _archived_copies(case: Case) -> int:
    if not case.copies:
        return 0
    window = case.share.window
    ours = case.work.read(COPIES).where(within(window.from_id, window.to_id))
    return ours.where("archived").count()


def _judge_unarchived(
    case: Case, known: DataFrame, archived_already: DataFrame
) -> DataFrame | None:
    """Entries that were gone before the archive, and are pending, were acted on, or are copies."""
    share = case.share
    if share.archived >= share.produced and not share.removed:
        return None
    named = []
    if case.has_files:
        named.append(read_covered(case.work, case.target.group, share.after))
    if case.copies:
        named.append(case.work.read(COPIES).where(~F.col("archived")).select(*IDS))
    for more in named:
        ours = more.where(within(share.after, share.window.to_id))
        known = known.join(ours, list(IDS), "full_outer")
    rows = known.join(archived_already.select(*IDS), list(IDS), "left_anti")
    missing = [
        F.lit(None).cast(kind).alias(name)
        for name, kind in (("bytes", "bigint"), ("retry_count", "int"))
    ]
    facts = rows.select("*", *missing).withColumns(
        {
            "is_present": F.lit(False),
            "was_reached": F.lit(False),
            "was_pending": F.lit(False),
            "window": F.lit(case.work.plan.window.number),
            "root_ms": F.lit(None).cast("bigint"),
            "root_seq": F.lit(None).cast("bigint"),
        }
    )
    path = f"{case.directory}/unarchived"
    judged = with_roots(case, judge(case, facts))
    write_sorted(case.work, judged.where(is_exception()).select(*KEPT), path, *IDS)
    return judged


def last_acts(case: Case, stream: str) -> DataFrame:
    """The last act on each entry of a stream of the group that ended it."""
    acts = case.work.read(f"acts/{case.group_part}")
    kinds = [str(kind) for kind in ENDING_ACTS]
    ours = acts.where(F.col("kind").isin(kinds) & (F.col("in_stream") == stream))
    last = F.max_by(
        F.struct("kind", "new_ms", "new_seq", "reason", "event_ms", "idle_ms"),
        F.struct("event_ms", "event_seq"),
    )
    reported = _together(ours, case.history.rows).groupBy(*IDS).agg(last.alias("last"))
    acts_on_entries = reported.select(
        *IDS,
        F.col("last.kind").alias("act"),
        F.col("last.new_ms").alias("new_ms"),
        F.col("last.new_seq").alias("new_seq"),
        F.col("last.reason").alias("reason"),
        F.col("last.event_ms").alias("act_at_ms"),
        F.col("last.idle_ms").alias("act_idle_ms"),
    )
    if not case.letter_moves:
        return acts_on_entries
    followed = follow_letters(acts_on_entries, letter_moves(case))
    return followed.select(*acts_on_entries.columns)


def letter_moves(case: Case) -> DataFrame:
    """Where the dead letters are that were moved: see `follow_letters`."""
    return small(read_letter_moves(case.work, case.directory), case.letter_moves)


def _together(frame: DataFrame, rows: int) -> DataFrame:
    """In one partition, when it is small: what is there already need not be shuffled."""
    return frame.coalesce(1) if rows <= MOST_BROADCAST else frame


def _no_pending(work: WindowWork) -> DataFrame:
    return work.session.createDataFrame([], f"{PENDING}, has_body BOOLEAN")


def _is_first(details: Mapping[str, str]) -> bool:
    return details.get("why") == CreationReason.FIRST


def _by_status(tally: Tally) -> dict[EntryStatus, int]:
    found: Counter[EntryStatus] = Counter()
    for kind, n in tally.items():
        found[kind.status] += n
    return dict(found)
