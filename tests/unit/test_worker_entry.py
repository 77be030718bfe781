"""What a handler can read from an entry."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.outcomes import Undecodable
from pelops.worker.server.adapter import DeliverySource


def _entry(
    *pairs: bytes, idle_ms: int = 0, deliveries: int = 0, now_s: float = 100.0, **named: Any
) -> Entry:
    terms = Terms(lambda: now_s, 30.0)
    arrival = Arrival(b"orders", named.get("source", DeliverySource.NEW), 90.0, terms)
    return Entry(arrival, [b"1760000000000-3", list(pairs), idle_ms, deliveries])


def test_an_entry_shows_its_fields_as_bytes_and_as_text() -> None:
    entry = _entry(b"name", "Zoë".encode(), b"n", b"1", b"n", b"2")
    assert entry.fields == {b"name": "Zoë".encode(), b"n": b"2"}
    assert entry["n"] == entry[b"n"] == b"2"
    assert entry.text["name"] == "Zoë"
    assert entry.pairs[1:] == [(b"n", b"1"), (b"n", b"2")]


def test_an_entry_reports_where_it_comes_from_and_how_long_it_waited() -> None:
    new, claimed = _entry(b"a", b"1"), _entry(b"a", b"1", idle_ms=45_000, deliveries=1)
    assert (new.id, new.stream) == ("1760000000000-3", "orders")
    assert (new.is_reclaimed, new.idle_s, new.attempt) == (False, 0.0, 1)
    assert (claimed.is_reclaimed, claimed.idle_s, claimed.deliveries) == (True, 45.0, 1)
    assert _entry(b"a", b"1", idle_ms=-1, deliveries=1).idle_s == 0.0
    assert _entry(b"a", b"1", deliveries=-(2**63)).deliveries == 2**53


def test_what_recovery_added_is_no_field_of_the_user() -> None:
    entry = _entry(b"a", b"1", b"_original_id", b"17-0", b"_retry_count", b"2")
    assert entry.fields == {b"a": b"1"}
    assert (entry.original_id, entry.retry_count, entry.attempt) == ("17-0", 2, 3)


def test_what_a_redrive_added_is_no_field_of_the_user() -> None:
    marks = (b"_redrive", b"after-fix/11d0-a", b"_returned", b"2")
    copy = (b"_original_id", b"17-0", b"_retry_count", b"0")
    entry = _entry(b"a", b"1", *marks, *copy)
    assert entry.pairs == [(b"a", b"1")]
    assert (entry.original_id, entry.attempt) == ("17-0", 1)
    # Without a copy's own pairs behind them, and elsewhere, they are the producer's.
    assert len(_entry(b"a", b"1", *marks).pairs) == 3
    assert len(_entry(*marks, b"a", b"1", *copy).pairs) == 3
    assert len(_entry(*marks[:3], b"many", *copy).pairs) == 2


@pytest.mark.parametrize(
    "pairs",
    [
        (b"_retry_count", b"2", b"_original_id", b"17-0"),
        (b"_original_id", b"17-0", b"_retry_count", b"banana"),
        (b"_original_id", b"17-0", b"_retry_count", b"1234567"),
        (b"_original_id", b"x", b"_retry_count", b"1"),
        (b"_original_id", b"1760000000000-3", b"_retry_count", b"1"),
        (b"_original_id", b"1760000000000-10", b"_retry_count", b"1"),
        (b"_original_id", b"9760000000000-0", b"_retry_count", b"1"),
        (b"_original_id", b"000000000000000000000-1", b"_retry_count", b"1"),
        (b"_original_id", b"1-1-1", b"_retry_count", b"1"),
        (b"_original_id", b"17-0", b"_retry_count", b"1", b"a", b"1"),
    ],
)
def test_fields_with_the_names_of_recovery_elsewhere_are_the_users(pairs: Any) -> None:
    entry = _entry(*pairs)
    assert len(entry.fields) == len(pairs) // 2
    assert (entry.retry_count, entry.original_id) == (0, entry.id)


def test_a_count_that_only_a_producer_can_write_is_bounded() -> None:
    entry = _entry(b"a", b"1", b"_original_id", b"17-0", b"_retry_count", b"999999")
    assert (entry.retry_count, entry.attempt, entry.fields) == (1001, 1002, {b"a": b"1"})


def test_an_entry_knows_how_long_it_is_safe() -> None:
    assert _entry(b"a", b"1", now_s=100).remaining == 20
    assert _entry(b"a", b"1", now_s=130).remaining == -10


def test_json_is_read_from_a_field_or_from_the_only_one() -> None:
    assert _entry(b"order", b'{"n": 1}').json() == {"n": 1}
    assert _entry(b"order", b'{"n": 1}', b"kind", b"x").json("order") == {"n": 1}


class Order(pydantic.BaseModel):
    n: int


def test_a_model_or_a_callable_makes_something_of_it() -> None:
    assert _entry(b"order", b'{"n": 1}').decode(Order, "order") == Order(n=1)
    assert _entry(b"n", b"1").decode(Order) == Order(n=1)
    assert _entry(b"n", b"12").decode(int, "n") == 12
    assert _entry(b"n", b"12").decode(dict) == {"n": "12"}


@pytest.mark.parametrize(
    "read",
    [
        lambda entry: entry.json(),
        lambda entry: entry.json("secret"),
        lambda entry: entry.json("absent"),
        lambda entry: entry["absent"],
        lambda entry: entry.decode(Order, "secret"),
        lambda entry: entry.decode(Order),
        lambda entry: entry.decode(int, "secret"),
    ],
)
def test_the_error_of_an_undecodable_field_does_not_contain_its_value(read: Any) -> None:
    with pytest.raises(Undecodable) as raised:
        read(_entry(b"secret", b"4111-1111", b"other", b"x"))
    assert "4111" not in str(raised.value)


def test_text_that_is_no_utf_8_is_undecodable() -> None:
    with pytest.raises(Undecodable):
        _ = _entry(b"a", b"\xff").text


def test_an_entry_never_shows_its_payload() -> None:
    assert "4111" not in repr(_entry(b"card", b"4111"))
