"""Dead letters that differ in what varies look the same; whatever they hold, texts stay short."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.records.redrive import PlannedLetterAction
from pelops.policy.redrive.payload_shape import SHAPE_LIMIT, describe_shape, value_kind
from pelops.policy.redrive.triage import (
    TYPE_LIMIT,
    WORDS_LIMIT,
    Advice,
    ClusterFacts,
    Signature,
    advise_redrive,
    build_signature,
    normalize_words,
    pick_error_line,
    read_exception_type,
)

# Where the rules have their corners: digits, hexadecimal, quotes, dashes.
odd_text = st.text(alphabet="ab9f0xZ#?'\"`\\-.: T\n\t…é") | st.text()
numbers = st.integers(min_value=0, max_value=10**12).map(str)
uuids = st.uuids().map(str)
words = st.from_regex(r"[a-zA-Z ,]{1,12}", fullmatch=True)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner)
)
fields = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=40)), max_size=60)


@given(text=odd_text)
def test_normalising_again_changes_nothing(text: str) -> None:
    once = normalize_words(text)
    assert normalize_words(once) == once
    assert len(once) <= WORDS_LIMIT
    assert not re.search(r"[0-9]", once)


@given(text=odd_text.map(lambda part: part * 40))
def test_long_texts_are_cut_and_stay_normalised(text: str) -> None:
    once = normalize_words(text)
    assert len(once) <= WORDS_LIMIT and normalize_words(once) == once


@given(one=numbers, other=numbers, head=words, tail=words)
def test_texts_that_differ_in_a_number_are_equal(
    one: str, other: str, head: str, tail: str
) -> None:
    assert normalize_words(f"{head} {one} {tail}") == normalize_words(f"{head} {other} {tail}")


@given(one=uuids, other=uuids)
def test_texts_that_differ_in_a_uuid_are_equal(one: str, other: str) -> None:
    assert normalize_words(f"order {one} failed") == normalize_words(f"order {other} failed")


@given(one=words, other=words)
def test_texts_that_differ_in_what_is_quoted_are_equal(one: str, other: str) -> None:
    for mark in "'\"`":
        reported = [normalize_words(f"no key {mark}{word}{mark} there") for word in (one, other)]
        assert reported == ["no key ? there"] * 2


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", ""),
        ("took 1,234.5 ms", "took # ms"),
        ("at 2026-01-31T12:00:00.5Z", "at #Z"),
        ("10.0.3.7:5432 refused", "# refused"),
        ("object at 0x7f3a00ff", "object at #"),
        ("commit 3fa9c1d7 is bad", "commit # is bad"),
        ("a decade of facade", "a decade of facade"),
        ("pod web-6d5f7c9b8-x2x9z is gone", "pod web-# is gone"),
        ("don't stop", "don't stop"),
        ("it's 'x' and 'y'", "it's ? and ?"),
        ("b'\\x00' is no text", "? is no text"),
        ("worker7 died", "worker# died"),
        ("line\n\n  two", "line two"),
    ],
)
def test_what_varies_is_replaced_and_words_stay(text: str, normal: str) -> None:
    assert normalize_words(text) == normal


@pytest.mark.parametrize(
    ("error", "line", "exception"),
    [
        ("ValueError: no", "ValueError: no", "ValueError"),
        ("java.io.IOException: gone\n\tat a.B.c(B.java:1)", "java.io.IOException: gone",
         "java.io.IOException"),
        ('Traceback (most recent call last):\n  File "a.py", line 1\n    x\nKeyError: 1\n',
         "KeyError: 1", "KeyError"),
        ('Exception in thread "main" a.Failed: x', "a.Failed: x", "a.Failed"),
        ("TypeError: x is\n    at f (a.js:1)", "TypeError: x is", "TypeError"),
        ("Proxy$12: no", "Proxy$12: no", ""),
        ("timeout: no answer", "timeout: no answer", ""),
        ("ERROR: no answer", "ERROR: no answer", ""),
        ("TimeoutError", "TimeoutError", "TimeoutError"),
        ("", "", ""),
        ("\n \n", "", ""),
    ],
)  # fmt: skip
def test_the_type_of_an_error_is_found(error: str, line: str, exception: str) -> None:
    assert pick_error_line(error) == line
    assert read_exception_type(pick_error_line(error)) == exception


@given(reason=odd_text, error=odd_text, shape=st.text(max_size=50))
def test_a_signature_is_bounded_and_its_cluster_is_a_function_of_it(
    reason: str, error: str, shape: str
) -> None:
    one, again = (build_signature(reason=reason, error=error, shape=shape) for _ in range(2))
    assert one == again and one.cluster == again.cluster
    assert re.fullmatch("[0-9a-f]{16}", one.cluster)
    assert len(one.reason) <= WORDS_LIMIT and len(one.exception) <= TYPE_LIMIT


def test_signatures_whose_parts_are_split_elsewhere_are_of_two_clusters() -> None:
    one = Signature(reason="a", exception="b", error="", shape="")
    other = Signature(reason="ab", exception="", error="", shape="")
    assert one.cluster != other.cluster


@given(pairs=fields)
def test_a_shape_is_bounded_and_does_not_depend_on_order(
    pairs: list[tuple[bytes, bytes]],
) -> None:
    shape = describe_shape(pairs)
    assert len(shape) <= SHAPE_LIMIT
    assert describe_shape(pairs[::-1]) == shape


@given(value=values)
def test_the_shape_of_a_json_value_ignores_its_values(value: Any) -> None:
    shapes = {value_kind(json.dumps([one]).encode()) for one in (value, _other(value))}
    assert len(shapes) == 1


def _other(value: Any) -> Any:
    """Another value of the same shape."""
    if isinstance(value, dict):
        return {name: _other(inner) for name, inner in reversed(value.items())}
    if isinstance(value, list):
        return [_other(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value if value is None else not value
    return value + 1 if isinstance(value, int) else f"{value}x"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"", "empty"),
        (b"-1.5e3", "number"),
        (b"TRUE", "true/false"),
        (b"12,50", "text"),
        ("Zoë".encode(), "text"),
        (b"\xff", "binary"),
        (b"a\x00", "binary"),
        (b"{broken", "text"),
        (b"[NaN]", "text"),
        (b'{"a": [1, "x", null]}', '{"a":[null|number|text]}'),
        (b"[" * 60_000, "text"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "text"),
        (b"x" * 100_000, "large"),
        (b'{"a1": 1, "a2": 2}', '{"a#":number}'),
    ],
)
def test_kinds_of_values(value: bytes, kind: str) -> None:
    assert value_kind(value) == kind


def _advice(reason: str, error: str = "", returned: int = 0) -> Advice:
    signature = build_signature(reason=reason, error=error, shape="")
    return advise_redrive(ClusterFacts(signature=signature, letters=9, returned=returned))


@pytest.mark.parametrize(
    ("reason", "error", "returned", "action"),
    [
        ("PayloadGone", "gone", 0, PlannedLetterAction.DISCARD),
        ("StreamExhausted", "", 0, PlannedLetterAction.REDRIVE),
        ("HandlerFailed", "ConnectTimeout: late", 0, PlannedLetterAction.REDRIVE),
        ("HandlerFailed", "OSError: connection refused", 0, PlannedLetterAction.REDRIVE),
        ("HandlerFailed", "ConnectTimeout: late", 1, PlannedLetterAction.INSPECT),
        ("HandlerFailed", "KeyError: 'x'", 0, PlannedLetterAction.INSPECT),
        ("Undecodable", "connection: is no number", 0, PlannedLetterAction.INSPECT),
        ("MaxRetriesExceeded", "the connection of pod web ended", 0, PlannedLetterAction.INSPECT),
        ("Unknown", "", 0, PlannedLetterAction.INSPECT),
    ],
)
def test_what_is_advised(
    reason: str, error: str, returned: int, action: PlannedLetterAction
) -> None:
    assert _advice(reason, error, returned).action == action


@given(reason=odd_text, error=odd_text)
def test_nothing_is_discarded_but_what_is_gone(reason: str, error: str) -> None:
    advice = _advice(reason, error)
    assert advice.reason.endswith(".")
    assert (advice.action == PlannedLetterAction.DISCARD) == (
        normalize_words(reason) == "PayloadGone"
    )
