"""One window from its plan to its manifest: archive, snapshot, acts, then each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pelops.domain.audit import AuditFinding, AuditSummary, EntryStatus, Evidence, render_summary
from pelops.domain.entry_id import EntryId
from pelops.pipeline.acts import GroupHistory, read_acts, read_history
from pelops.pipeline.archive import archive_entries, archive_letters, archive_retries
from pelops.pipeline.duplicates import find_duplicates
from pelops.pipeline.evidence.stage import archive_evidence, read_created
from pelops.pipeline.id_columns import at_or_before
from pelops.pipeline.identities import Counted, find_violations
from pelops.pipeline.layout import slug
from pelops.pipeline.losses import count_in_gaps
from pelops.pipeline.owed import (
    Balance,
    Owed,
    Removed,
    close_balance,
    find_owed,
    read_first_position,
)
from pelops.pipeline.plan import render_window
from pelops.pipeline.reconcile import (
    Case,
    Reconciled,
    reconcile_window,
)
from pelops.pipeline.reopen import Reopened, reopen
from pelops.pipeline.retried import judge_retried
from pelops.pipeline.roots import follow_roots
from pelops.pipeline.settings import Payload, Target
from pelops.pipeline.snapshot import (
    Snapshot,
    read_last_look,
    read_snapshot,
    settled_to,
    take_snapshot,
)
from pelops.pipeline.statuses import write_statuses
from pelops.pipeline.summary import Grounds, Told, build_group_summary, list_limits
from pelops.pipeline.times import measure_times, recovery_of
from pelops.pipeline.truth import compare_effects, compare_sent
from pelops.pipeline.unarchived import Gone, account_for_gone, count_undelivered
from pelops.pipeline.work import Content, Work, clean, run_stage

AUDIT_VERSION = 1


def archive_window(work: Work) -> int:
    """Archive the window; answers the entries that were there to be archived."""
    rows: int = archive_entries(work)["rows"]
    archive_retries(work)
    archive_letters(work)
    return rows


def audit_window(work: Work) -> dict[str, dict[str, Any]]:
    """Audit the window; answers `audit.json` of each group. Nothing is done twice."""
    archived = archive_window(work)
    snapshot = take_snapshot(work)
    acts = read_acts(work)
    evidence = _archive_evidence(work)
    find_duplicates(work)
    if work.run.settings.sent is not None and work.plan.business_key is not None:
        compare_sent(work, work.run.settings.sent)
    audits = {}
    for target in work.plan.targets:
        look, history = read_snapshot(snapshot, target.group), read_history(acts, target.group)
        created = None if evidence is None else read_created(evidence, target.group)
        owed = _owed(work, look, history, archived, created)
        audits[target.group] = _audit_group(work, target, owed, look, history)
    work.run.storage.create_json(
        work.place.part("manifest.json"), _manifest(work, archived, audits)
    )
    clean(work)
    return {group: content["audit"] for group, content in audits.items()}


def _archive_evidence(work: Work) -> Content | None:
    path = work.run.settings.aof_path
    if path is None:
        return None
    # Of the first window also what was gone before it.
    after = EntryId.MIN if work.plan.is_first else settled_to(work, "lowest_open")
    return archive_evidence(work, path, after=after)


def _audit_group(
    work: Work, target: Target, owed: Owed, snapshot: Snapshot, history: GroupHistory
) -> Content:
    name = f"group={slug(target.group)}"

    def make(directory: str) -> Content:
        case = Case(
            work=work,
            target=target,
            snapshot=snapshot,
            history=history,
            owed=owed,
            last_look=read_last_look(work, target.group),
            directory=directory,
        )
        audit, again = _judge(case)
        work.run.storage.write_json(f"{directory}/audit.json", audit)
        return {
            "audit": audit,
            "lowest_open": again.lowest,
            "lowest_undelivered": again.lowest_undelivered,
        }

    return run_stage(work, name, make)


def _owed(
    work: Work, look: Snapshot, history: GroupHistory, archived: int, created: EntryId | None
) -> Owed:
    plan = work.plan

    def count_until(entry_id: EntryId) -> int:
        return work.read("entries").where(at_or_before(entry_id)).count()

    gone = Removed(entries=plan.window.from_added, max_deleted=look.stream.max_deleted)
    return find_owed(
        plan.window,
        archived,
        count_until,
        begin=read_first_position(plan.stream, history) or created,
        removed=gone if plan.begins_anew else None,
    )


def _judge(case: Case) -> tuple[dict[str, Any], Reopened]:
    plan = case.work.plan
    found = reconcile_window(case)
    again = reopen(case)
    times = measure_times(case)
    counts, balance = _balance(case, found)
    roots = follow_roots(case, counts, found.copies)
    retried = judge_retried(case)
    write_statuses(case, found.judged)
    compared = _compare(case)
    evidence = Evidence.AOF if case.has_files else evidence_of(case.history)
    summary = build_group_summary(
        Told(
            stream=plan.stream,
            group=case.target.group,
            window=balance.window,
            archived=case.owed.archived,
            removed_before=balance.unknown_before,
            counts=counts,
            settled=again.settled,
            stuck_earlier=again.stuck_earlier,
            open=again.open + roots.open,
            oldest_stuck_ms=again.oldest_stuck_ms,
            recovery_ms=recovery_of(times),
            retention_margin=plan.retention_margin,
            evidence=evidence,
            position_doubt=case.position_doubt,
            findings=tuple([*_findings(case, counts, balance), *_of_tables(compared)]),
            failures=tuple(_failures(case)),
        )
    )
    told = {
        "copies": found.copies,
        "before_the_group": case.owed.left_out,
        "removed_before": {
            "entries": case.owed.removed,
            "unknown": balance.unknown_before,
        },
        "retried": {status.value: n for status, n in sorted(retried.items()) if n},
        "roots": {status.value: n for status, n in sorted(roots.counts.items())},
        "settled": {status.value: n for status, n in sorted(again.settled.items())},
        "times": times,
        **compared,
    }
    return _render(case, summary, told), again


def _render(case: Case, summary: AuditSummary, told: Mapping[str, Any]) -> dict[str, Any]:
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
                removed_before=told["removed_before"]["unknown"],
                has_hashes=plan.payload is not Payload.NONE,
                lacks_key=bool(settings.sent or settings.effects) and plan.business_key is None,
                audited_from=audited_from,
            )
        ),
        **told,
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
    told = {
        "duplicates-by-root": (
            _too_many(compared, "root"),
            "{n} entries are copies that were made twice",
        ),
        "duplicates-by-key": (
            _too_many(compared, "key"),
            "{n} entries have a business key that came before",
        ),
        "never-arrived": (
            compared.get("sent", {}).get("never_arrived", 0),
            "{n} entries were sent and never arrived",
        ),
        "without-effect": (
            compared.get("effects", {}).get("without_effect", 0),
            "{n} entries were acknowledged and had no effect",
        ),
    }
    for kind, (count, sentence) in told.items():
        if count:
            yield AuditFinding(kind=kind, count=count, sentence=sentence.format(n=count))


def _too_many(compared: Mapping[str, Any], way: str) -> int:
    found: int = compared["duplicates"].get("found", {}).get(way, {}).get("entries", 0)
    return found


def evidence_of(history: GroupHistory) -> Evidence:
    """What the audit can rest on beside the stream."""
    return Evidence.LEDGER if history.exists and history.bookmarks else Evidence.NONE


def _balance(case: Case, found: Reconciled) -> tuple[dict[EntryStatus, int], Balance]:
    """The statuses of all entries, and the window that they add up to."""
    owed, told = case.owed, sum(found.unarchived.values())
    unseen = max(0, owed.produced - owed.archived + owed.removed - told)
    beyond = min(unseen, _count_beyond(case))
    missing = unseen - beyond
    gone = Gone(
        missing=missing,
        removed=case.work.plan.removed,
        seen=_count_in_gaps(case) if missing else 0,
        undelivered=_count_undelivered(case, missing),
    )
    rest = account_for_gone(gone, owed.whole, case.history)
    parts = (found.counts, found.unarchived, rest, {EntryStatus.INDETERMINATE: beyond})
    counts = {status: sum(part.get(status, 0) for part in parts) for status in EntryStatus}
    unaccounted = rest.get(EntryStatus.INDETERMINATE, 0)
    balance = close_balance(owed, sum(counts.values()), unaccounted)
    counts[EntryStatus.INDETERMINATE] -= balance.unknown_before
    return counts, balance


def _count_undelivered(case: Case, missing: int) -> int:
    """Of what is missing, entries that the group's counters show were never delivered."""
    look, window = case.snapshot.before, case.owed.window
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
    storage, place = case.work.run.storage, case.work.place
    content = storage.read_json(place.part("entries.json")) or {}
    beyond: int = content.get("beyond", 0)
    return min(beyond, max(0, case.owed.produced - case.owed.archived))


def _count_in_gaps(case: Case) -> int:
    return count_in_gaps(case.history, case.work.load(f"{case.directory}/exceptions"))


def _findings(case: Case, counts: dict[EntryStatus, int], balance: Balance) -> list[AuditFinding]:
    owed = case.owed
    counted = Counted(
        window=balance.window, archived=owed.archived, counts=counts, pending_in_window=0
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
                sentence=f"{beyond} of {owed.produced} entries have IDs of 2^63 milliseconds or"
                " more, which the archive cannot hold: what became of them is not known",
            )
        )
    missing = owed.produced - owed.archived - beyond
    if missing > 0:
        found.append(
            AuditFinding(
                kind="unarchived",
                count=missing,
                sentence=f"{missing} of {owed.produced} entries were trimmed or deleted before "
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


def _manifest(work: Work, archived: int, audits: dict[str, Content]) -> Content:
    return {
        "version": AUDIT_VERSION,
        "stream": work.plan.stream,
        "window": render_window(work.plan.window),
        "archived": archived,
        "groups": {
            group: content["audit"]["summary"]["verdict"] for group, content in audits.items()
        },
    }
