"""Searches the ledgers of a group for one entry, by bounded reads.

An action on an entry is recorded after the entry was added, and both IDs come from Redis' clock. So
the search begins at the time of the entry's root ID. Every action names the root of the chain of
copies, so one search finds all of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from pelops.clock import LATEST_MS, from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.outcome import describe_event
from pelops.domain.records.inspection import Coverage, Evidence, EvidenceKind, HistoryEvent
from pelops.domain.records.ledger import (
    KIND_FIELD,
    WORKER_KINDS,
    CreationReason,
    LedgerEntry,
    LedgerKind,
    parse_ledger_entry,
)
from pelops.errors import InvalidSpec, NoSuchStream
from pelops.redis_core.server import Server
from pelops.redis_streams.inspection.bodies import MIB, Budget, RawEntry, read_forward

LEDGER_BUDGET: Final = Budget(entries=20_000, bytes=32 * MIB)
DEEP_LEDGER_BUDGET: Final = Budget(entries=2_000_000, bytes=1024 * MIB)
# IDs of two streams may differ: an action can have a slightly smaller ID than the copy it created.
_SLACK_MS: Final = 1_000
_FIRST_TIME: Final = 1_000_000_000_000  # the year 2001: smaller IDs are not times
_MOST_EVENTS: Final = 200  # of one entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAct:
    """One action on the entry or on a copy of it."""

    at: datetime
    kind: str
    details: Mapping[str, str]
    entry: LedgerEntry
    by_worker: bool

    def event(self) -> HistoryEvent:
        """The action as an event of the entry's history."""
        return HistoryEvent(
            at=self.at,
            entry_id=self.entry.entry_id,
            what=describe_event(self.kind, str(self.entry.new_id or "")),
            details="; ".join(filter(None, self._details())),
            source="worker" if self.by_worker else "ledger",
        )

    def _details(self) -> Sequence[str]:
        known = self.details
        consumer, redrive = known.get("consumer", ""), known.get("redrive", "")
        who = known.get("requested_by", "")
        return [
            known.get("reason", ""),
            f"was pending at {consumer}" if consumer else "",
            f"failed attempts {self.entry.retry_count}" if self.entry.retry_count else "",
            f"deliveries {self.entry.deliveries}" if self.entry.deliveries else "",
            f"trigger {known['trigger']}" if known.get("trigger") else "",
            f"by StreamRedrive {redrive.partition('/')[0]}" if redrive else "",
            f"requested by {who}" if who else "",
        ]


@dataclass(slots=True)
class LedgerFindings:
    """The results of a search, in the order in which they happened."""

    acts: list[LedgerAct] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)


async def find_root(server: Server, keys: GroupKeys, entry_id: EntryId) -> EntryId | None:
    """The root of a copy, a dead letter or a redriven entry, from the action that created it.

    None when no such action is recorded near the time of the ID.
    """
    if not is_time(entry_id):
        return None
    first, last = max(0, entry_id.ms - _SLACK_MS), entry_id.ms + _SLACK_MS
    for key in (keys.ledger, keys.worker_ledger):
        pages = _pages(server, key, str(first), LEDGER_BUDGET, last=str(last))
        async with aclosing(pages):
            async for page in pages:
                for raw in page:
                    for one in _entries_of(raw):
                        if one.new_id == entry_id and one.entry_id != entry_id:
                            return one.root_id
    return None


async def read_first_time(server: Server, keys: GroupKeys) -> datetime | None:
    """The time of the first event that the ledger still has; None when it is empty."""
    async with aclosing(_pages(server, keys.ledger, "-", Budget(entries=1, bytes=MIB))) as pages:
        async for page in pages:
            return from_ms(page[0].entry_id.ms)
    return None


async def search_ledgers(
    server: Server, keys: GroupKeys, root: EntryId, budget: Budget
) -> LedgerFindings:
    """Every action on the chain of this root, and other events that may explain its state."""
    findings = LedgerFindings()
    first = str(max(0, root.ms - _SLACK_MS)) if is_time(root) else "-"
    for key, what in ((keys.ledger, "ledger"), (keys.worker_ledger, "ledger of the workers")):
        by_worker = key == keys.worker_ledger
        searched, size, last = 0, 0, EntryId.MIN
        pages = _pages(server, key, first, budget)
        async with aclosing(pages):
            async for page in pages:
                for raw in page:
                    _add_event(findings, raw, root, by_worker=by_worker)
                searched += len(page)
                size += sum(one.bytes for one in page)
                last = page[-1].entry_id
        is_whole = searched < budget.entries and size < budget.bytes
        findings.coverage.append(
            Coverage(
                what=what, searched=searched, is_whole=is_whole, until=None if is_whole else last
            )
        )
    findings.acts.sort(key=lambda act: act.at)
    del findings.acts[:-_MOST_EVENTS]
    return findings


async def _pages(
    server: Server, key: str, first: str, budget: Budget, *, last: str = "+"
) -> AsyncGenerator[list[RawEntry], None]:
    try:
        async for page in read_forward(server, key, first, budget, last=last):
            yield page
    except NoSuchStream:
        return


def _add_event(findings: LedgerFindings, raw: RawEntry, root: EntryId, *, by_worker: bool) -> None:
    needle, own = f" {root} ".encode(), str(root).encode()
    names, values = raw.flat[::2], raw.flat[1::2]
    concerned = [
        (name, value)
        for name, value in zip(names, values, strict=True)
        if name == own or needle in value
    ]
    if not concerned and by_worker:
        return
    details = _details(raw)
    kind, at = details.pop(KIND_FIELD, ""), from_ms(raw.entry_id.ms)
    if by_worker and kind not in set(WORKER_KINDS):
        return
    for name, value in concerned:
        entry = _entry(name, value)
        if entry is not None and entry.root_id == root:
            findings.acts.append(
                LedgerAct(at=at, kind=kind, details=details, entry=entry, by_worker=by_worker)
            )
    if not by_worker:
        evidence = _read_evidence(kind, details, at, root)
        if evidence is not None:
            findings.evidence.append(evidence)


_ReadEvidence: TypeAlias = Callable[[Mapping[str, str], EntryId, str], str]


def _read_evidence(
    kind: str, details: Mapping[str, str], at: datetime, root: EntryId
) -> Evidence | None:
    """What an event of the group means for an entry that the event does not name."""
    known = _EVIDENCE.get(kind)
    if known is None:
        return None
    what, read = known
    message = read(details, root, f"at {at:%Y-%m-%d %H:%M:%S} UTC")
    return Evidence(kind=what, at=at, message=message) if message else None


def _position_changed(details: Mapping[str, str], root: EntryId, when: str) -> str:
    before, after = _id(details.get("from")), _id(details.get("to"))
    if before is None or after is None or not before < root <= after:
        return ""
    return (
        f"The group's position was set from {before} to {after} {when}, beyond this entry: no "
        "worker was given it."
    )


def _group_created(details: Mapping[str, str], root: EntryId, when: str) -> str:
    position = _id(details.get("position"))
    if position is None or root > position or details.get("why") != CreationReason.FIRST:
        return ""
    return f"The group was created {when} at {position}, after this entry: no worker was given it."


def _pending_dropped(details: Mapping[str, str], root: EntryId, when: str) -> str:
    consumer, most = details.get("consumer", ""), details.get("at_most") or "some"
    return (
        f"The consumer {consumer} was deleted {when} with at most {most} pending entries, and this "
        "may be one of them: it was acknowledged before, or it was dropped."
    )


def _data_loss(details: Mapping[str, str], root: EntryId, when: str) -> str:
    after, before = _id(details.get("after")), _id(details.get("before"))
    if after is None or before is None or not after < root < before:
        return ""
    least, most = details.get("at_least") or "0", details.get("at_most") or "all"
    return (
        f"Entries between {after} and {before} were removed before they were delivered, found "
        f"{when}: at least {least} and at most {most} of them."
    )


def _trimmed(details: Mapping[str, str], root: EntryId, when: str) -> str:
    below = _id(details.get("below"))
    if below is None or root >= below:
        return ""
    return (
        f"Pelops trimmed it from the stream {when} (spec.retention), which it does only after "
        "every group has acknowledged an entry."
    )


_EVIDENCE: Final[Mapping[str, tuple[EvidenceKind, _ReadEvidence]]] = {
    LedgerKind.POSITION_CHANGED: (EvidenceKind.SKIPPED, _position_changed),
    LedgerKind.GROUP_CREATED: (EvidenceKind.SKIPPED, _group_created),
    LedgerKind.PENDING_DROPPED: (EvidenceKind.MAY_BE_DROPPED, _pending_dropped),
    LedgerKind.DATA_LOSS: (EvidenceKind.LOST, _data_loss),
    LedgerKind.TRIMMED: (EvidenceKind.TRIMMED, _trimmed),
}


def _entries_of(raw: RawEntry) -> list[LedgerEntry]:
    pairs = zip(raw.flat[::2], raw.flat[1::2], strict=True)
    return [one for name, value in pairs if (one := _entry(name, value)) is not None]


def _entry(name: bytes, value: bytes) -> LedgerEntry | None:
    if len(name) > 41 or len(value) > 512:
        return None
    return parse_ledger_entry(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))


def _details(raw: RawEntry) -> dict[str, str]:
    """The pairs before those of entries, limited in number and size."""
    found: dict[str, str] = {}
    for name, value in list(zip(raw.flat[::2], raw.flat[1::2], strict=True))[:20]:
        if _entry(name, value) is not None:
            break
        found[name[:64].decode("utf-8", "replace")] = value[:1024].decode("utf-8", "replace")
    return found


def is_time(entry_id: EntryId) -> bool:
    """Whether an ID can be a time of this century: producers may choose other IDs."""
    return _FIRST_TIME < entry_id.ms <= LATEST_MS


def _id(text: str | None) -> EntryId | None:
    try:
        return parse_entry_id(text) if text else None
    except InvalidSpec:
        return None
