"""Slot maps and redirects: what a reply says is taken, whatever else it is is refused."""

import pytest
from redis import exceptions

from pelops.domain.endpoint import Node
from pelops.errors import InvalidReply, RedisUnavailable
from pelops.redis_core.hash_slots import Redirect, SlotMap, redirect_of

ASKED = Node("asked", 6379)
ONE, TWO, REPLICA = Node("one", 1), Node("two", 2), Node("replica", 3)
REPLY = [
    [8192, 16383, [b"two", 2, b"id-2", []]],
    [0, 8000, [b"one", 1, b"id-1", []], [b"replica", 3, b"id-3", []]],
]


def test_a_slot_is_at_its_master_and_replicas() -> None:
    slots = SlotMap.parse(REPLY, ASKED)
    assert slots.nodes_of(0) == slots.nodes_of(8000) == (ONE, REPLICA)
    assert slots.master_of(8192) == slots.master_of(16383) == TWO


def test_an_unassigned_slot_has_no_node() -> None:
    slots = SlotMap.parse(REPLY, ASKED)
    assert slots.nodes_of(8001) == slots.nodes_of(8191) == ()
    assert SlotMap.parse(REPLY[:1], ASKED).master_of(5) is None
    assert SlotMap.parse([], ASKED).master_of(0) is None


def test_masters_come_once_and_members_with_their_replicas() -> None:
    slots = SlotMap.parse([*REPLY, [8001, 8191, [b"one", 1]]], ASKED)
    assert slots.masters() == (ONE, TWO)
    assert set(slots.members()) == {ONE, TWO, REPLICA}


@pytest.mark.parametrize("host", [b"", b"?", None])
def test_a_node_without_a_name_is_where_the_answer_came_from(host: bytes | None) -> None:
    slots = SlotMap.parse([[0, 16383, [host, 7000]]], ASKED)
    assert slots.master_of(1) == Node("asked", 7000)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"OK",
        7,
        [7],
        [[]],
        [[0, 5]],
        [[0, 5, []]],
        [[0, 5, b"one"]],
        [[0, 5, [b"one"]]],
        [[0, 5, [7, 7000]]],
        [[0, 5, [b"\xff", 7000]]],
        [[0, 5, [b"one", b"x"]]],
        [[0, 5, [b"one", 70_000]]],
        [[b"a", b"b", [b"one", 1]]],
        [[-1, 5, [b"one", 1]]],
        [[6, 5, [b"one", 1]]],
        [[0, 10**12, [b"one", 1]]],
        [[0, 5, [b"one", 1]], None],
        [5],
        [[0, 10**8, [b"one", 1]]],
        [[10**8, 10**8, [b"one", 1]]],
        [[0, 0, [b"one", 1]]] * 16_385,
        [[0, 0, *([b"one", port] for port in range(101))]],
        [[slot, slot, [b"one", 1 + slot]] for slot in range(1001)],
        [[0, 5, [b"evil\r\nhost", 1]]],
        [[True, 5, [b"one", 1]]],
    ],
)
def test_what_is_no_slot_map_is_refused(reply: object) -> None:
    with pytest.raises(
        InvalidReply, match="asked:6379 returned an invalid reply to CLUSTER SLOTS"
    ) as refused:
        SlotMap.parse(reply, ASKED)
    assert refused.value.__cause__ is None  # its words would be the server's


def test_an_error_reply_for_the_slots_means_redis_is_unavailable() -> None:
    with pytest.raises(RedisUnavailable, match="asked:6379 did not return the hash slots"):
        SlotMap.parse(exceptions.ResponseError("ERR no"), ASKED)


def test_moved_holds_from_now_on_and_ask_this_once() -> None:
    assert redirect_of(exceptions.MovedError("3999 one:1"), ASKED) == Redirect(ONE, 3999, True)
    assert redirect_of(exceptions.AskError("3999 one:1"), ASKED) == Redirect(ONE, 3999, False)


@pytest.mark.parametrize("host", ["", "?"])
def test_a_redirect_without_a_host_stays_at_the_host_that_answered(host: str) -> None:
    redirect = redirect_of(exceptions.MovedError(f"3999 {host}:6381"), ASKED)
    assert redirect == Redirect(Node("asked", 6381), 3999, True)


@pytest.mark.parametrize("reply", [None, b"OK", exceptions.TryAgainError("later"), ValueError()])
def test_other_replies_are_no_redirects(reply: object) -> None:
    assert redirect_of(reply, ASKED) is None
