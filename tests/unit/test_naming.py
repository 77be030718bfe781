"""Keys derived from a stream and a group: names that only change with a migration."""

import json

import pytest

from pelops.api.group.recovery import DeadLetterSpec
from pelops.domain.naming import (
    DerivedKey,
    check_slots,
    derive_keys,
    escape_glob,
    hash_tag,
    key_slot,
    parse_derived_key,
)
from pelops.errors import DeadLetterInAnotherSlot, InvalidSpec


@pytest.mark.parametrize(
    ("stream", "prefix"),
    [
        ("orders", "{orders}:g"),
        ("orders:events", "{orders:events}:g"),
        ("{shop}:orders", "{shop}:{shop}%3Aorders:g"),
        ("{shop}", "{shop}:{shop}:g"),
        ("a{b", "{a{b}:g"),
        ("a}b", "{20658}:a}b:g"),
        ("{}x", "{19354}:{}x:g"),
        ("a{b}{c}", "{b}:a{b}{c}:g"),
        ("{{a}", "{{a}:{{a}:g"),
        ("50%:off", "{50%:off}:g"),
        ("{t}50%", "{t}:{t}50%25:g"),
    ],
)
def test_a_stream_gives_its_keys_this_prefix(stream: str, prefix: str) -> None:
    keys = derive_keys(stream, "g")
    assert keys.prefix == prefix
    assert keys.dead_letter == f"{prefix}:dlq"
    assert {key_slot(key) for key in keys.derived()} == {key_slot(stream)} == {keys.slot}


def test_a_group_is_escaped_within_its_keys() -> None:
    assert derive_keys("orders", "a:b%c").ledger == "{orders}:a%3Ab%25c:ledger"


def test_the_derived_keys_have_the_names_that_docs_promise() -> None:
    keys = derive_keys("orders", "g")
    assert list(keys.derived()) == [
        f"{{orders}}:g:{what}"
        for what in (
            *("dlq", "ledger", "state", "started", "worker-state", "worker-ledger"),
            *("retry", "handover", "audit", "discarded"),
        )
    ]


def test_the_slot_is_that_of_the_cluster_specification() -> None:
    assert key_slot("123456789") == 0x31C3 % 16384


def test_a_custom_dead_letter_stream_in_the_same_slot_is_accepted() -> None:
    assert derive_keys("orders", "g", dead_letter="{orders}:given-up").dead_letter == (
        "{orders}:given-up"
    )


def test_a_dead_letter_stream_in_another_slot_is_refused_where_slots_count() -> None:
    check_slots(derive_keys("orders", "g", dead_letter="{orders}:given-up"))
    elsewhere = derive_keys("orders", "g", dead_letter="given-up")
    with pytest.raises(
        DeadLetterInAnotherSlot, match=r"not in the hash slot.*\{orders\}:dead-letters"
    ):
        check_slots(elsewhere)


@pytest.mark.parametrize("what", sorted(set(DerivedKey) - {DerivedKey.DEAD_LETTER}))
def test_no_key_of_a_group_can_hold_its_dead_letters(what: DerivedKey) -> None:
    key = f"{{orders}}:g:{what}"
    with pytest.raises(InvalidSpec, match="key that Pelops uses"):
        derive_keys("orders", "g", dead_letter=key)
    rule = json.dumps(DeadLetterSpec.model_json_schema())
    assert f"|{what}" in rule or f"({what}|" in rule, "admission refuses it too"


def test_a_dead_letter_stream_with_the_default_name_is_accepted() -> None:
    default = derive_keys("orders", "g").dead_letter
    assert derive_keys("orders", "g", dead_letter=default) == derive_keys("orders", "g")


@pytest.mark.parametrize("stream", ["orders", "{shop}:orders", "a}b", "{}x", "50%:off", "{{a}"])
@pytest.mark.parametrize("own", [None, "given-up", "{shop}:given-up", "a}b", "{}x"])
def test_the_record_of_a_dead_letter_stream_lies_in_its_slot(stream: str, own: str | None) -> None:
    if own == stream:
        own = None
    keys = derive_keys(stream, "g", dead_letter=own)
    assert key_slot(keys.dead_letter_owner) == key_slot(keys.dead_letter)
    assert keys.dead_letter_owner not in {keys.stream, *keys.derived()}
    assert parse_derived_key(keys.dead_letter_owner) is None


@pytest.mark.parametrize(
    ("dead_letter", "said"),
    [
        ("orders", "the stream itself"),
        ("{orders}:g:ledger", "key that Pelops uses"),
        ("{orders}:other:state", "key that Pelops uses"),
        ("{orders}:other:dlq", "key that Pelops uses"),
    ],
)
def test_a_dead_letter_stream_that_cannot_be_is_refused(dead_letter: str, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        derive_keys("orders", "g", dead_letter=dead_letter)


@pytest.mark.parametrize(("stream", "group"), [("", "g"), ("s", ""), ("\ud800", "g")])
def test_a_name_that_is_no_name_is_refused(stream: str, group: str) -> None:
    with pytest.raises(InvalidSpec):
        derive_keys(stream, group)


@pytest.mark.parametrize(
    "key",
    ["orders", "{orders}", "{orders}:g", "{orders}:g:dlq:x", "{orders}:g:other", "orders:g:dlq"],
)
def test_a_foreign_key_is_not_parsed_as_a_derived_key(key: str) -> None:
    assert parse_derived_key(key) is None


def test_a_key_that_no_stream_derives_is_not_a_derived_key() -> None:
    # {orders} has its own tag, so its keys repeat its name: this is the key of "orders" alone.
    assert parse_derived_key("{shop}:shop:g:dlq") is None
    assert parse_derived_key("{orders}:g:dlq") == ("orders", "g", DerivedKey.DEAD_LETTER)


def test_a_lock_template_finds_the_tag_of_any_stream() -> None:
    assert (hash_tag("{t1}:orders"), hash_tag("orders"), hash_tag("a}b")) == (
        "t1",
        "orders",
        "20658",
    )


def test_a_pattern_matches_its_name_and_holds_no_white_space() -> None:
    assert escape_glob("a*b?[c]\\ d\0") == "a\\*b\\?\\[c\\]\\\\?d?"
