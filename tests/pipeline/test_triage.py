"""Dead letters in clusters, and plans of what to do with them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.redrive import PlanHeader, PlannedLetter, PlannedLetterAction, parse_plan
from pelops.pipeline.triage.clusters import MOST_RETRIES
from pelops.pipeline.triage.redrive_plan import (
    BYTES_SHOWN,
    EXAMPLES,
    FIELDS_SHOWN,
    Triage,
    plan_redrive,
    start_header,
    triage_dead_letters,
)
from tests.pipeline.dead_letters import FIRST_MS, dead_letter, foreign_letter

ORDER = [("order", b"4711"), ("body", b'{"id": 1, "lines": [{"sku": "a"}]}')]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def _mixed() -> Triage:
    outage = [
        dead_letter(n, ORDER, error=f"ConnectTimeout: 10.0.0.{n}:5432 after {n} s")
        for n in range(6)
    ]
    odd = [
        dead_letter(10 + n, [("order", b"x")], reason="Undecodable", error=f"order {n!r}")
        for n in range(3)
    ]
    gone = [dead_letter(20, [], reason="PayloadGone", error="the body is gone")]
    return triage_dead_letters([*outage, *odd, *gone])


def test_letters_that_differ_in_numbers_only_are_one_cluster() -> None:
    found = _mixed()
    assert [cluster.letters for cluster in found.clusters] == [6, 3, 1]
    assert sum(cluster.letters for cluster in found.clusters) == found.letters == 10
    first = found.clusters[0].signature
    assert (first.exception, first.error) == ("ConnectTimeout", "ConnectTimeout: # after # s")
    assert first.shape == 'body={"id":number,"lines":[{"sku":text}]} order=number'


def test_a_cluster_has_its_times_retries_and_number_of_consumers() -> None:
    letters = [dead_letter(n, ORDER, retry_count=str(n * 4)) for n in range(4)]
    (cluster,) = triage_dead_letters(letters).clusters
    assert (cluster.first_seen_ms, cluster.last_seen_ms) == (FIRST_MS, FIRST_MS + 3000)
    assert cluster.consumers == 2
    assert len(cluster.retries) == MOST_RETRIES + 1
    assert {n: count for n, count in enumerate(cluster.retries) if count} == {
        0: 1,
        4: 1,
        8: 1,
        10: 1,
    }


def test_the_oldest_letters_are_the_examples_and_show_a_bounded_part() -> None:
    wide = [(f"name{n}", b"\xff" * 5000) for n in range(100)]
    letters = [dead_letter(n, wide) for n in range(5)]
    (cluster,) = triage_dead_letters(letters).clusters
    assert [one.entry_id.ms for one in cluster.examples] == [
        FIRST_MS + 1000 * n for n in range(EXAMPLES)
    ]
    example = cluster.examples[0]
    assert (example.field_count, len(example.fields)) == (100, FIELDS_SHOWN)
    name, value = example.fields[0]
    assert (name.head, value.head, value.size) == (b"name0", b"\xff" * BYTES_SHOWN, 5000)


def test_user_fields_with_reserved_names_belong_to_the_user() -> None:
    payload = [("_reason", b"mine"), ("_original_id", b"7-7")]
    (cluster,) = triage_dead_letters([dead_letter(1, payload)]).clusters
    assert cluster.signature.reason == "HandlerFailed"
    assert [name.head for name, _ in cluster.examples[0].fields] == [b"_reason", b"_original_id"]


def test_a_letter_of_another_hand_is_its_own_root_and_is_inspected() -> None:
    (cluster,) = triage_dead_letters([foreign_letter(1, [("a", b"1")])]).clusters
    assert cluster.signature.reason == "Unknown"
    assert cluster.examples[0].root_id == cluster.examples[0].entry_id
    assert cluster.advice.action == PlannedLetterAction.INSPECT


def test_another_field_prefix_is_understood() -> None:
    letter = dead_letter(1, ORDER, prefix="x-", reason="StreamExhausted")
    (cluster,) = triage_dead_letters([letter]).clusters
    assert cluster.signature.reason == "StreamExhausted"


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ("retry_count", "banana"),
        ("retry_count", "9" * 30),
        ("dead_lettered_ms", ""),
        ("original_id", "no-id"),
        ("original_id", "1-" + "9" * 21),
        ("original_id", "99999999999999999999-1"),
        ("error", b"\xff\xfe\x00"),
        ("reason", b"\xff"),
    ],
)
def test_marks_that_hold_nonsense_stop_nothing(mark: str, value: str | bytes) -> None:
    marks: dict[str, Any] = {mark: value}
    letters = [dead_letter(1, ORDER, **marks), dead_letter(2, ORDER)]
    found = triage_dead_letters(letters)
    assert sum(cluster.letters for cluster in found.clusters) == 2
    assert len(_plan(found)[1]) == 2


def test_what_comes_back_after_a_redrive_is_inspected() -> None:
    again = [dead_letter(n, ORDER, error="TimeoutError: late", original_id="5-0") for n in range(2)]
    (cluster,) = triage_dead_letters(again).clusters
    assert (cluster.letters, cluster.returned) == (2, 1)
    assert cluster.advice.action == PlannedLetterAction.INSPECT


def test_a_redriven_letter_counts_as_returned_and_keeps_its_cluster() -> None:
    marks = [("_redrive", b"after-fix/6f1a"), ("_returned", b"2")]
    letters = [dead_letter(1, ORDER), dead_letter(2, [*ORDER, *marks])]
    (cluster,) = triage_dead_letters(letters).clusters
    assert (cluster.letters, cluster.returned) == (2, 1)
    assert [[name.head for name, _ in one.fields] for one in cluster.examples] == (
        [[b"order", b"body"]] * 2
    )
    assert cluster.advice.action == PlannedLetterAction.INSPECT


def test_marks_of_a_redrive_within_a_payload_are_the_users() -> None:
    payload = [("_redrive", b"mine"), ("_returned", b"2"), ("order", b"1")]
    (cluster,) = triage_dead_letters([dead_letter(1, payload)]).clusters
    assert cluster.returned == 0
    assert len(cluster.examples[0].fields) == 3


def test_a_group_without_dead_letters_has_no_clusters_and_an_empty_plan() -> None:
    found = triage_dead_letters([])
    header, planned = _plan(found)
    assert (found.letters, found.clusters, planned) == (0, (), [])
    assert header.actions == {"redrive": 0, "inspect": 0, "discard": 0}


def test_the_plan_names_every_letter_once_with_the_action_of_its_cluster() -> None:
    found = _mixed()
    header, letters = _plan(found)
    assert header.actions == {"redrive": 6, "inspect": 3, "discard": 1}
    assert [one.entry_id for one in letters] == sorted({one.entry_id for one in letters})
    assert len(letters) == header.letters == 10
    assert letters[0].entry_id == EntryId(FIRST_MS) and letters[0].action == "redrive"
    assert {one.cluster: one.action for one in header.clusters} == {
        one.cluster: one.action for one in letters
    }


def test_a_plan_that_is_made_again_is_the_same() -> None:
    assert _lines(_mixed()) == _lines(_mixed())


def _plan(found: Triage) -> tuple[PlanHeader, list[PlannedLetter]]:
    header, letters = parse_plan(_lines(found))
    return header, list(letters)


def _lines(found: Triage) -> list[str]:
    header = start_header("orders", "mail", "dlq", at=AT)
    return list(plan_redrive(found, header))
