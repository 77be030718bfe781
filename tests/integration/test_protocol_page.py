"""The scripts of the page about the protocol do what it says, with the rights that it names."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers, StandaloneServers
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.ledger import LedgerKind, parse_ledger_event
from pelops.redis_streams.access import UserRole, acl_rules
from tests.operators import ROOT

PAGE = (ROOT / "docs" / "reference" / "protocol.md").read_text()
SCRIPTS = dict(re.findall(r"```lua\n-- (\w+)   KEYS(.*?)```", PAGE, re.DOTALL))
ME, OTHER = "web-1:uid-1", "web-2:uid-2"


class Side:
    """A group of the page, and a user with the rights of a worker that does all of it."""

    def __init__(self, servers: RedisServers) -> None:
        self.keys: GroupKeys = derive_keys("orders:events", "order-processing")
        self.all: Any = redis.Redis.from_url(
            servers.url, password=servers.password, decode_responses=True
        )
        rules = acl_rules(self.keys, UserRole.SDK_WORKER)
        servers.acl_setuser("page", "on", ">of-the-page", *rules)
        self.user: Any = redis.Redis.from_url(
            servers.url, username="page", password="of-the-page", decode_responses=True
        )
        self.all.xgroup_create(self.keys.stream, self.keys.group, "0", mkstream=True)

    def run(self, script: str, keys: list[str], *arguments: str | int) -> Any:
        """The answer of a script of the page."""
        return self.user.eval("--" + SCRIPTS[script], len(keys), *keys, *arguments)

    def keep(self, ids: list[str], *, owner: str = ME, before: str | int = "inf") -> Any:
        """What `keep` answers to ME."""
        return self.run("keep", [self.keys.stream], self.keys.group, ME, owner, before, *ids)

    def give(self, consumer: str, count: int, **fields: str) -> list[str]:
        """Add entries and deliver them; their IDs."""
        for _ in range(count):
            self.all.xadd(self.keys.stream, {"sku": "A", **fields})
        read = {self.keys.stream: ">"}
        ((_, entries),) = self.all.xreadgroup(self.keys.group, consumer, read, count)
        return [entry_id for entry_id, _ in entries]

    def pending(self) -> dict[str, tuple[str, int]]:
        """Owner and deliveries of each pending entry."""
        lines = self.all.xpending_range(self.keys.stream, self.keys.group, "-", "+", 100)
        return {one["message_id"]: (one["consumer"], one["times_delivered"]) for one in lines}

    def now_ms(self) -> int:
        """Redis' TIME."""
        seconds, micros = self.all.time()
        return int(seconds) * 1000 + int(micros) // 1000


@pytest.fixture
def side(empty_redis: StandaloneServers) -> Side:
    """On each of the three servers in turn."""
    return Side(empty_redis)


def test_the_page_has_these_scripts() -> None:
    assert SCRIPTS.keys() == {"keep", "reject", "leave"}


def test_keep_refreshes_only_entries_of_its_consumer(side: Side) -> None:
    mine, theirs = side.give(ME, 2), side.give(OTHER, 1)
    side.all.xclaim(side.keys.stream, side.keys.group, ME, 0, mine, idle=60_000, justid=True)
    assert side.keep([*mine, *theirs]) == [mine, []]
    assert side.pending() == {**dict.fromkeys(mine, (ME, 1)), theirs[0]: (OTHER, 1)}
    idle = side.all.xpending_range(side.keys.stream, side.keys.group, "-", "+", 9, ME)
    assert all(line["time_since_delivered"] < 60_000 for line in idle)


def test_keep_takes_of_an_offer_what_the_owner_has_had_since_before(side: Side) -> None:
    old = side.give(OTHER, 2)
    before = side.now_ms() + 1
    wait_until(lambda: side.now_ms() > before, timeout_s=10, what="a later millisecond")
    young = side.give(OTHER, 1)
    assert side.keep([*old, *young], owner=OTHER, before=before) == [old, []]
    assert side.pending() == {**dict.fromkeys(old, (ME, 1)), young[0]: (OTHER, 1)}


def test_keep_names_what_it_dropped_because_its_body_is_gone(side: Side) -> None:
    first, gone, last = side.give(ME, 3)
    side.all.xdel(side.keys.stream, gone)
    assert side.keep([first, gone, last]) == [[first, last], [gone]]
    assert side.pending().keys() == {first, last}


def test_xclaim_drops_an_entry_without_a_body_and_merely_leaves_it_out(side: Side) -> None:
    first, gone = side.give(ME, 2)
    side.all.xdel(side.keys.stream, gone)
    claimed = side.all.xclaim(side.keys.stream, side.keys.group, ME, 0, [first, gone], justid=True)
    assert claimed == [first]
    assert side.pending().keys() == {first}


def _reject(side: Side, entry_id: str, prefix: str = "_") -> Any:
    keys = [side.keys.stream, side.keys.dead_letter, side.keys.worker_ledger]
    why = ("NoSuchCustomer", "customer 7 is unknown")
    return side.run("reject", keys, side.keys.group, ME, entry_id, prefix, *why)


def test_reject_writes_a_letter_like_those_of_the_operator(side: Side) -> None:
    (entry_id,) = side.give(ME, 1)
    letter = _reject(side, entry_id)
    ((found, fields),) = side.all.xrange(side.keys.dead_letter)
    assert found == letter
    assert int(fields.pop("_delivered_ms")) <= int(fields.pop("_dead_lettered_ms"))
    assert fields == {
        "sku": "A",
        "_original_id": entry_id,
        "_stream": side.keys.stream,
        "_group": side.keys.group,
        "_consumer": ME,
        "_delivery_count": "1",
        "_retry_count": "0",
        "_reason": "NoSuchCustomer",
        "_error": "customer 7 is unknown",
    }
    assert not side.pending()
    ((event_id, event),) = side.all.xrange(side.keys.worker_ledger)
    raw = {name.encode(): value.encode() for name, value in event.items()}
    parsed = parse_ledger_event(parse_entry_id(event_id), raw)
    assert parsed.kind == LedgerKind.DEAD_LETTERED
    assert [str(one.entry_id) for one in parsed.entries] == [entry_id]


def test_reject_of_a_copy_keeps_its_root_and_its_failures(side: Side) -> None:
    (entry_id,) = side.give(ME, 1, x_original_id="5-0", x_retry_count="2")
    _reject(side, entry_id, "x_")
    ((_, fields),) = side.all.xrange(side.keys.dead_letter)
    assert (fields["sku"], fields["x_original_id"], fields["x_retry_count"]) == ("A", "5-0", "2")
    assert list(fields).count("x_retry_count") == 1


def test_reject_leaves_what_is_not_mine_and_what_has_no_body(side: Side) -> None:
    (theirs,), (gone,) = side.give(OTHER, 1), side.give(ME, 1)
    side.all.xdel(side.keys.stream, gone)
    assert [_reject(side, one) for one in (theirs, gone)] == [None, None]
    assert side.pending().keys() == {theirs, gone}
    assert not side.all.exists(side.keys.dead_letter, side.keys.worker_ledger)


def test_leave_removes_a_consumer_only_when_it_owns_nothing_on_any_stream(side: Side) -> None:
    keys = [side.keys.stream, side.keys.retry]
    side.all.xgroup_create(side.keys.retry, side.keys.group, "0", mkstream=True)
    (entry_id,) = side.give(ME, 1)
    assert side.run("leave", keys, side.keys.group, ME) == 0
    side.all.xack(side.keys.stream, side.keys.group, entry_id)
    side.all.xadd(side.keys.retry, {"sku": "A"})
    ((_, ((copy, _),)),) = side.all.xreadgroup(side.keys.group, ME, {side.keys.retry: ">"}, 1)
    assert side.run("leave", keys, side.keys.group, ME) == 0
    side.all.xack(side.keys.retry, side.keys.group, copy)
    assert side.run("leave", keys, side.keys.group, ME) == 1
    assert side.all.xinfo_consumers(side.keys.stream, side.keys.group) == []


def test_claim_takes_idle_entries_in_the_same_read(empty_redis_86: StandaloneServers) -> None:
    side = Side(empty_redis_86)
    (entry_id,) = side.give(OTHER, 1)
    names = (side.keys.stream, side.keys.group, OTHER)
    side.all.xclaim(*names, 0, [entry_id], idle=400_000, justid=True)
    words = next(line for line in PAGE.splitlines() if " CLAIM 300000 " in line).split()
    answer = side.user.execute_command(*[ME if word == "ME" else word for word in words])
    assert entry_id in str(answer)
    assert side.pending() == {entry_id: (ME, 2)}
