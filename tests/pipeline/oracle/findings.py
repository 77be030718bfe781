"""What of an audit is untrue: everything it says is held against the books."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import EXPECTED_STATUSES, AuditSummary, AuditVerdict, Window
from pelops.policy.audit.classification import OPEN_STATUSES
from tests.pipeline.oracle.books import NEVER_DELIVERED, GroupBook, Mark, State, StreamBook
from tests.pipeline.oracle.histories import Files
from tests.pipeline.oracle.reported import WindowReport
from tests.pipeline.oracle.world import Observation, World

_S = EntryStatus
_DONE: Final = {_S.ACKNOWLEDGED_PROVEN, _S.ACKNOWLEDGED_INFERRED}
_OPEN: Final = {_S.IN_FLIGHT, _S.STUCK, _S.UNDELIVERED}
_NOT_FINAL: Final = {*_OPEN, _S.PAYLOAD_GONE}
_BEFORE_THE_FIRST: Final = re.compile(r"before .*(first|archive)|(removed|gone) before")
_MOVED: Final = Mark.REQUEUED | Mark.REDRIVEN | Mark.DISCARDED
_COPIED: Final = {_S.REQUEUED, _S.REDRIVEN}  # it continues as a copy
_OF_LETTERS: Final = {_S.DEAD_LETTERED, _S.DISCARDED}
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Untrue:
    """A wrong statement of an audit."""

    kind: str  # the same for the same defect, so that a history can be made smaller
    group: str
    window: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.group}, window {self.window}: {self.what}"


@dataclass(slots=True)
class Record:
    """What was said of a group until now, by its entries; and what was true at the last audit."""

    reported: dict[bytes, EntryStatus] = field(default_factory=dict)
    true: dict[bytes, EntryStatus] = field(default_factory=dict)
    roots: dict[bytes, EntryStatus] = field(default_factory=dict)
    observation: Observation | None = None
    breaks: int = 0
    first: int = 0  # the first window of the stream
    audited_from: EntryId | None = None  # where it began
    audited_to: EntryId | None = None  # where the last window that was judged ended
    judged: int = -1  # the last window that was judged
    copies: dict[bytes, EntryStatus] = field(default_factory=dict)  # of the retry stream
    is_lost: bool = False  # the stream was replaced undetectably: all is in doubt
    counted: tuple[int, int] = (0, 0)  # entries added until the last audit, and there


@dataclass(frozen=True, slots=True)
class Judge:
    """The books, and what was observable when an audit was made."""

    world: World
    group: str
    observation: Observation
    record: Record

    @property
    def book(self) -> GroupBook:
        return self.world.book(self.group)

    @property
    def stream(self) -> StreamBook:
        return self.world.main

    def judge(self, runs: Sequence[WindowReport]) -> list[Untrue]:
        """What is untrue in the windows of one run, in order."""
        found: list[Untrue] = []
        if self._is_broken() and all(
            one.summary.verdict is not AuditVerdict.FAILING for one in runs
        ):
            # It says that it is in doubt, or it cannot know: nothing else can be true by chance.
            if self._is_break_visible():
                found += self._check_break(runs)
            self.record.is_lost = True
        if self.record.is_lost:
            return found
        for reported in runs:
            # An audit of a group that no longer exists accounts for nothing, and reports that.
            if not self.observation.exists and reported.summary.verdict is AuditVerdict.FAILING:
                continue
            if reported.summary.window.number > self.record.judged:
                found += self._judge_window(reported)
            else:
                found += self._judge_again(reported)
            self.record.judged = reported.summary.window.number
            self._remember(reported.summary.window.to_id)
        self._remember(EntryId.MAX)
        self.record.observation, self.record.breaks = self.observation, self.world.breaks
        self.record.counted = len(self.stream), sum(self.stream.bodies)
        return found

    def _judge_again(self, reported: WindowReport) -> Iterator[Untrue]:
        """A window that was judged before: its audit may report nothing new."""
        untrue = self._report(reported)
        yield from self._check_open(reported, untrue)
        yield from self._check_final({}, untrue)

    def _report(self, reported: WindowReport) -> Report:
        def untrue(kind: str, what: str) -> Untrue:
            number = reported.summary.window.number
            return Untrue(kind=kind, group=self.group, window=number, what=what)

        return untrue

    def _judge_window(self, reported: WindowReport) -> Iterator[Untrue]:
        window, untrue = reported.summary.window, self._report(reported)
        places = self._within(window.from_id, window.to_id)
        # Of a stream that was created again: one run may close more windows of it than the first.
        begins_anew = self._is_broken() and window.from_id != self.record.audited_to
        if self.record.audited_from is None or begins_anew:
            self.record.first, self.record.audited_from = window.number, window.from_id
        self.record.audited_to = window.to_id
        yield from self._check_amounts(reported, places, untrue)
        yield from self._check_named(reported, places, untrue)
        yield from self._check_unnamed(reported, places, untrue)
        yield from self._check_open(reported, untrue)
        yield from self._check_verdict(reported, places, untrue)
        yield from self._check_sentences(reported, places, untrue)
        yield from self._check_roots(reported, places, untrue)
        yield from self._check_retried(reported, untrue)
        yield from self._check_table(reported, untrue)
        now = {**reported.named, **reported.settled, **reported.moved}
        yield from self._check_final(now, untrue)
        self.record.reported |= now
        yield from self._check_letters(reported, untrue)

    # What was produced.

    def _check_amounts(
        self, reported: WindowReport, places: Sequence[int], untrue: Report
    ) -> Iterator[Untrue]:
        summary, number = reported.summary, reported.summary.window.number
        hidden = len(places) - summary.produced
        if number > 0 and hidden and not self._is_broken():
            yield untrue("produced", f"{summary.produced} produced, and {len(places)} were added")
        if hidden < 0 and number == 0 and not self._is_broken():
            yield untrue("produced", f"{summary.produced} produced, and {len(places)} were added")
        never_owed = sum(1 for place in places if self._was_gone_before_the_group(place))
        hidden -= min(never_owed, reported.removed_before_the_group)
        known_of = " ".join([reported.limits, *(one.sentence for one in summary.findings)])
        if hidden > 0 and not _BEFORE_THE_FIRST.search(known_of):
            yield untrue(
                "before-the-first", f"{hidden} entries are in no count, and nothing says so"
            )
        names = {self.stream.ids[place] for place in places}
        strange = [one for one in reported.named if one not in names]
        if strange and not self._is_broken():
            yield untrue("strange", f"names {_show(strange)}, not in the window")

    def _check_break(self, runs: Sequence[WindowReport]) -> Iterator[Untrue]:
        """One of the windows that were closed since says that something is not as it was."""
        if all(one.summary.verdict is AuditVerdict.BALANCED for one in runs):
            number = runs[-1].summary.window.number if runs else self.record.judged
            what = "the stream was deleted and created again, and no window reports it"
            yield Untrue(kind="break-unseen", group=self.group, window=number, what=what)

    # Every entry.

    def _check_named(
        self, reported: WindowReport, places: Sequence[int], untrue: Report
    ) -> Iterator[Untrue]:
        names = (self.stream.ids[place] for place in places)
        said = {one: reported.named[one] for one in names if one in reported.named}
        yield from self._check_each("status", said, untrue)
        yield from self._check_each("settled", reported.settled, untrue)
        yield from self._check_each("moved", reported.moved, untrue)

    def _check_each(
        self, what: str, said: Mapping[bytes, EntryStatus], untrue: Report
    ) -> Iterator[Untrue]:
        wrong: dict[tuple[EntryStatus, str], list[bytes]] = {}
        for entry_id, status in said.items():
            place = self.stream.places.get(entry_id)
            if place is not None and not self.accepts(place, status):
                wrong.setdefault((status, self._truth(place)), []).append(entry_id)
        for (status, truth), ids in wrong.items():
            yield untrue(
                f"{what}:{status.value}:{truth}", f"{_show(ids)} reported as {status.value}"
            )

    def accepts(self, place: int, reported: EntryStatus) -> bool:
        """Whether a status may be reported: it is or was true, or the evidence shows no better."""
        book, marks = self.book, Mark(self.book.marks[place])
        is_before = State(book.states[place]) is State.BEFORE_GROUP
        # An entry was done, then the position was set back to before it, and then it was trimmed:
        # an operator that has seen the trimming alone rightly calls it lost.
        ended = (marks or is_before) and place not in book.lost_by_ledger
        if reported is book.status(place) and not (reported is _S.LOST and ended):
            return reported is not _S.ACKNOWLEDGED_PROVEN or self._has_files
        if reported is _S.ACKNOWLEDGED_PROVEN:
            return bool(marks & Mark.DONE) and self._has_files
        if reported is _S.ACKNOWLEDGED_INFERRED:
            return bool(marks & (Mark.DONE | Mark.UNRECORDED)) or self.is_excused(place)
        if reported is _S.INDETERMINATE:
            return is_before or not self._is_covered(place)
        # The former status of a dead letter no longer holds once it was moved again.
        of_letters = {State.DEAD_LETTERED, State.DISCARDED, State.REDRIVEN}
        if book.states[place] in of_letters and reported in {_S.DEAD_LETTERED, _S.DISCARDED}:
            return False
        known = {
            _S.REQUEUED: Mark.REQUEUED,
            _S.DEAD_LETTERED: Mark.DEAD_LETTERED,
            _S.PAYLOAD_GONE: Mark.LETTER_WITHOUT_BODY,
            _S.REDRIVEN: Mark.REDRIVEN,
            _S.DISCARDED: Mark.DISCARDED,
        }
        return bool(marks & known.get(reported, Mark(0)))

    def is_excused(self, place: int) -> bool:
        """Whether what was not acknowledged looks as if it was, to all who could look.

        The documented limits: a pending record that went with its consumer or by a claim; a
        position that was moved by hand and has been read from since, without observations between.
        """
        state = State(self.book.states[place])
        if state is State.UNRECORDED:
            return True
        if self._is_covered(place):
            return False
        if state in {State.CLAIMED_AWAY, State.DROPPED}:
            return True
        if state in {State.SKIPPED, State.DESTROYED, State.BEFORE_GROUP}:
            return not self._is_position_in_doubt()
        return False

    def _is_position_in_doubt(self) -> bool:
        """Whether it is observable that the position did not come where it is by deliveries."""
        before = self.record.observation
        went_back = before is not None and self.observation.position < before.position
        # Servers also lose count of what a group has read where entries were deleted by hand.
        has_no_count = self.observation.entries_read is None and not self.stream.deleted
        is_new = has_no_count or not self.observation.consumers
        return is_new or went_back or self.group in self.world.reported

    # What is only counted.

    def _check_unnamed(
        self, reported: WindowReport, places: Sequence[int], untrue: Report
    ) -> Iterator[Untrue]:
        names = {self.stream.ids[place] for place in places}
        counted = Counter(reported.summary.counts)
        counted.subtract(Counter(status for one, status in reported.named.items() if one in names))
        rest = [place for place in places if self.stream.ids[place] not in reported.named]
        for status in EntryStatus:
            most = sum(1 for place in rest if self.accepts(place, status))
            number = counted[status]
            if self._is_broken():
                continue
            if number < 0:
                yield untrue(f"count:{status.value}:less", f"{-number} named and not counted")
            elif number > most:
                truths = Counter(self._truth(place) for place in rest).most_common(4)
                what = f"{number} only counted, of {most} possible; in truth {truths}"
                yield untrue(f"count:{status.value}:more", what)

    # What is open, and what was final and is not.

    def _check_open(self, reported: WindowReport, untrue: Report) -> Iterator[Untrue]:
        window = reported.summary.window
        if self._is_broken():
            return
        places = [one for one in self._within(EntryId.MIN, window.to_id) if self._is_open(one)]
        true = {self.stream.ids[place]: self.book.status(place) for place in places}
        said = {**self.record.reported, **reported.named, **reported.settled}
        closed = {one for one, status in said.items() if status not in _NOT_FINAL}
        owed = [self.stream.ids[place] for place in places if self._is_owed(place, window)]
        forgotten = [one for one in owed if one not in reported.open and one not in closed]
        if forgotten and self.book.exists:
            yield untrue("open:forgotten", f"{_show(forgotten)} is open, and not reported as open")
        extra = [one for one, status in reported.open.items() if true.get(one) is not status]
        if extra:
            yield untrue("open:untrue", f"{_show(extra)} wrongly reported as open")
        copies = sum(1 for status in reported.retried.values() if status in OPEN_STATUSES)
        most = len(reported.open) + copies
        if reported.summary.open != most:
            listed = len(reported.open)
            what = f"{reported.summary.open} reported open, of {listed} entries, {copies} copies"
            yield untrue("open:count", what)
        stuck = [
            one
            for one, status in true.items()
            if status is _S.STUCK
            and self.stream.places[one] < self.stream.upto(window.from_id.ms, window.from_id.seq)
            and one in reported.open
        ]
        if reported.summary.stuck_earlier != len(stuck):
            what = (
                f"{reported.summary.stuck_earlier} stuck of earlier windows, in truth {len(stuck)}"
            )
            yield untrue("open:stuck-earlier", what)

    def _check_final(self, now: Mapping[bytes, EntryStatus], untrue: Report) -> Iterator[Untrue]:
        """What was said once, and not again now, and is not open, is still so."""
        stale: dict[tuple[EntryStatus, str], list[bytes]] = {}
        for entry_id, status in self.record.reported.items():
            place = self.stream.places.get(entry_id)
            if entry_id in now:
                continue
            if place is None or status in _OPEN or status is _S.INDETERMINATE:
                continue
            was = self.record.true.get(entry_id)
            is_same = was is None or was is self.book.status(place)
            # What was wrong at once is reported at once.
            if not is_same and not self.accepts(place, status):
                stale.setdefault((status, self._truth(place)), []).append(entry_id)
        for (status, truth), ids in stale.items():
            yield untrue(
                f"stale:{status.value}:{truth}", f"{_show(ids)} reported as {status.value}"
            )

    # Verdict and sentences.

    def _check_verdict(
        self, reported: WindowReport, places: Sequence[int], untrue: Report
    ) -> Iterator[Untrue]:
        summary = reported.summary
        if summary.verdict is not AuditVerdict.BALANCED:
            return
        bad = Counter(self._truth(place) for place in self._needing_a_look(reported, places))
        if bad:
            kinds = "+".join(sorted(bad))
            yield untrue(f"balanced:{kinds}", f"balanced, and in truth {dict(bad)}")
        if summary.counts[_S.INDETERMINATE]:
            yield untrue("balanced:indeterminate", "balanced, and some are indeterminate")
        claims = sum(summary.counts[one] for one in _DONE)
        has_read = self.observation.consumers or self.observation.entries_read is not None
        if claims and self.observation.exists and not has_read and not self._has_files:
            yield untrue("balanced:never-read", "balanced, and no consumer has ever read")
        if summary.counts[_S.ACKNOWLEDGED_INFERRED] and "infer" not in summary.sentence:
            yield untrue("balanced:inferred-untold", f"says {summary.sentence!r}")

    def _needing_a_look(self, reported: WindowReport, places: Sequence[int]) -> Iterator[int]:
        """Entries that need attention, as far as the evidence shows.

        Those of the window, those added before the first one, and those of earlier windows that
        have come to a bad end since the last audit or are stuck.
        """
        window = reported.summary.window
        for place in self._within(EntryId.MIN, window.to_id):
            entry_id = self.stream.ids[place]
            status = self.book.status(place)
            if status in EXPECTED_STATUSES:
                continue
            # The operator only records how many were dropped: each may have been acknowledged.
            if self.is_excused(place) and place not in self.book.reported_by_ledger:
                continue
            if State(self.book.states[place]) is State.BEFORE_GROUP:
                continue  # it is not in the group's backlog
            marks = Mark(self.book.marks[place])
            if marks & (Mark.DONE | Mark.UNRECORDED):
                continue
            # Moved away, and passed again by a position that was set back: still moved.
            if State(self.book.states[place]) is State.PASSED_GONE and marks & _MOVED:
                continue
            is_new = self.record.true.get(entry_id) is not status or status is _S.STUCK
            if place in places or is_new:
                yield place

    def _check_sentences(
        self, reported: WindowReport, places: Sequence[int], untrue: Report
    ) -> Iterator[Untrue]:
        summary = reported.summary
        yield from self._check_numbers(summary, untrue)
        gone = sum(
            1
            for place in range(len(self.stream))
            if self.book.status(place) is _S.LOST
            and State(self.book.states[place]) in NEVER_DELIVERED
        )
        for one in summary.findings:
            says = re.search(r"before (they|it) (were|was) delivered|never delivered", one.sentence)
            if says and one.count > gone:
                yield untrue("sentence:delivered", f"{one.sentence!r}: {gone} were not delivered")
            if (
                one.kind == "payload-gone"
                and "were trimmed:" in one.sentence
                and not self._trimmed()
            ):
                yield untrue("sentence:trimmed", f"{one.sentence!r}: nothing was trimmed")

    def _check_numbers(self, summary: AuditSummary, untrue: Report) -> Iterator[Untrue]:
        """The sentence begins with a count of all entries, and says proven of proven ones only."""
        found = re.match(
            r"(\d+) of (\d+) entr\w+ (?:were|was) (acknowledged|delivered)", summary.sentence
        )
        if found:
            proven = summary.counts[_S.ACKNOWLEDGED_PROVEN]
            inferred = summary.counts[_S.ACKNOWLEDGED_INFERRED]
            first = inferred if found[3] == "delivered" else proven
            if (int(found[1]), int(found[2])) != (first, summary.produced):
                yield untrue("sentence:numbers", summary.sentence)

    def _trimmed(self) -> int:
        return self.stream.trimmed

    # What users added, through all copies.

    def _check_roots(
        self, reported: WindowReport, places: Sequence[int], untrue: Report
    ) -> Iterator[Untrue]:
        if self._is_broken():
            return
        users = [place for place in places if place not in self.stream.copies]
        counts = reported.root_counts
        hidden = len(places) - reported.summary.produced
        if not hidden and sum(counts.values()) != len(users):
            what = f"{sum(counts.values())} roots, and users added {len(users)}"
            yield untrue("roots:sum", what)
        for status in EntryStatus:
            most = sum(1 for place in users if self._accepts_root(place, status))
            if counts.get(status, 0) > most:
                ends = Counter(self.book.end_of_root(place).value for place in users)
                what = f"{counts[status]} {status.value}, of {most} possible; in truth {ends}"
                yield untrue(f"roots:{status.value}", what)
        wrong: dict[str, list[bytes]] = {}
        for one in reported.roots:
            place = self.stream.places.get(one.root)
            if place is not None and not self._accepts_root(place, one.status):
                kind = f"root:{one.status.value}:{self.book.end_of_root(place).value}"
                wrong.setdefault(kind, []).append(one.root)
        for kind, ids in wrong.items():
            yield untrue(kind, f"{_show(ids)} reported with this end")

    def _accepts_root(self, place: int, reported: EntryStatus) -> bool:
        """Whether this may be said of what became of an entry and its copies."""
        if reported in _COPIED:
            return False
        if self.accepts(place, reported):
            return True
        following = self.book.following.get(place, [])
        if any(self._of(stream)._accepts_root(at, reported) for stream, at in following):
            return True
        return bool(following) and reported is _S.INDETERMINATE and not self._is_covered(place)

    def _of(self, stream: StreamBook) -> _Copies:
        return _Copies(self.world, self.group, self.observation, self.record, stream)

    def count_done(self, after: EntryId, last: EntryId) -> int:
        """What users added there and is done, or looks so to all who could look."""
        return sum(
            1
            for place in self._within(after, last)
            if place not in self.stream.copies
            and any(self._accepts_root(place, status) for status in _DONE)
        )

    def _check_retried(self, reported: WindowReport, untrue: Report) -> Iterator[Untrue]:
        stream = self.world.retry(self.group)
        judge = _Copies(self.world, self.group, self.observation, self.record, stream)
        yield from judge._check_each("retried", reported.retried, untrue)

    def _check_letters(self, reported: WindowReport, untrue: Report) -> Iterator[Untrue]:
        """Reported statuses of roots and of copies still hold when dead letters may have moved."""
        copies = self._of(self.world.retry(self.group))
        yield from copies._check_each("moved-copy", reported.moved_copies, untrue)
        self.record.copies |= {**reported.retried, **reported.moved_copies}
        self.record.roots |= {one.root: one.status for one in reported.roots}
        for entry_id, status in self.record.copies.items():
            place = copies.stream.places.get(entry_id)
            if place is not None and status in _OF_LETTERS and not copies.accepts(place, status):
                yield untrue(f"stale-copy:{status.value}", f"{_show([entry_id])} reported as that")
        for entry_id, status in self.record.roots.items():
            place = self.stream.places.get(entry_id)
            if place is None or status not in _OF_LETTERS:
                continue
            if not self._accepts_root(place, status):
                kind = f"stale-root:{status.value}:{self.book.end_of_root(place).value}"
                yield untrue(kind, f"{_show([entry_id])} reported with this end")

    def _check_table(self, reported: WindowReport, untrue: Report) -> Iterator[Untrue]:
        """The tables of an audit agree with each other."""
        window = reported.summary.window.number
        earlier = {
            one: status for one, status in reported.open.items() if one not in reported.named
        }
        said = {**reported.exceptions, **earlier, **reported.settled, **reported.moved}
        table = {**reported.named, **reported.again}
        differing = [one for one, status in said.items() if table.get(one) is not status]
        rest = [
            one
            for one, status in table.items()
            if one not in said and (status not in _DONE or one not in reported.named)
        ]
        if differing or rest:
            yield untrue("table", f"{_show([*differing, *rest])} differ, window {window}")

    # What is observable.

    @property
    def _has_files(self) -> bool:
        return self.world.history.files is not Files.NONE

    def _is_covered(self, place: int) -> bool:
        """Whether append-only files have seen all of an entry's life."""
        return self._has_files and place >= self.world.covered_from

    def _is_open(self, place: int) -> bool:
        """Whether it has not come to an end."""
        state = State(self.book.states[place])
        waits = state is State.WAITING and bool(self.stream.bodies[place])
        return waits or state is State.HELD

    def _is_owed(self, place: int, window: Window) -> bool:
        """Whether an open entry must be reported: it is observable, or came after the first window.

        An entry from before the first window that is to be delivered again is reported by the audit
        after its delivery.
        """
        begin = self.record.audited_from or EntryId.MIN
        if place in self._within(begin, window.to_id):
            return True
        is_held = State(self.book.states[place]) is State.HELD
        is_first = window.number == self.record.first
        return bool(self.stream.bodies[place]) and (is_held or is_first)

    def _was_gone_before_the_group(self, place: int) -> bool:
        is_before = State(self.book.states[place]) is State.BEFORE_GROUP
        return is_before and not self.stream.bodies[place]

    def _is_broken(self) -> bool:
        if self.record.observation is not None:
            return self.record.breaks != self.world.breaks
        return self.world.archived_breaks not in {None, self.world.breaks}

    def _is_break_visible(self) -> bool:
        """Whether it is observable that the stream was deleted and made again.

        The operator's ledger shows it, a server that restarted, and counters that are lower than
        before or lower than what has come since.
        """
        if self.world.history.has_operator or self.world.has_restarted:
            return True
        known, (added, length) = self.record.counted[0], (len(self.stream), sum(self.stream.bodies))
        return added < known or length > added - known

    def _truth(self, place: int) -> str:
        state = State(self.book.states[place])
        gone = (
            "" if self.stream.bodies[place] or state not in {State.WAITING, State.HELD} else "-gone"
        )
        done = "-done" if self.book.marks[place] & Mark.DONE and state != State.ACKNOWLEDGED else ""
        return f"{state.name.lower()}{gone}{done}"

    def _within(self, after: EntryId, last: EntryId) -> range:
        """Places of the entries after the first ID, up to the second."""
        start, end = self.stream.upto(after.ms, after.seq), self.stream.upto(last.ms, last.seq)
        return range(start, max(start, end))

    def _remember(self, last: EntryId) -> None:
        """What was true up to an entry, when it was said."""
        self.record.true |= {
            self.stream.ids[place]: self.book.status(place)
            for place in self._within(EntryId.MIN, last)
        }


@dataclass(frozen=True, slots=True)
class _Copies(Judge):
    """The same of copies in the retry stream, which append-only files are not asked about."""

    of: StreamBook

    @property
    def book(self) -> GroupBook:
        return self.of.group(self.group)

    @property
    def stream(self) -> StreamBook:
        return self.of

    @property
    def _has_files(self) -> bool:
        return self.of is self.world.main and self.world.history.files is not Files.NONE


Report = Callable[[str, str], Untrue]


def _show(ids: Iterable[bytes]) -> str:
    listed = [one.decode() for one in ids]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def kinds_of(found: Iterable[Untrue]) -> Mapping[str, int]:
    """How often each kind was found."""
    return Counter(one.kind for one in found)
