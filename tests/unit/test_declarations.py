"""What a script's header may say, and what Lua and Python make of it."""

from __future__ import annotations

from hashlib import sha1
from typing import Any, Literal, NamedTuple

import pytest

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.recovery import EntryVerdict
from pelops.errors import InvalidReply, NewerFormat
from pelops.redis_core.commands import Need
from pelops.redis_streams.recovery.scan_calls import refused
from pelops.scripts.answers import Answers, Refusal
from pelops.scripts.calls import Script
from pelops.scripts.declaration import BadDeclaration, Declaration, parse_script
from pelops.scripts.parts import Count, Id, IdIfAny, Moment, Name, Raw

KEYS = derive_keys("orders", "g")
TEXT = """-- Count what is left.
--
-- KEYS     stream, state, locks... (one for each item)
-- ARGV     group, most: number ('': all (of them)), is_deep: flag, items{id, idle_ms: number}...
-- READS    type stream state; hget state; xrange! stream; exists locks for locks; [info]; time
-- WRITES   hset state;
--          [xnack stream for release]
-- USER     operator for recovery
-- Costs  nothing.
-- Repeats safely.

local refusal = find_refusal()
return refusal
"""


class Length(NamedTuple):
    """A stream."""

    length: Count
    first: IdIfAny


class Held(NamedTuple):
    """An entry that stayed."""

    id: Id
    verdict: EntryVerdict


class Done(NamedTuple):
    """An answer with parts of all kinds."""

    verdict: Literal["done", "half-done"]
    total: Count
    main: Length | None
    stays: list[Held] | None
    rest: tuple[Raw, ...]


class Taken(NamedTuple):
    """A row."""

    trigger: Name
    entries: Count


class Page(NamedTuple):
    """An answer without a verdict."""

    now: Moment
    taken: tuple[Taken, ...]


DECLARED = parse_script("count_left", TEXT)


def a_script() -> Script[Done | Page]:
    return Script(declared=DECLARED, answers=Answers(Done | Page))


def refusing() -> Script[Done | Refusal]:
    return Script(declared=DECLARED, answers=Answers(Done | Refusal))


def changed(old: str, new: str) -> Declaration:
    assert old in TEXT
    return parse_script("count_left", TEXT.replace(old, new))


def call(**changes: object) -> tuple[object, ...]:
    args = {"group": "g", "most": None, "is_deep": True, "items": ()} | changes
    return a_script().call(KEYS, {"locks": ("l1", "l2")}, **args).by_sha().parts


def test_keys_and_arguments_are_sent_in_the_order_of_the_header() -> None:
    items = [{"idle_ms": 5, "id": "1-0"}, {"id": "2-0", "idle_ms": 7}]
    assert call(items=items) == (
        *("EVALSHA", a_script().sha, 4, KEYS.stream, KEYS.state, "l1", "l2"),
        *("g", "", 1, "1-0", 5, "2-0", 7),
    )


def test_a_special_key_replaces_the_key_of_the_group() -> None:
    special = {"stream": KEYS.retry, "locks": ()}
    sent = a_script().call(KEYS, special, group="g", most=1, is_deep=False, items=())
    assert sent.by_sha().parts[3:] == (KEYS.retry, KEYS.state, "g", 1, 0)
    assert sent.by_sha().key == KEYS.retry


@pytest.mark.parametrize(
    "changes", [{"color": 1}, {"items": [{"id": "1-0"}]}, {"items": [{"id": 1, "idle": 2}]}]
)
def test_a_name_that_is_unknown_or_missing_is_an_error(changes: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=next(iter(changes))):
        call(**changes)


def test_a_missing_argument_or_key_is_named() -> None:
    with pytest.raises(TypeError, match="missing or unknown: items, most"):
        a_script().call(KEYS, {"locks": ()}, group="g", is_deep=True)
    with pytest.raises(TypeError, match="locks"):
        a_script().call(KEYS, group="g", most=1, is_deep=True, items=())
    with pytest.raises(TypeError, match="state"):
        a_script().call(
            None, {"stream": "s", "locks": ()}, group="g", most=1, is_deep=True, items=()
        )
    with pytest.raises(TypeError, match="ledger"):
        special = {"ledger": "x", "locks": ()}
        a_script().call(KEYS, special, group="g", most=1, is_deep=True, items=())


def test_lua_has_each_name_as_a_local() -> None:
    text = a_script().text
    begin = "local stream, state = KEYS[1], KEYS[2]\n"
    assert text.startswith(f"local dry_run = false\n{begin}")
    assert begin in a_script().dry.text
    assert "for i = 3, #KEYS do locks[i - 2] = KEYS[i] end" in text
    assert "local group, most, is_deep = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'\n" in text
    assert "for i = 4, #ARGV, 2 do" in text
    assert "idle_ms = tonumber(ARGV[i + 1])" in text


def test_a_dry_run_is_a_separate_script_with_the_no_writes_flag() -> None:
    script = a_script()
    text = script.dry.text
    assert text.startswith("#!lua flags=no-writes\nlocal dry_run, redis = true, ")
    assert "{ HSET = true, XNACK = true }" in text
    assert text.endswith(script.text.removeprefix("local dry_run = false\n"))
    assert (script.writes, script.dry.writes) == (True, False)
    assert script.dry.sha == sha1(text.encode()).hexdigest()


def test_permissions_are_checked_first_except_for_commands_that_may_fail() -> None:
    text = a_script().text
    assert "find_forbidden('hset', key, 'HSET', key, 'f', 'v')" in text
    assert "find_forbidden('xrange', key, 'XRANGE', key, '-', '+')" in text
    assert "XNACK" not in text.partition("-- Count what is left")[0]
    assert "'TYPE'" not in text


def test_needs_are_all_commands_that_the_script_cannot_do_without() -> None:
    sent = a_script().call(KEYS, {"locks": ("l",)}, group="g", most=1, is_deep=True, items=())
    assert sent.needs() == [
        Need("type", KEYS.stream),
        Need("type", KEYS.state),
        Need("hget", KEYS.state),
        Need("xrange", KEYS.stream),
        Need("exists", "l"),
        Need("time"),
        Need("hset", KEYS.state),
    ]
    assert sent.needs()[-1].words() == ["HSET", KEYS.state, "f", "v"]


def test_an_answer_is_checked_and_converted() -> None:
    reply = [b"done", 2, [7, b"1-0"], [[b"1-0", b"held"], [b"2-0", b"gone"]], b"a", b"b"]
    done = a_script().read(reply)
    assert isinstance(done, Done)
    assert done[:2] == ("done", 2)
    assert done.main == Length(7, EntryId(1, 0))
    stays = [Held(EntryId(1, 0), EntryVerdict.HELD), Held(EntryId(2, 0), EntryVerdict.GONE)]
    assert done.stays == stays
    assert done.rest == (b"a", b"b")
    assert a_script().read([b"half-done", 0, None, None]) == ("half-done", 0, None, None, ())
    assert a_script().read([b"done", 0, [0, b""], []]) == ("done", 0, (0, None), [], ())


def test_an_answer_without_a_verdict_takes_the_other_replies() -> None:
    now = from_ms(17)
    assert a_script().read([b"17", [b"timer", 3]]) == (now, (Taken("timer", 3),))
    assert a_script().read([17]) == (now, ())
    assert refusing().read([b"wrong-type", b"key", b"hash"]) == ("wrong-type", ("key", "hash"))


@pytest.mark.parametrize(
    "reply",
    [
        *(None, 1, b"done", [], [[]], [b"done"], [b"other"], [b"x", [b"timer", 3]]),
        *([b"done", -1, None, None], [b"done", 2, [7], None], [b"done", 2, [7, b"1-0", 1], None]),
        *([b"done", 2, None, [[b"1-0", b"why"]]], [b"done", 2, None, [[b"1-0"]]]),
        *([b"done", 2, None, [b"1-0"]], [b"done", 2, None, [[b"1", b"held"]]]),
        *([b"done", 2, None, [[b"1-0", b"held"], [b"1-0"]]], [b"done", 2, None, None, 1]),
    ],
)
def test_a_reply_of_another_form_is_an_error(reply: Any) -> None:
    with pytest.raises(InvalidReply) as raised:
        a_script().read(reply)
    assert "1-0" not in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("-- USER     operator for recovery\n", "", "in this order"),
        ("-- USER", "-- SINCE    1\n-- USER", "unknown"),
        ("stream, state, locks", "stream, color, locks", "no key is called color"),
        ("stream, state, locks...", "[stream], state", "only the last key"),
        ("most: number", "most: float", "neither a number nor a flag"),
        ("most: number", "end", "cannot be a name"),
        ("most: number", "from", "cannot be a name"),
        ("most: number", "state", "stands twice"),
        ("hset state", "hset ledger", "does not name keys"),
        ("hset state", "hset", "does not name keys"),
        ("hset state", "flushall", "table of commands"),
        ("[info]", "[info", "no command"),
    ],
)
def test_a_header_that_cannot_be_followed_is_an_error(old: str, new: str, reported: str) -> None:
    with pytest.raises(BadDeclaration, match=reported):
        changed(old, new)


def test_what_writes_beside_a_state_reads_its_format_first() -> None:
    text = a_script().text
    assert text.index("redis.pcall('HGET', state, 'group:format')") < text.index("find_refusal()")
    with pytest.raises(BadDeclaration, match="hget or hmget"):
        changed("hget state; ", "")


def test_what_only_reads_has_no_check_of_the_format() -> None:
    reading = changed("hset state;\n--          [xnack stream for release]", "none")
    assert not reading.checks_format
    assert "group:format" not in reading.text


def test_a_newer_format_raises_an_error_with_the_key_and_both_versions() -> None:
    with pytest.raises(NewerFormat, match=r"orders.*format 7 .* up to 1"):
        refusing().read([b"newer-format", b"7", b"{orders}:g:state"])
    for damaged in ([b"newer-format"], [b"newer-format", b"x", b"k"], [b"newer-format", b"7", []]):
        with pytest.raises(InvalidReply):
            refusing().read(damaged)


def test_an_unknown_refusal_is_an_error_of_the_reply() -> None:
    for refusal in (Refusal("too-many", ()), Refusal("no-permission", ("hset",))):
        assert isinstance(refused(KEYS, refusal), InvalidReply)
