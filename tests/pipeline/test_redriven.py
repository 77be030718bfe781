"""Dead letters that were redriven, discarded or restored, also windows after they became such."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.records.audit import AuditSummary, AuditVerdict
from pelops.pipeline.archive.tables import open_archive
from pelops.pipeline.lookup import LookupQuestion, look_up
from pelops.pipeline.report.model import CountCheck
from tests.pipeline.audited import FIRST_MS, GROUP, Audited
from tests.pipeline.hardships import large_windows

REDRIVE = "after-fix/6f1a"


@dataclass(slots=True)
class Operator:
    """What the operator writes, each act as its script does."""

    audited: Audited
    # Dead-letter ID -> root and number of redrives; both streams can have the same IDs.
    letters: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    discarded: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)

    @property
    def keys(self) -> Any:
        return self.audited.keys

    def dead_letter(self, entry: str, root: str = "", *, letter: str = "*", times: int = 0) -> str:
        """Move the entry to the dead-letter stream; return the new ID."""
        root = root or entry
        added = self._add(self.keys.dead_letter, letter, root)
        self.audited.acknowledge(entry)
        self.audited.record("dead-lettered", "reason", "Poison", entry, f"{added} {root} 3 4 70")
        self.letters[added] = root, times
        return added

    def redrive(self, letter: str, *, to_retry: bool = False) -> str:
        """Move the dead letter back as a copy; return its ID."""
        root, times = self.letters.pop(letter)
        marks: dict[str, Any] = {"_redrive": REDRIVE, "_returned": times + 1}
        marks |= {"_original_id": root, "_retry_count": 0}
        if to_retry:
            copy = self.audited.client.xadd(self.keys.retry, {"number": 1, **marks}).decode()
        else:
            (copy,) = self.audited.add(1, order=1, **marks)
        target = self.keys.retry if to_retry else self.keys.stream
        self._move("redriven", self.keys.dead_letter, target, letter, copy, root)
        return str(copy)

    def discard(self, letter: str, new_id: str = "*") -> str:
        root, times = self.letters.pop(letter)
        new = self._add(self.keys.discarded, new_id, root)
        self._move("discarded", self.keys.dead_letter, self.keys.discarded, letter, new, root)
        self.discarded[new] = root, times
        return new

    def restore(self, letter: str, new_id: str = "*") -> str:
        root, times = self.discarded.pop(letter)
        new = self._add(self.keys.dead_letter, new_id, root)
        self._move("restored", self.keys.discarded, self.keys.dead_letter, letter, new, root)
        self.letters[new] = root, times
        return new

    def watch(self) -> None:
        last = f"{FIRST_MS + self.audited.count // 10}-0"
        self.audited.record("bookmark", "entries_added", self.audited.count, "last_generated", last)

    def _add(self, stream: str, entry_id: str, root: str) -> str:
        ask = self.audited.client.execute_command
        added: bytes = ask("XADD", stream, entry_id, "number", 1, "_original_id", root)
        return added.decode()

    def _move(self, kind: str, source: str, target: str, letter: str, new: str, root: str) -> None:
        self.audited.client.xdel(source, letter)
        self.audited.client.execute_command(
            "XADD", self.keys.ledger, "*", "kind", kind, "stream", source, "target", target,
            "redrive", REDRIVE, "requested_by", "ann", letter, f"{new} {root} 0 0 0",
        )  # fmt: skip


@pytest.fixture
def operator(audited: Audited) -> Operator:
    audited.create_group()
    found = Operator(audited)
    found.watch()
    return found


def dead_letters(operator: Operator, number: int) -> tuple[list[str], list[str]]:
    """So many entries, all of them dead-lettered; the IDs of both."""
    ids = operator.audited.add(number)
    operator.audited.deliver(number)
    return ids, [operator.dead_letter(entry) for entry in ids]


def currently(audited: Audited) -> dict[str, tuple[str, str | None]]:
    """The status that counts of each entry of the stream, and its new ID."""
    rows = sorted(audited.statuses(stream=audited.stream), key=lambda row: int(row["as_of"]))
    return {row["id"]: (row["status"], row["new_id"]) for row in rows}


def moved(audited: Audited, number: int) -> Counter[str]:
    """What became of dead letters of earlier windows whose moves this audit observed."""
    rows = audited.statuses(number, stream=audited.stream)
    earlier = [row for row in rows if row["window"] < number]
    before = {
        row["id"]: row["new_id"]
        for row in sorted(audited.statuses(), key=lambda row: int(row["as_of"]))
        if row["as_of"] < number
    }
    return Counter(row["status"] for row in earlier if row["new_id"] != before[row["id"]])


def broken(audited: Audited, number: int) -> list[CountCheck]:
    return [one for one in audited.report(number).checks if not one.holds]


def kinds(summary: AuditSummary) -> set[str]:
    return {one.kind for one in summary.findings}


def words(audited: Audited, entry: str) -> Iterator[str]:
    asked = LookupQuestion(entry=parse_entry_id(entry), group=GROUP)
    (found,) = look_up(open_archive(str(audited.archive)), asked)
    for one in found.events:
        yield f"{one.entry} {one.what}"


@pytest.mark.full
def test_an_entry_redriven_in_the_same_window_is_followed_to_its_copy(
    operator: Operator,
) -> None:
    audited = operator.audited
    ids, letters = dead_letters(operator, 3)
    copies = [operator.redrive(letter) for letter in letters[:2]]
    audited.deliver(2)
    audited.acknowledge(copies[0])
    summary = audited.audit_one()
    assert audited.counts(summary) == {
        "redriven": 2, "dead_lettered": 1, "acknowledged_inferred": 1, "in_flight": 1,
    }  # fmt: skip
    roots = {"acknowledged_inferred": 1, "dead_lettered": 1, "in_flight": 1}
    assert audited.report().roots == roots
    assert broken(audited, 0) == []
    assert "2 are redriven" in summary.sentence
    assert kinds(summary) == {"dead-lettered"}
    rows = {row["seq"]: row for row in audited.rows("exceptions")}
    assert rows[0]["new_id"] == copies[0]
    audited.acknowledge(copies[1])
    assert audited.audit_one().verdict is AuditVerdict.BALANCED
    (root,) = audited.rows("roots", 1)
    assert (root["seq"], root["status"]) == (1, "acknowledged_inferred")
    assert currently(audited)[ids[1]] == ("redriven", copies[1])


@pytest.mark.full
@pytest.mark.parametrize("is_large", [False, pytest.param(True, marks=pytest.mark.full)])
def test_an_entry_of_an_earlier_window_is_redriven_in_a_later_one(
    operator: Operator, is_large: bool
) -> None:
    with large_windows() if is_large else nullcontext():
        redrive_later(operator)


def redrive_later(operator: Operator) -> None:
    audited = operator.audited
    ids, letters = dead_letters(operator, 4)
    summary = audited.audit_one()
    assert audited.counts(summary) == {"dead_lettered": 4}
    audited.add(1)
    audited.audit_one()  # a window between them
    copy = operator.redrive(letters[0])
    gone = operator.discard(letters[1])
    back = operator.restore(operator.discard(letters[2]))
    summary = audited.audit_one()
    assert audited.counts(summary) == {"undelivered": 1}
    assert moved(audited, 2) == {"dead_lettered": 1, "discarded": 1, "redriven": 1}
    assert kinds(summary) == {"restored-letters"}
    assert "1 is redriven by now" in summary.sentence
    found = currently(audited)
    assert [found[one] for one in ids] == [
        ("redriven", copy),
        ("discarded", gone),
        ("dead_lettered", back),
        ("dead_lettered", letters[3]),
    ]
    roots = {row["seq"]: (row["status"], row["window"]) for row in audited.rows("roots", 2)}
    assert roots == {0: ("undelivered", 0)}
    audited.acknowledge(*audited.deliver(5))
    restored = operator.restore(gone)
    operator.redrive(back)
    summary = audited.audit_one()
    assert moved(audited, 3) == {"dead_lettered": 1, "redriven": 1}
    ends = {row["seq"]: row["status"] for row in audited.rows("roots", 3)}
    assert ends == {0: "acknowledged_inferred", 2: "undelivered"}
    assert currently(audited)[ids[1]] == ("dead_lettered", restored)
    assert all(not broken(audited, number) for number in range(4))


@pytest.mark.full
def test_a_discarded_letter_needs_no_attention_and_is_never_lost(operator: Operator) -> None:
    audited = operator.audited
    ids, letters = dead_letters(operator, 2)
    for letter in letters:
        operator.discard(letter)
    summary = audited.audit_one()
    assert audited.counts(summary) == {"discarded": 2}
    assert summary.verdict is AuditVerdict.BALANCED
    assert "2 are discarded" in summary.sentence
    audited.add(1)
    audited.acknowledge(*audited.deliver(1))
    assert audited.audit_one().verdict is AuditVerdict.BALANCED
    assert {currently(audited)[one][0] for one in ids} == {"discarded"}


@pytest.mark.full
def test_a_chain_of_moves_in_one_window_ends_at_the_last_one(operator: Operator) -> None:
    """The dead-letter and the discard stream have equal IDs, as those of one millisecond can be."""
    audited = operator.audited
    first, second = audited.add(2)
    audited.deliver(2)
    one = operator.dead_letter(first, letter="5-0")
    two = operator.dead_letter(second, letter="6-0")
    audited.audit_one()
    for turn in range(1, 6):
        one = operator.restore(operator.discard(one, f"{5 + 2 * turn}-0"), f"{6 + 2 * turn}-0")
    two = operator.discard(two, "17-0")
    copy = operator.redrive(one)
    audited.audit_one()
    found = currently(audited)
    assert (found[first], found[second]) == (("redriven", copy), ("discarded", two))


@pytest.mark.full
def test_a_copy_dead_lettered_in_the_retry_stream_can_be_redriven_again(
    operator: Operator,
) -> None:
    audited = operator.audited
    (entry,), (letter,) = dead_letters(operator, 1)
    audited.client.xgroup_create(operator.keys.retry, GROUP, id="0", mkstream=True)
    copy = operator.redrive(letter, to_retry=True)
    audited.client.xreadgroup(GROUP, "b", {operator.keys.retry: ">"})
    audited.audit_one()
    assert audited.report().roots == {"in_flight": 1}
    # It fails again there, in this window, and is redriven to the stream in the next one.
    audited.client.xack(operator.keys.retry, GROUP, copy)
    again = operator._add(operator.keys.dead_letter, "*", entry)
    operator.letters[again] = entry, 1
    ask = audited.client.execute_command
    ask(
        "XADD", operator.keys.ledger, "*", "kind", "dead-lettered", "reason", "Poison",
        "stream", operator.keys.retry, copy, f"{again} {entry} 3 4 70",
    )  # fmt: skip
    audited.audit_one()
    (root,) = audited.rows("roots", 1)
    assert root["status"] == "dead_lettered"
    last = operator.redrive(again)
    audited.acknowledge(*audited.deliver(1))
    audited.audit_one()
    (root,) = audited.rows("roots", 2)
    assert (root["ms"], root["seq"]) == (FIRST_MS, 0)
    assert root["status"] == "acknowledged_inferred"
    (row,) = audited.rows("retried", 2)
    assert (row["id"], row["status"]) == (copy, "redriven")
    steps = list(words(audited, letter))
    for step in (
        f"{entry} dead-lettered as {letter}",
        f"{letter} redriven from the dead-letter stream as {copy}",
        f"{copy} dead-lettered as {again}",
        f"{again} redriven from the dead-letter stream as {last}",
        f"{last} found acknowledged, inferred",
    ):
        assert steps.count(step) == 1, (step, steps)
    for one in (copy, again, last):
        assert list(words(audited, one)) == steps


@pytest.mark.full
def test_copies_of_several_redrives_are_no_duplicates(operator: Operator) -> None:
    audited = operator.audited
    (entry,), (letter,) = dead_letters(operator, 1)
    copy = operator.redrive(letter)
    audited.deliver(1)
    operator.redrive(operator.dead_letter(copy, entry, times=1))
    summary = audited.audit_one()
    assert audited.counts(summary) == {"redriven": 2, "undelivered": 1}
    assert audited.report().roots == {"undelivered": 1}
    assert "duplicates-by-root" not in kinds(summary)
    # The same copy twice, of one redrive, is one too many.
    marks = {"_redrive": REDRIVE, "_returned": 3, "_original_id": entry, "_retry_count": 0}
    audited.add(1, order=1, **marks)
    audited.add(1, order=1, **marks)
    assert "duplicates-by-root" in kinds(audited.audit_one())


@pytest.mark.full
def test_workers_cannot_report_that_letters_were_moved(operator: Operator) -> None:
    audited = operator.audited
    (entry,), (letter,) = dead_letters(operator, 1)
    for kind in ("redriven", "discarded"):
        audited.client.execute_command(
            "XADD", operator.keys.worker_ledger, "*", "kind", kind, "stream",
            operator.keys.dead_letter, "target", audited.stream, letter, f"9-9 {entry} 0 0 0",
        )  # fmt: skip
    assert audited.counts(audited.audit_one()) == {"dead_lettered": 1}


@pytest.mark.full
def test_a_ledger_that_leads_in_a_circle_ends(operator: Operator) -> None:
    audited = operator.audited
    (entry,), (letter,) = dead_letters(operator, 1)
    operator._move("discarded", "a", "b", letter, "77-0", entry)
    operator._move("restored", "b", "a", "77-0", letter, entry)
    assert audited.counts(audited.audit_one()) == {"dead_lettered": 1}


@pytest.mark.full
def test_dead_letters_can_be_moved_although_their_entry_left_the_archive(
    operator: Operator,
) -> None:
    audited = operator.audited
    ids, letters = dead_letters(operator, 2)
    for _ in range(3):
        audited.audit_one()
        audited.add(1)
    audited.acknowledge(*audited.deliver(3))
    audited.grow_older(0, timedelta(days=10))
    audited.audit_one(retention=timedelta(days=9))
    assert not {row["id"] for row in audited.statuses()} & set(ids)
    copy = operator.redrive(letters[0])
    operator.discard(letters[1])
    summary = audited.audit_one()
    assert audited.counts(summary) == {"undelivered": 1}
    assert [row["id"] for row in audited.statuses(summary.window.number)] == [copy]
    assert broken(audited, summary.window.number) == []


@pytest.mark.full
def test_a_body_that_was_gone_stays_so_whatever_happens_to_its_letter(operator: Operator) -> None:
    audited = operator.audited
    (entry,) = audited.add(1)
    audited.deliver(1)
    audited.client.xdel(audited.stream, entry)
    audited.acknowledge(entry)
    audited.record("payload-gone", "reason", "PayloadGone", entry, f"9-9 {entry} 0 1 70")
    operator.letters["9-9"] = entry, 0
    operator.discard("9-9")
    summary = audited.audit_one()
    assert audited.counts(summary) == {"payload_gone": 1}
    assert summary.verdict is AuditVerdict.FINDINGS
