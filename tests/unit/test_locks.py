"""Locks of the workers' own: their keys, their slots, and whose an expired one was."""

from __future__ import annotations

import random

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_key, lock_slot_problem, match_lock
from pelops.domain.naming import derive_keys, key_slot
from pelops.errors import InvalidSpec

DEFAULT = "lock:{$tag}:$id"
ID = EntryId(1526919030474, 3)
ODD_STREAMS = [
    *("orders", "orders:events", "{t1}:orders", "a}b", "{}x", "a{b}{c}", "{{a}", "a{b", "}", "{"),
    *("$id", "$stream", "$tag:$$", "a.*b", "(a|b)[", "\\1", "é{ü}", " {a b} ", "\n", "1-1", "0"),
]
TEMPLATES = [
    *(DEFAULT, "$id", "$id$id", "$id:$id", "5$id", "$id5", "$$$id$$", "$stream$id", "$id$stream"),
    *("lock:$stream:$id", "{$tag}$id-$id", "$tag$stream$id$tag", "a.b*$id", "$ids", "{$id}$tag"),
]


@pytest.mark.parametrize(
    ("template", "stream", "key"),
    [
        (DEFAULT, "orders", "lock:{orders}:1526919030474-3"),
        (DEFAULT, "{t1}:orders", "lock:{t1}:1526919030474-3"),
        (DEFAULT, "a}b", "lock:{20658}:1526919030474-3"),
        ("lock:$stream:$id", "{t1}:orders", "lock:{t1}:orders:1526919030474-3"),
        ("$$$id$$id", "orders", "$1526919030474-3$id"),
        ("$streams/$ids", "orders", "orderss/1526919030474-3s"),
        ("$stream:$id", "$id$tag$$", "$id$tag$$:1526919030474-3"),
        ("$id:$id", "orders", "1526919030474-3:1526919030474-3"),
    ],
)
def test_a_template_names_the_lock_of_an_entry(template: str, stream: str, key: str) -> None:
    assert lock_key(template, derive_keys(stream, "g"), ID) == key


@pytest.mark.parametrize("template", ["lock", "lock:$stream", "$$id", "$id$", "$id$x", "$Id$id"])
def test_a_template_that_breaks_the_rules_is_refused_rather_than_found_unlocked(
    template: str,
) -> None:
    keys = derive_keys("orders", "g")
    for ask in (lambda: lock_key(template, keys, ID), lambda: match_lock(template, keys)):
        with pytest.raises(InvalidSpec, match="the lock template"):
            ask()


@pytest.mark.parametrize("stream", ODD_STREAMS)
def test_the_default_template_falls_into_the_slot_of_any_stream(stream: str) -> None:
    keys = derive_keys(stream, "g")
    assert lock_slot_problem(DEFAULT, keys) is None
    assert key_slot(lock_key(DEFAULT, keys, ID)) == keys.slot


@pytest.mark.parametrize(
    ("template", "stream", "said"),
    [
        ("lock:$stream:$id", "orders", "depends on the entry"),
        ("lock:{$id}", "orders", "depends on the entry"),
        ("lock:{$tag:$id}", "orders", "depends on the entry"),
        ("{$id}{$tag}", "orders", "depends on the entry"),
        ("{}{$tag}$id", "orders", "depends on the entry"),
        ("lock:{locks}:$id", "orders", "not in the hash slot of the stream orders"),
        ("lock:{$stream}:$id", "a}b", "not in the hash slot"),
        ("lock:{$stream}:$id", "{t1}:orders", "not in the hash slot"),
    ],
)
def test_a_template_that_leaves_the_slot_is_a_problem(
    template: str, stream: str, said: str
) -> None:
    problem = lock_slot_problem(template, derive_keys(stream, "g"))
    assert problem is not None
    assert said in problem
    assert "lock:{$tag}:$id" in problem


@pytest.mark.parametrize(
    ("template", "stream"),
    [
        ("lock:{$stream}:$id", "orders"),
        ("lock:$stream:$id", "{t1}:orders"),
        ("{orders}$id", "orders"),
        ("{$tag}{$id}", "orders"),
    ],
)
def test_a_template_may_find_the_slot_in_its_own_way(template: str, stream: str) -> None:
    assert lock_slot_problem(template, derive_keys(stream, "g")) is None


@pytest.mark.full
def test_a_lock_template_is_refused_exactly_when_locks_leave_the_slot() -> None:
    chance = random.Random(20261121)
    for _ in range(2000):
        stream = "".join(chance.choices("{}ab", k=chance.randint(1, 5)))
        parts = chance.choices(["{", "}", "$tag", "$stream", "$id", "a"], k=6)
        template, keys = "".join([*parts, "$id"]), derive_keys(stream, "g")
        ids = [EntryId(chance.randrange(10**13), chance.randrange(9)) for _ in range(12)]
        slots = {key_slot(lock_key(template, keys, entry_id)) for entry_id in ids}
        assert (lock_slot_problem(template, keys) is None) == (slots == {keys.slot}), template


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("stream", ODD_STREAMS)
def test_the_lock_of_every_entry_is_recognised(template: str, stream: str) -> None:
    keys = derive_keys(stream, "g")
    matches = match_lock(template, keys)
    for entry_id in (ID, EntryId.MIN, EntryId.MAX, EntryId(11, 11), EntryId(5, 55)):
        assert matches(lock_key(template, keys, entry_id)) == entry_id


@pytest.mark.parametrize(
    "key",
    [
        *("lock:{orders}:", "lock:{orders}:1", "lock:{orders}:1-", "lock:{orders}:1-1-1"),
        *("lock:{orders}:01-1", "lock:{orders}:1-1\n", "Lock:{orders}:1-1", "xlock:{orders}:1-1"),
        *("lock:{other}:1-1", "lock:{orders}:18446744073709551616-0", "lock:{orders}:\u0661-1", ""),
        "lock:{orders}:1-1\udcff",
    ],
)
def test_a_foreign_key_is_not_a_lock(key: str) -> None:
    assert match_lock(DEFAULT, derive_keys("orders", "g"))(key) is None


def test_two_ids_in_one_key_must_be_the_same() -> None:
    matches = match_lock("$id/$id", derive_keys("orders", "g"))
    assert matches("1-1/1-1") == EntryId(1, 1)
    assert matches("1-1/1-2") is None
