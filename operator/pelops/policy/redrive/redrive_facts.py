"""All that is known of one redrive in one pass: the only input of its decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pelops.api.group.group_status_model import ConditionStatus
from pelops.api.redrive.stream_redrive import StreamRedrive
from pelops.domain.condition import Condition, Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.dead_letter import SkipReason
from pelops.policy.redrive.progress import Outcomes
from pelops.policy.status.reasons import ConditionType


class Phase(StrEnum):
    """The current phase of a redrive."""

    COUNTING = "counting"  # counts the dead letters that the selection matches
    MOVING = "moving"
    TRIAL = "trial"  # the trial is moved, and the redrive waits for its outcome
    BACKLOG = "backlog"  # waits until the workers reduce the backlog
    OUTCOMES = "outcomes"  # all are moved, and workers process them


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveCounts:
    """The progress of a redrive. Times are Redis' time."""

    started: datetime
    now: datetime
    until: EntryId | None  # None: a dry run of an empty stream
    cursor: EntryId
    selected: int | None = None  # None: they are still being counted
    moved: int = 0
    skipped: Mapping[SkipReason, int] = field(default_factory=dict)
    outcomes: Outcomes | None = None  # None: not known, or the action has none
    samples: tuple[EntryId, ...] = ()

    @property
    def skips(self) -> int:
        """Number of selected dead letters that are not moved, or no longer exist."""
        return sum(self.skipped.values())

    @property
    def remaining(self) -> int | None:
        """Number of selected dead letters that are not handled yet; None: not known."""
        return None if self.selected is None else max(0, self.selected - self.moved - self.skips)

    def finalize(self) -> RedriveCounts:
        """Return the final counts: selected dead letters not found any more count as vanished."""
        selected = max(self.selected or 0, self.moved + self.skips)
        vanished = selected - self.moved - self.skips
        skipped = dict(self.skipped)
        if vanished:
            skipped[SkipReason.VANISHED] = skipped.get(SkipReason.VANISHED, 0) + vanished
        return RedriveCounts(
            started=self.started,
            now=self.now,
            until=self.until,
            cursor=self.cursor,
            selected=selected,
            moved=self.moved,
            skipped=skipped,
            outcomes=self.outcomes,
            samples=self.samples,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a redrive takes its dead letters from. It is the same for the whole redrive."""

    server: str  # its address, without credentials
    stream: str
    group_uid: str  # of the StreamConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a redrive ended."""

    is_failure: bool
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveFacts:
    """The resource and what was observed."""

    redrive: StreamRedrive
    problem: Finding | None = None  # why nothing can be moved now
    waits_for: str | None = None  # name of the redrive of the same group that runs
    phase: Phase | None = None  # None: it has not started, or another replica works on it
    counts: RedriveCounts | None = None
    origin: Origin | None = None  # once it has started
    verdict: Verdict | None = None  # once it has ended

    @property
    def source(self) -> str:
        """What is moved, as a noun for messages."""
        return "discarded dead letters" if self.redrive.spec.action == "Restore" else "dead letters"


_ENDED = (ConditionType.COMPLETE, ConditionType.FAILED)


def find_ending(redrive: StreamRedrive) -> Condition | None:
    """Return the condition Complete or Failed of a redrive that has ended; None before."""
    return next(_endings(redrive), None)


def _endings(redrive: StreamRedrive) -> Iterator[Condition]:
    conditions = (redrive.status.conditions or ()) if redrive.status else ()
    for one in conditions:
        if one.type in _ENDED and one.status is ConditionStatus.TRUE:
            yield Condition(type=one.type, status="True", reason=one.reason, message=one.message)
