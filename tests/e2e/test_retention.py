"""Streams are trimmed to their limits, and no entry goes that a group has yet to process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from local_cluster.redis_servers import RedisServers
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import a_letter, patch
from tests.e2e.recovering import Group
from tests.operators import Resources

OTHER = "auditors"
NODE = 100  # entries that Redis removes at once


def _until_seen(group: Group, change: Callable[[], Any]) -> None:
    """Change something, and wait until the operator has seen all that was there before it."""
    letters = group.redis.xlen(group.keys.dead_letter)
    change()
    group.redis.xadd(group.keys.dead_letter, {"n": "marker"})

    def is_reported() -> bool:
        return bool(group.reported("deadLetter")["length"] == letters + 1)

    group.until(is_reported, "the status to report what came last")


def _acknowledge_all(group: Group, name: str) -> None:
    ids = [line["message_id"] for line in _pending_of(group, name)]
    group.redis.xack(group.stream, name, *ids)


def _pending_of(group: Group, name: str) -> list[Any]:
    found: list[Any] = group.redis.xpending_range(group.stream, name, "-", "+", 10_000)
    return found


def test_only_entries_acknowledged_by_all_groups_are_trimmed(group: Group) -> None:
    group.redis.xgroup_create(group.stream, OTHER, "0", mkstream=True)
    group.declare(retention={"maxLength": 100}, recovery={"strategy": "Disabled"})
    trimming = group.resources.await_condition(group.name, "RetentionActive", reason="Trimming")
    assert "100" in trimming["message"]
    ids = group.add(1_000)
    group.deliver("jane", 1_000)
    group.acknowledge(ids)
    # The other group was given 600 and has finished all but one of them.
    group.redis.xreadgroup(OTHER, "auditor", {group.stream: ">"}, 600)
    owed = ids[450]
    group.redis.xack(group.stream, OTHER, *(one for one in ids[:600] if one != owed))
    group.until(lambda: group.redis.xlen(group.stream) <= 550 + NODE, "what nobody owes to go")
    _until_seen(group, lambda: None)
    kept = [one for one, _ in group.redis.xrange(group.stream)]
    assert kept == ids[-len(kept) :] and owed in kept

    group.redis.xreadgroup(OTHER, "auditor", {group.stream: ">"})
    _acknowledge_all(group, OTHER)
    group.until(lambda: group.redis.xlen(group.stream) < 100 + NODE, "the rest to go")
    _until_seen(group, lambda: None)
    left = group.redis.xlen(group.stream)
    assert 100 <= left < 100 + NODE
    trims = group.ledger(LedgerKind.TRIMMED)
    assert sum(int(trim.details["count"]) for trim in trims) == 1_000 - left
    assert not group.resources.condition(group.name, "DataLoss")


def test_entries_beyond_the_maximum_age_are_trimmed_unless_pending(
    group: Group,
) -> None:
    hour_ago = group.now_ms() - 3_600_000
    old = [group.redis.xadd(group.stream, {"n": "1"}, f"{hour_ago}-{n}") for n in range(1, 301)]
    new = group.add(10)
    group.redis.xgroup_create(group.stream, group.keys.group, "0")
    group.deliver("jane", len(old) + len(new))
    owed = old[150]
    group.acknowledge(one for one in old if one != owed)
    group.declare(retention={"maxAgeSeconds": 600}, recovery={"strategy": "Disabled"})
    group.until(lambda: group.redis.xlen(group.stream) <= 160 + NODE, "the oldest to go")
    _until_seen(group, lambda: None)
    kept = {one for one, _ in group.redis.xrange(group.stream)}
    assert kept >= {owed, *new}


def test_of_two_resources_on_one_stream_the_larger_limit_holds(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    small = Group(resources, redis_86, stream, name="small", group="small")
    large = Group(resources, redis_86, stream, name="large", group="large")
    for one, length in ((small, 100), (large, 600)):
        one.declare(retention={"maxLength": length}, recovery={"strategy": "Disabled"})
    ids = small.add(1_000)
    for one in (small, large):
        one.deliver("jane", 1_000)
        one.acknowledge(ids)
    small.until(lambda: small.redis.xlen(stream) < 600 + NODE, "the stream to be trimmed")
    for one in (small, large):
        _until_seen(one, lambda: None)
    assert small.redis.xlen(stream) >= 600


def test_a_suspended_resource_trims_nothing(group: Group) -> None:
    group.declare(retention={"maxLength": 100})
    patch(group.resources, "scg", group.name, {"spec": {"suspend": True}})
    group.resources.await_condition(group.name, "RetentionActive", reason="Suspended")
    ids = group.add(500)
    group.deliver("jane", 500)
    _until_seen(group, lambda: group.acknowledge(ids))
    assert group.redis.xlen(group.stream) == 500
    patch(group.resources, "scg", group.name, {"spec": {"suspend": False}})
    group.until(lambda: group.redis.xlen(group.stream) < 100 + NODE, "the stream to be trimmed")


def test_dead_letters_go_by_age_alone_and_the_ledger_says_so(group: Group) -> None:
    weeks_ago = group.now_ms() - 21 * 86_400_000
    letter = a_letter(group.stream, group.keys.group)
    old = [
        group.redis.xadd(group.keys.dead_letter, letter, f"{weeks_ago}-{n}") for n in range(1, 151)
    ]
    new = group.redis.xadd(group.keys.dead_letter, letter)
    group.declare()
    group.until(lambda: group.redis.xlen(group.keys.dead_letter) == 1, "the old letters to go")
    assert group.redis.xrange(group.keys.dead_letter)[0][0] == new
    expired = group.ledger(LedgerKind.DEAD_LETTERS_EXPIRED)
    assert sum(int(one.details["count"]) for one in expired) == len(old)
    last = parse_entry_id(expired[-1].details["last_id"])
    assert parse_entry_id(old[-1]) <= last < parse_entry_id(new)
    reported = group.resources.await_events(group.name, "DeadLettersExpired")
    assert {event["type"] for event in reported} == {"Normal"}
