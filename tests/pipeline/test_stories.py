"""Short stories of a stream and its group, each with what an audit then reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditVerdict, Certainty
from pelops.pipeline import rounds
from pelops.pipeline.archive import snapshot
from tests.pipeline.audited import GROUP, Audited
from tests.pipeline.hardships import half_read
from tests.pipeline.stories import (
    Step,
    acknowledge,
    add,
    archive,
    create,
    delete,
    deliver,
    destroy,
    during,
    entry,
    let_idle,
    moved,
    record,
    reports,
    set_position,
    trim,
    trim_all,
    work,
)

BALANCED, FINDINGS, UNKNOWN, FAILING = (
    AuditVerdict.BALANCED,
    AuditVerdict.FINDINGS,
    AuditVerdict.UNKNOWN,
    AuditVerdict.FAILING,
)
NOTHING_KNOWN: Final[dict[str, Any]] = {"verdict": UNKNOWN, "certainty": Certainty.UNKNOWN}


def worker_record(kind: str, *pairs: Any) -> Step:
    """An event in the ledger that workers may write to."""

    def write(one: Audited) -> None:
        words = [word(one) if callable(word) else word for word in pairs]
        one.client.execute_command(
            "XADD", one.keys.worker_ledger, "*", "stream", one.stream, "kind", kind, *words
        )

    return write


def drop(*consumers: str) -> Step:
    """Consumers are deleted by hand, and the operator records it."""

    def write(one: Audited) -> None:
        pairs = [word for name in consumers for word in ("consumer", name)]
        dropped = [one.client.xgroup_delconsumer(one.stream, GROUP, name) for name in consumers]
        one.client.execute_command(
            "XADD", one.keys.ledger, "*", "kind", "pending-dropped",
            "at_most", sum(dropped), "observed_ms", 10, *pairs,
        )  # fmt: skip

    return write


def look(position: int, lowest: int | None = None, at_ms: int = 1) -> Step:
    """The operator records where the group is."""
    pending = "" if lowest is None else entry(lowest)
    words = ("last_delivered", entry(position), "lowest_pending", pending)
    return record("bookmark", *words, at_ms=at_ms)


def counters(added: int, *more: Any) -> Step:
    return record("bookmark", "entries_added", added, "last_generated", entry(added - 1), *more)


def began(at: int, **more: object) -> Step:
    """The operator has recorded where the group began."""
    words = ("position", entry(at), "why", "first")
    return record("group-created", *words, *(word for pair in more.items() for word in pair))


def bodies_found_gone(*entries: int) -> Step:
    """The operator acknowledges entries without bodies, and records them, in one transaction."""

    def write(one: Audited) -> None:
        ids = [one.ids[number] for number in entries]
        pairs = [part for one_id in ids for part in (one_id, f"9-9 {one_id} 0 1 40")]
        pipeline = one.client.pipeline(transaction=True)
        words = ("kind", "payload-gone", "stream", one.stream, "consumer", "a")
        pipeline.execute_command("XADD", one.keys.ledger, "*", *words, *pairs)
        pipeline.xack(one.stream, GROUP, *ids)
        pipeline.execute()

    return write


# Of 100: 85 acknowledged, 4 deleted while pending, 5 before they were delivered.
REMOVED_BEFORE: Final = (
    create(), add(100), work(90, left=5), delete(*range(85, 89), *range(90, 95)),
    bodies_found_gone(85, 86, 87, 88), counters(100), acknowledge(89), work(10),
)  # fmt: skip
# Eight entries: four were archived before their delivery.
HALF_ARCHIVED: Final = (create(), add(8), work(4), archive(), work(4))


def delete_stream(one: Audited) -> None:
    one.client.delete(one.stream)


def create_again(one: Audited) -> None:
    """Create the group at the end, as a user does to skip a backlog."""
    one.client.xgroup_destroy(one.stream, GROUP)
    one.create_group(at="$")


def nothing_more_is_known(one: Audited) -> None:
    """Audit: every entry has a status, and only ten can look acknowledged."""
    summary = one.audit_one()
    assert sum(summary.counts.values()) == summary.produced
    assert not summary.counts[EntryStatus.ACKNOWLEDGED_PROVEN]
    assert summary.counts[EntryStatus.ACKNOWLEDGED_INFERRED] <= 10


# fmt: off
STORIES: Final[dict[str, Sequence[Step]]] = {
    "everything acknowledged": [
        create(), add(30), work(30),
        reports(
            counts={"acknowledged_inferred": 30}, verdict=BALANCED,
            sentence="30 of 30 entries were delivered or passed, and are no longer pending "
            "(inferred).",
        ),
    ],
    "windows join": [
        create(), add(10), work(10), reports(produced=10),
        add(7), reports(produced=7, counts={"undelivered": 7}),
    ],
    "an empty stream": [
        create(), lambda one: one.client.xgroup_createconsumer(one.stream, GROUP, "idle"),
        reports(produced=0, verdict=BALANCED, sentence="Nothing was added."),
    ],
    "a missing group": [
        add(5), reports(verdict=FAILING, worst="group-missing", counts={"indeterminate": 5}),
    ],
    "a missing stream": [reports(verdict=FAILING, produced=0)],
    "undelivered entries that are gone later": [
        create(), add(10), reports(produced=10), delete(0, 1), work(4), trim(8),
        # 0 and 1 were passed unread, 2 to 5 acknowledged, then trimmed: these look the same.
        reports(
            produced=0, kinds={"lost-later": 2, "indeterminate-later": 6}, lost=0, lost_earlier=2,
            sentence="Nothing was added. Of earlier windows 2 are lost by now, 6 are "
            "indeterminate by now.",
            settled={**dict.fromkeys(range(6), "indeterminate"), 6: "lost", 7: "lost"}, open=2,
        ),
    ],
    "an entry stuck since an earlier window": [
        create(), add(5), deliver(5), acknowledge(2, 3, 4), let_idle(0, 10_000),
        reports(verdict=BALANCED), let_idle(0), add(1),
        reports(
            produced=1, stuck_earlier=1, open=3, kinds={"stuck-earlier": 1}, verdict=FINDINGS,
            says=" Of earlier windows 1 is stuck.",
        ),
        acknowledge(0), reports(verdict=BALANCED),
    ],
    "acknowledged, then trimmed": [
        create(), add(5), deliver(5), reports(open=5), acknowledge(0, 1, 2, 3, 4), trim_all(),
        reports(kinds={}, open=0),
    ],
    "a body deleted while it is pending": [
        create(), add(6), deliver(6), delete(3), trim(1),
        # The first was trimmed before the archive began, and 3 deleted: both are still pending.
        reports(counts={"in_flight": 4, "payload_gone": 2}, produced=6, archived=4),
    ],
    "trimmed before the archive, pending or not": [
        create(), add(5), work(5), reports(produced=5), add(10), deliver(4), trim(11),
        reports(
            produced=10, archived=4, counts={"payload_gone": 4, "lost": 2, "undelivered": 4},
            kinds={"unarchived": 6, "lost": 2, "payload-gone": 4, "stream-in-doubt": 1},
        ),
    ],
    "a body that is gone, and acknowledgements": [
        create(), add(3), deliver(3), delete(0, 1),
        reports(counts={"payload_gone": 2, "in_flight": 1}, open=3), acknowledge(0),
        reports(kinds={"payload-gone-earlier": 1}, settled={0: "acknowledged_inferred"}),
        acknowledge(1, 2), reports(verdict=BALANCED, open=0),
    ],
    "removed before the first audit": [
        *REMOVED_BEFORE,
        # Only an append-only file shows that five were never delivered.
        reports(
            counts={"acknowledged_inferred": 91, "payload_gone": 4}, produced=95,
            kinds={"payload-gone": 4, "removed-before-archive": 5},
            verdict=FINDINGS, certainty=Certainty.UNKNOWN,
            limit="5 entries were added and removed before",
        ),
    ],
    "deleted before delivery, by the group's counters": [
        create(), add(30), work(20), delete(*range(22, 27)),
        reports(
            counts={"acknowledged_inferred": 20, "undelivered": 5, "lost": 5}, kinds={"lost": 5},
        ),
        work(5), add(10), delete(33, 34, 35),
        # The same in a later window, which begins at the group's position, or after it.
        reports(counts={"undelivered": 7, "lost": 3}), add(10), delete(43, 44, 45),
        reports(counts={"undelivered": 7, "lost": 3}, lost_earlier=0),
    ],
    "trimmed before delivery, by the group's counters": [
        create(), add(30), work(10), trim(18),
        # The first ten were delivered; how they ended is unknown.
        reports(
            counts={"undelivered": 12, "lost": 8}, kinds={"lost": 8, "removed-before-archive": 10},
        ),
    ],
    "a long trimmed stream": [
        create(), add(40), work(40), trim(30),
        reports(
            **NOTHING_KNOWN, counts={"acknowledged_inferred": 10},
            kinds={"removed-before-archive": 30},
            sentence="10 of 10 entries were delivered or passed, and are no longer pending "
            "(inferred). 30 entries were added and removed before the first archive; their "
            "outcome is unknown.",
        ),
        add(1), work(1), reports(verdict=BALANCED),
    ],
    "only the operator trimmed before the first audit": [
        create(), add(40), work(40), trim(30),
        record("trimmed", "count", 30, "below", entry(30), "first_id_after", entry(30)),
        reports(counts={"acknowledged_inferred": 40}, produced=40, verdict=BALANCED),
    ],
    "a group that never read": [
        add(20), create("$"),
        reports(
            **NOTHING_KNOWN, counts={"indeterminate": 20}, kinds={"indeterminate": 20},
            sentence="0 of 20 entries were acknowledged, 20 are indeterminate.",
            limit="XGROUP CREATE",
        ),
        # From there on it is an ordinary group.
        add(5), work(5), reports(verdict=BALANCED, counts={"acknowledged_inferred": 5}),
    ],
    "a group made again over what it held": [
        create(), add(20), deliver(14), destroy(), create("$"),
        reports(verdict=UNKNOWN, counts={"indeterminate": 20}),
    ],
    "a group made again between two audits": [
        create(), add(20), work(14, left=10), reports(open=16), destroy(), create("$"), add(3),
        reports(**NOTHING_KNOWN, kinds={"indeterminate-later": 16}, counts={"undelivered": 3}),
    ],
    "a position set past undelivered entries": [
        create(), add(10), work(10), reports(verdict=BALANCED), add(10), set_position("$"),
        reports(counts={"indeterminate": 10}),
    ],
    "a position set back after the archive, and a trim": [
        create(), add(2), work(2), reports(produced=2), add(5), work(5), set_position("0"),
        archive(), trim_all(),
        # They were acknowledged; that they lie after the position now says nothing.
        reports(of=0, windows=2, counts={"indeterminate": 5}),
    ],
    "consumers deleted with what they held": [
        create(), add(12), work(2), deliver(1, "a"), deliver(3, "b"), deliver(1, "c"), look(6, 2),
        reports(verdict=BALANCED), deliver(2, "b"), drop("a", "b"),
        look(8, 6, at_ms=4_000_000_000_000), work(2),
        # Four were pending with them when the last window looked, and two were given to them since.
        reports(
            kinds={"indeterminate-later": 6, "pending-dropped": 6},
            settled=dict.fromkeys((2, 3, 4, 5, 7, 8), "indeterminate")
            # What was delivered after it is not concerned.
            | dict.fromkeys((9, 10), "acknowledged_inferred"),
        ),
        reports(kinds={}),
    ],
    "consumers deleted within a window": [
        create(), add(10), work(4), look(3), deliver(6, "b"), drop("b"),
        reports(
            verdict=FINDINGS, counts={"acknowledged_inferred": 4, "indeterminate": 6},
            kinds={"indeterminate": 6, "pending-dropped": 6},
        ),
    ],
    "a group that began within the window": [
        add(10), create(5), began(5, repeats=0), work(1),
        reports(
            produced=4, archived=4, counts={"acknowledged_inferred": 1, "undelivered": 3},
            left_out=6,
        ),
    ],
    "a group set back to before its beginning, and delivered": [
        add(10), create(5), began(5, added=6), reports(produced=4), set_position(2),
        reports(produced=0), deliver(2), delete(3),
        reports(
            still={3: "payload_gone", 4: "in_flight", **dict.fromkeys(range(6, 10), "undelivered")},
            verdict=FINDINGS,
        ),
    ],
    "gone before the group began": [
        add(10), trim(4), create(5), began(5, added=6), deliver(4),
        reports(produced=4, left_out=2, gone_before=4, kinds={}),
    ],
    "archived, and lost as the operator observed": [
        create(), add(10), work(4), archive(), trim(7),
        record("data-loss", "at_least", 3, "at_most", 3, "after", entry(3), "before", entry(7)),
        counters(10), work(3),
        reports(
            windows=2, counts={"acknowledged_inferred": 7, "lost": 3},
            exceptions_why=dict.fromkeys((4, 5, 6), "loss-seen"),
        ),
    ],
    "acts that workers report": [
        # Who may work for a group can write into the workers' ledger whatever it likes.
        create(), add(4), deliver(4), acknowledge(0, 1, 2), counters(4),
        worker_record("dead-lettered", "reason", "Poison", "actor", "a", *moved(0, times="3 4 70")),
        worker_record("payload-gone", "reason", "PayloadGone", "actor", "a", *moved(1, "9-8")),
        worker_record("requeued", "consumer", "a", *moved(2, "8-8", "1 1 40")),
        worker_record(
            "data-loss", "at_least", 100, "at_most", 100, "after", "0-0", "before", "9-9",
        ),
        worker_record("trimmed", "count", 4, "below", entry(3), "first_id_after", ""),
        worker_record("group-created", "position", entry(3), "why", "first", "added", 4),
        reports(
            counts={
                "acknowledged_inferred": 1, "dead_lettered": 1, "payload_gone": 1, "in_flight": 1,
            },
        ),
    ],
    "trimmed where the operator watched": [
        *HALF_ARCHIVED,
        counters(8, "last_delivered", entry(7), "watched_from", "0-0"), trim_all(),
        reports(windows=2, counts={"acknowledged_inferred": 8}, limit="after 0-0 and up to"),
    ],
    "trimmed where the operator watched in part": [
        *HALF_ARCHIVED,
        counters(8, "last_delivered", entry(7), "watched_from", entry(5)), trim_all(),
        reports(
            windows=2, counts={"acknowledged_inferred": 6, "indeterminate": 2}, verdict=UNKNOWN,
        ),
    ],
    "trimmed where no operator watched": [
        *HALF_ARCHIVED, counters(8, "last_delivered", entry(7)), trim_all(),
        reports(
            windows=2, counts={"acknowledged_inferred": 4, "indeterminate": 4},
            limit="last audit: no entries",
        ),
    ],
    "a position set back over acknowledged entries": [
        create(), add(10), work(10), reports(verdict=BALANCED), set_position(5), add(1),
        deliver(4),
        reports(kinds={"unbalanced-pending": 4}, verdict=FINDINGS, open=5),
        acknowledge(6, 7, 8, 9), work(1), reports(verdict=BALANCED),
    ],
    "a stream deleted while it is audited": [
        half_read,
        during(
            rounds, "take_snapshot", delete_stream,
            # What was pending is lost: nothing counts as acknowledged.
            reports(produced=30, archived=30, verdict=FAILING, counts={"indeterminate": 30}),
        ),
        reports(verdict=FAILING, worst="epoch-break", has="stream-missing"),
    ],
    "a stream deleted before it is archived": [
        half_read,
        during(
            rounds, "archive_entries", delete_stream,
            reports(produced=30, archived=0, verdict=FAILING, counts={"indeterminate": 30}),
        ),
    ],
    "a group deleted between two looks": [
        half_read,
        during(
            rounds, "take_snapshot", destroy(),
            reports(verdict=FAILING, counts={"indeterminate": 20, "undelivered": 10}),
        ),
    ],
    "a group created again during the look": [
        half_read, during(snapshot, "_read_pending", create_again, nothing_more_is_known),
    ],
    "a group deleted during the look": [
        half_read, during(snapshot, "_read_pending", destroy(), nothing_more_is_known),
        reports(worst="group-missing"),
    ],
    "trimmed while it is archived": [
        half_read,
        during(
            rounds, "archive_entries", trim(25),
            # Of the 25 ten were pending; by the group's count five were not delivered yet.
            reports(
                produced=30, archived=5,
                counts={"payload_gone": 10, "indeterminate": 10, "lost": 5, "undelivered": 5},
            ),
        ),
    ],
}
# What `make test` runs of them; the oracle runs there as well.
QUICK: Final = {
    "a missing group", "a missing stream", "windows join", "removed before the first audit",
}
WITH_FILES: Final[dict[str, Sequence[Step]]] = {
    "removed before the first audit": [
        *REMOVED_BEFORE,
        reports(
            counts={"acknowledged_proven": 91, "payload_gone": 4, "lost": 5}, produced=100,
            kinds={"payload-gone": 4, "lost": 5}, certainty=Certainty.PROVEN,
        ),
    ],
    "set back over what was gone before the group": [
        add(10), create(9), add(1), delete(10), trim(4), set_position("0"),
        reports(counts={"undelivered": 6, "lost": 1}, gone_before=4),
    ],
}


# fmt: on


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in STORIES],
)
def test_an_audit_reports_what_happened(audited: Audited, name: str) -> None:
    for step in STORIES[name]:
        step(audited)


@pytest.mark.full
@pytest.mark.parametrize("name", WITH_FILES)
def test_append_only_files_prove_what_happened(witnessed: Audited, name: str) -> None:
    for step in WITH_FILES[name]:
        step(witnessed)
