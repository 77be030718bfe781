"""One window from its plan to its manifest: archive, snapshot, acts, then each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pelops.domain.audit import (
    AuditFinding,
    AuditSummary,
    EntryStatus,
    EvidenceKind,
    render_summary,
)
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.archive.previous_window import PreviousWindow, look_back
from pelops.pipeline.archive.snapshot import (
    Snapshot,
    read_previous_state,
    read_snapshot,
    settled_to,
    take_snapshot,
)
from pelops.pipeline.archive.stream_entries import (
    archive_dead_letters,
    archive_entries,
    archive_retries,
)
from pelops.pipeline.archive.windows import render_window
from pelops.pipeline.engine.sql import at_or_before, within
from pelops.pipeline.evidence.stage import Creation, archive_evidence, read_creation
from pelops.pipeline.reconcile.chains import JudgedEntries, follow_roots
from pelops.pipeline.reconcile.copies import find_copies
from pelops.pipeline.reconcile.dead_letters import follow_dead_letters
from pelops.pipeline.reconcile.duplicates import find_duplicates
from pelops.pipeline.reconcile.gone_entries import (
    Gone,
    account_for_gone,
    count_in_gaps,
    count_undelivered,
)
from pelops.pipeline.reconcile.group_share import (
    Archived,
    Balance,
    GroupShare,
    GroupStart,
    Removed,
    close_balance,
    find_audited_after,
    find_beginning,
    find_share,
    read_first_creation,
    read_moves,
)
from pelops.pipeline.reconcile.ledger_history import GroupHistory, read_acts, read_history
from pelops.pipeline.reconcile.letter_moves import find_letter_moves
from pelops.pipeline.reconcile.reopened import Reopened, reopen
from pelops.pipeline.reconcile.retry_copies import judge_retried
from pelops.pipeline.reconcile.statuses import write_statuses
from pelops.pipeline.reconcile.summary import (
    Counted,
    Grounds,
    GroupFacts,
    Identity,
    agree,
    build_group_summary,
    find_violations,
    list_broken,
    list_limits,
)
from pelops.pipeline.reconcile.times import measure_times, recovery_of
from pelops.pipeline.reconcile.truth import compare_effects, compare_sent
from pelops.pipeline.reconcile.window_entries import Case, Reconciled, reconcile_window
from pelops.pipeline.settings import ArchivedPayload, AuditTarget
from pelops.pipeline.stages import Content, WindowWork, clean, run_stage

AUDIT_VERSION = 1


def archive_window(work: WindowWork) -> int:
    """Archive the window; answers the entries that were there to be archived."""
    rows: int = archive_entries(work)["rows"]
    archive_retries(work)
    archive_dead_letters(work)
    return rows


def audit_window(work: WindowWork) -> dict[str, dict[str, Any]]:
    """Audit the window; answers `audit.json` of each group. Nothing is done twice."""
    archived = archive_window(work)
    snapshot, acts = take_snapshot(work), read_acts(work)
    seen = _Seen(
        archived=archived,
        snapshot=snapshot,
        acts=acts,
        evidence=_archive_evidence(work),
        copies=find_copies(work, acts)["rows"],
        previous=look_back(work),
    )
    find_duplicates(work)
    if work.run.settings.sent is not None and work.plan.business_key is not None:
        compare_sent(work, work.run.settings.sent)
    audits = {target.group: _audit_group(work, target, seen) for target in work.plan.targets}
    work.run.storage.create_json(
        work.place.part("manifest.json"), _manifest(work, archived, audits)
    )
    clean(work)
    return {group: content["audit"] for group, content in audits.items()}


def _archive_evidence(work: WindowWork) -> Content | None:
    path = work.run.settings.aof_path
    if path is None:
        return None
    # Of the first window also what was gone before it.
    after = EntryId.MIN if work.plan.is_first else settled_to(work, "lowest_open")
    return archive_evidence(work, path, after=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the stages of the window have answered, for all of its groups."""

    archived: int
    snapshot: Content
    acts: Content
    evidence: Content | None
    copies: int
    previous: PreviousWindow


def _audit_group(work: WindowWork, target: AuditTarget, seen: _Seen) -> Content:
    name = f"group={slug(target.group)}"
    look = read_snapshot(seen.snapshot, target.group)
    history = read_history(seen.acts, target.group)

    def make(directory: str) -> Content:
        created = read_creation(seen.evidence, target.group)
        share = _share(work, look, history, seen.archived, created)
        case = Case(
            work=work,
            target=target,
            snapshot=look,
            history=history,
            share=share,
            previous=seen.previous,
            copies=seen.copies,
            audited_after=_audited_after(seen.previous, target, look, history, share),
            previous_state=read_previous_state(work, target.group),
            letter_moves=find_letter_moves(work, history, f"acts/{name}", target.group, directory),
            directory=directory,
        )
        audit, again = _judge(case)
        work.run.storage.write_json(f"{directory}/audit.json", audit)
        return {
            "audit": audit,
            "audited_after": str(case.audited_after),
            "open": again.open,
            "lowest_open": again.lowest,
            "lowest_undelivered": again.lowest_undelivered,
        }

    return run_stage(work, name, make)


def _audited_after(
    previous: PreviousWindow,
    target: AuditTarget,
    look: Snapshot,
    history: GroupHistory,
    share: GroupShare,
) -> EntryId:
    """Where the first window of the group begins; in a stream created again, this window."""
    work = previous.work
    reported = previous.marker(f"group={slug(target.group)}").get("audited_after")
    if reported is None or work.plan.breaks:
        return share.after
    return find_audited_after(
        parse_entry_id(reported),
        read_moves(work.plan.stream, history),
        position=look.before.position if look.before else None,
        last=read_previous_state(work, target.group).position,
    )


def _share(
    work: WindowWork, look: Snapshot, history: GroupHistory, archived: int, created: Creation
) -> GroupShare:
    plan = work.plan

    def count_until(entry_id: EntryId) -> int:
        # What lies before the window was gone when it was archived.
        if entry_id <= plan.window.from_id:
            return 0
        return work.read("entries").where(at_or_before(entry_id)).count()

    there = Archived(entries=archived, count_until=count_until, **_read_beyond(work))
    begin = find_beginning(
        read_first_creation(plan.stream, history),
        GroupStart(at=created.position, gone=created.gone_before),
        there,
        position=look.before.position if look.before else None,
    )
    gone_before = min(begin.gone, plan.window.from_added) if plan.begins_anew else 0
    removed = Removed(
        entries=plan.window.from_added - gone_before, max_deleted=look.stream.max_deleted
    )
    share = find_share(
        plan.window, there, begin=begin.at, removed=removed if plan.begins_anew else None
    )
    return replace(share, gone_before=gone_before)


def _judge(case: Case) -> tuple[dict[str, Any], Reopened]:
    plan = case.work.plan
    found = reconcile_window(case)
    again = reopen(case, found)
    times = measure_times(case)
    counts, balance = _balance(case, found)
    retried = judge_retried(case)
    moved = follow_dead_letters(case, found, again, retried)
    produced = max(balance.window.to_added - balance.window.from_added, case.share.archived)
    judged = JudgedEntries(
        produced=produced,
        counts=counts,
        found=found,
        again=again,
        retried=retried,
        moved=moved,
    )
    roots = follow_roots(case, judged)
    identities = [*_identities(case, judged), *roots.identities]
    dropped = _dropped(case, judged)
    write_statuses(case, found)
    compared = _compare(case)
    evidence = EvidenceKind.AOF if case.has_files else evidence_of(case.history)
    summary = build_group_summary(
        GroupFacts(
            stream=plan.stream,
            group=case.target.group,
            window=balance.window,
            archived=case.share.archived,
            removed_before=balance.unknown_before,
            counts=counts,
            settled=again.settled,
            moved=moved,
            stuck_earlier=again.stuck_earlier,
            bodiless_earlier=again.bodiless_earlier,
            lost=found.lost,
            dropped=dropped,
            retried=retried.counts,
            open=again.open + retried.open,
            oldest_stuck_ms=again.oldest_stuck_ms,
            recovery_ms=recovery_of(times),
            retention_margin=plan.retention_margin,
            evidence=evidence,
            position_doubt=case.position_doubt,
            findings=tuple(
                [*_findings(case, counts, balance), *list_broken(identities), *_of_tables(compared)]
            ),
            failures=tuple([*_failures(case), *case.previous.findings(case.target.group)]),
        )
    )
    reported = {
        "copies": sum(found.copies.values()),
        "before_the_group": case.share.left_out,
        "removed_before_the_group": case.share.gone_before,
        "identities": [
            {"name": one.name, "expected": one.expected, "found": one.found} for one in identities
        ],
        "removed_before": {
            "entries": case.share.removed,
            "unknown": balance.unknown_before,
        },
        "retried": {status.value: n for status, n in sorted(retried.counts.items()) if n},
        "roots": {status.value: n for status, n in sorted(roots.counts.items())},
        "settled": {status.value: n for status, n in sorted(again.settled.items())},
        "moved": {status.value: n for status, n in sorted(moved.items())},
        "times": times,
        **compared,
    }
    return _render(case, summary, reported), again


def _identities(case: Case, judged: JudgedEntries) -> Iterator[Identity]:
    """What was counted in Redis or by an earlier window, and what the audit found of it."""
    again = judged.again
    yield Identity(
        name="produced",
        expected=judged.produced,
        found=sum(judged.counts.values()),
        sentence="entries were produced, but {found} have a status",
    )
    pending = 0
    if case.snapshot.pending:
        rows = case.work.read(f"snapshot/{case.group_part}/pending")
        pending = rows.where(within(case.audited_after, case.work.plan.window.to_id)).count()
    yield Identity(
        name="pending",
        expected=pending,
        found=judged.found.pending + again.pending,
        sentence="entries are pending in Redis, and the archive has {found} of them open: the group"
        " was created again, its position went back, or a file of the archive is missing. The next"
        " window includes them",
    )
    before = case.previous.marker(case.group_part).get("open", again.looked_at)
    yield Identity(
        name="open",
        expected=before,
        found=again.looked_at,
        sentence="entries were left open by the previous window, but {found} were audited again",
    )


def _dropped(case: Case, judged: JudgedEntries) -> int:
    """How many entries at most went with consumers that were deleted; files tell which, if given.

    The event of the ledger belongs to the window whose audit reads it first.
    """
    if case.has_files:
        return 0
    reported = case.previous.marker("acts").get("groups", {}).get(case.target.group, {})
    since = parse_entry_id(reported["archived"]) if reported else EntryId.MIN
    at_most = sum(one.at_most for one in case.history.dropped(since))
    unsure = (EntryStatus.INDETERMINATE, EntryStatus.ACKNOWLEDGED_INFERRED)
    parts = (judged.counts, judged.again.settled)
    return min(at_most, sum(part.get(status, 0) for part in parts for status in unsure))


def _render(case: Case, summary: AuditSummary, reported: Mapping[str, Any]) -> dict[str, Any]:
    plan, settings = case.work.plan, case.work.run.settings
    audited_from = _first_audited(case)
    return {
        "version": AUDIT_VERSION,
        "summary": render_summary(summary),
        "audited_from": audited_from,
        "limits": list_limits(
            Grounds(
                evidence=summary.evidence,
                has_position=case.position_holds,
                position_doubt=case.position_doubt,
                removed_before=reported["removed_before"]["unknown"],
                has_hashes=plan.payload is not ArchivedPayload.NONE,
                lacks_key=bool(settings.sent or settings.effects) and plan.business_key is None,
                audited_from=audited_from,
                watched=case.history.watched,
            )
        ),
        **reported,
    }


def _first_audited(case: Case) -> int:
    """The first window in which this group was audited."""
    number = case.work.plan.window.number
    if number == 0:
        return 0
    path = case.work.place.before.of_group(case.target.group, "audit.json")
    last = case.work.run.storage.read_json(path)
    found: int = number if last is None else last.get("audited_from", 0)
    return found


def _compare(case: Case) -> Content:
    """Duplicates of the window, and what the user's own tables say of it."""
    work, settings = case.work, case.work.run.settings
    storage, place = work.run.storage, work.place
    compared: Content = {"duplicates": (storage.read_json(place.part("duplicates.json")) or {})}
    sent = storage.read_json(place.part("truth.json"))
    if sent is not None:
        compared["sent"] = sent
    if settings.effects is not None and work.plan.business_key is not None:
        compared["effects"] = compare_effects(case, settings.effects)
    return compared


def _of_tables(compared: Mapping[str, Any]) -> Iterator[AuditFinding]:
    reported = {
        "duplicates-by-root": (
            _too_many(compared, "root"),
            "{entries} {were} added although the same copy existed already",
        ),
        "duplicates-by-key": (
            _too_many(compared, "key"),
            "{entries} {have} a business key that an earlier entry has",
        ),
        "never-arrived": (
            compared.get("sent", {}).get("never_arrived", 0),
            "{entries} {were} sent and never arrived",
        ),
        "without-effect": (
            compared.get("effects", {}).get("without_effect", 0),
            "{entries} {were} acknowledged and had no effect",
        ),
    }
    for kind, (count, sentence) in reported.items():
        if count:
            yield AuditFinding(kind=kind, count=count, sentence=agree(sentence, count))


def _too_many(compared: Mapping[str, Any], way: str) -> int:
    found: int = compared["duplicates"].get("found", {}).get(way, {}).get("entries", 0)
    return found


def evidence_of(history: GroupHistory) -> EvidenceKind:
    """What the audit can rest on beside the stream."""
    return EvidenceKind.LEDGER if history.exists and history.checkpoints else EvidenceKind.NONE


def _balance(case: Case, found: Reconciled) -> tuple[dict[EntryStatus, int], Balance]:
    """The statuses of all entries, and the window that they add up to."""
    share, reported = case.share, sum(found.unarchived.values())
    unseen = max(0, share.produced - share.archived + share.removed - reported)
    beyond = min(unseen, _count_beyond(case))
    missing = unseen - beyond
    gone = Gone(
        missing=missing,
        removed=case.work.plan.removed,
        seen=_count_in_gaps(case) if missing else 0,
        undelivered=_count_undelivered(case, missing),
    )
    rest = account_for_gone(gone, share.whole, case.history, case.work.plan.stream)
    parts = (found.counts, found.unarchived, rest, {EntryStatus.INDETERMINATE: beyond})
    counts = {status: sum(part.get(status, 0) for part in parts) for status in EntryStatus}
    unaccounted = rest.get(EntryStatus.INDETERMINATE, 0)
    balance = close_balance(share, sum(counts.values()), unaccounted)
    counts[EntryStatus.INDETERMINATE] -= balance.unknown_before
    return counts, balance


def _count_undelivered(case: Case, missing: int) -> int:
    """Of what is missing, entries that the group's counters show were never delivered."""
    look, window = case.snapshot.before, case.share.whole
    if not missing or look is None or look.position >= window.to_id or not case.position_holds:
        return 0
    work, ahead = case.work, ~at_or_before(look.position)
    path = f"{case.directory}/unarchived"
    known = work.read("entries").where(ahead & ~at_or_before(window.from_id)).count()
    if work.run.storage.exists(path):
        known += work.load(path).where(ahead).count()
    known += _count_beyond(case)
    return count_undelivered(case.snapshot, window, known=known, missing=missing)


def _count_beyond(case: Case) -> int:
    """Entries of the group's part whose IDs the archive cannot hold: of them nothing is known."""
    beyond = sum(_read_beyond(case.work).values())
    return min(beyond, max(0, case.share.produced - case.share.archived))


def _read_beyond(work: WindowWork) -> Mapping[str, int]:
    """Entries of the window whose IDs the archive cannot hold, by the part that is too large."""
    content = work.run.storage.read_json(work.place.part("entries.json")) or {}
    return {name: content.get(name, 0) for name in ("beyond", "beyond_seq")}


def _count_in_gaps(case: Case) -> int:
    return count_in_gaps(case.history, case.work.load(f"{case.directory}/exceptions"))


def _findings(case: Case, counts: dict[EntryStatus, int], balance: Balance) -> list[AuditFinding]:
    share = case.share
    counted = Counted(
        window=balance.window, archived=share.archived, counts=counts, pending_in_window=0
    )
    found = list(find_violations(counted, case.snapshot))
    found += [
        AuditFinding(kind="stream-in-doubt", count=1, sentence=why) for why in case.work.plan.doubts
    ]
    beyond = _count_beyond(case)
    if beyond:
        found.append(
            AuditFinding(
                kind="ids-beyond-range",
                count=beyond,
                sentence=f"{beyond} of {share.produced} entries have IDs with a number of 2^63 or"
                " more, which the archive cannot hold: their outcome is unknown",
            )
        )
    missing = share.produced - share.archived - beyond
    if missing > 0:
        found.append(
            AuditFinding(
                kind="unarchived",
                count=missing,
                sentence=f"{missing} of {share.produced} entries were trimmed or deleted before "
                "they could be archived",
            )
        )
    return found


def _failures(case: Case) -> list[AuditFinding]:
    found = [
        AuditFinding(kind="epoch-break", count=1, sentence=why) for why in case.work.plan.breaks
    ]
    if not case.snapshot.stream.exists:
        found.append(
            AuditFinding(kind="stream-missing", count=1, sentence="the stream does not exist")
        )
    elif case.snapshot.before is None:
        found.append(
            AuditFinding(kind="group-missing", count=1, sentence="the group does not exist")
        )
    return found


def _manifest(work: WindowWork, archived: int, audits: dict[str, Content]) -> Content:
    return {
        "version": AUDIT_VERSION,
        "stream": work.plan.stream,
        "window": render_window(work.plan.window),
        "archived": archived,
        "groups": {
            group: content["audit"]["summary"]["verdict"] for group, content in audits.items()
        },
    }
