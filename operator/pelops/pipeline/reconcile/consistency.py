"""What must be true of the counts of a window. What is not becomes a finding. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pelops.domain.audit import AuditFinding, EntryStatus, Window
from pelops.pipeline.archive.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of one window and group."""

    window: Window
    archived: int
    counts: Mapping[EntryStatus, int]  # of all that was produced
    pending_in_window: int  # rows of the snapshot


def find_violations(counted: Counted, snapshot: Snapshot) -> Iterator[AuditFinding]:
    """A finding for each identity that does not hold."""
    produced = counted.window.to_added - counted.window.from_added
    if counted.archived > produced:
        yield AuditFinding(
            kind="counters-contradict",
            count=counted.archived - produced,
            sentence=f"{counted.archived} entries were read where entries-added grew by "
            f"{produced}: the stream's counters were set by hand (XSETID), or it was restored",
        )
    total = sum(counted.counts.values())
    if total != max(produced, counted.archived):
        yield AuditFinding(
            kind="unbalanced",
            count=abs(total - produced),
            sentence=f"{total} entries have a status and {produced} were produced",
        )
    before = snapshot.before
    if before is not None and before.pending < 0:
        yield AuditFinding(kind="unbalanced", count=1, sentence="XINFO GROUPS counts below zero")
    if before is not None and _is_ahead(snapshot):
        yield AuditFinding(
            kind="position-ahead",
            count=1,
            sentence=f"the group's position {before.position} lies beyond the end of the stream "
            f"{snapshot.stream.last_generated}: what is added below it is never delivered",
        )


def _is_ahead(snapshot: Snapshot) -> bool:
    before = snapshot.before
    return before is not None and before.position > snapshot.stream.last_generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Two ways of counting the same."""

    name: str
    expected: int
    found: int
    sentence: str  # of one that does not hold: "{expected}" goes before it

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def list_broken(identities: Iterable[Identity]) -> Iterator[AuditFinding]:
    """A finding for each identity that does not hold."""
    for one in identities:
        if not one.holds:
            yield AuditFinding(
                kind=f"unbalanced-{one.name}",
                count=abs(one.expected - one.found),
                sentence=f"{one.expected} {one.sentence.format(found=one.found)}",
            )
