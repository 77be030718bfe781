"""A declared group appears in Redis as its author asked, and `kubectl get` reports it."""

from __future__ import annotations

import pytest

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys, key_slot
from tests.e2e.declaring import NAME, a_spec, acts_of, await_observed, get, group_of, ledger_of
from tests.operators import Resources

COLUMNS = (
    *("NAME", "READY", "REASON", "LAG", "PENDING", "STUCK", "OLDEST", "DLQ", "REPLICAS"),
    *("STREAM", "GROUP", "DESIRED", "RECOVERED", "REDIS", "AGE"),
)


@pytest.mark.parametrize(
    ("start_from", "position"), [("Beginning", "0-0"), ("End", "3-0"), ("2-0", "2-0")]
)
def test_a_new_group_begins_where_start_from_says(
    resources: Resources, redis_86: RedisServers, stream: str, start_from: str, position: str
) -> None:
    for entry_id in ("1-0", "2-0", "3-0"):
        redis_86.cli("XADD", stream, entry_id, "sku", "A")
    resources.apply(NAME, a_spec(redis_86.url, stream, startFrom=start_from))
    resources.await_condition(NAME, reason="Ready")
    assert group_of(redis_86, stream, NAME)["last-delivered-id"] == position
    event = ledger_of(redis_86, derive_keys(stream, NAME).ledger)[0]
    assert (event["kind"], event["position"]) == ("group-created", position)


def test_a_missing_stream_is_created_empty_with_the_keys_of_its_group(
    resources: Resources, watched_redis: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(watched_redis.url, stream, group="billing"))
    ready = resources.await_condition(NAME, reason="Ready")
    keys = derive_keys(stream, "billing")
    assert "billing" in ready["message"] and stream in ready["message"]
    assert watched_redis.cli("XLEN", stream) == "0"
    assert watched_redis.cli("TYPE", keys.dead_letter) == "stream"
    assert watched_redis.cli("XLEN", keys.dead_letter) == "0"
    assert [event["kind"] for event in acts_of(watched_redis, keys.ledger)] == ["group-created"]
    assert {key_slot(key) for key in keys.derived()} == {key_slot(stream)}


def test_the_dead_letter_stream_gets_the_name_in_the_spec(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    chosen = f"{{{stream}}}:given-up"
    resources.apply(NAME, a_spec(redis_86.url, stream, deadLetter={"stream": chosen}))
    resources.await_condition(NAME, reason="Ready")
    assert redis_86.cli("TYPE", chosen) == "stream"
    assert redis_86.cli("EXISTS", derive_keys(stream, NAME).dead_letter) == "0"
    assert get(resources, "scg", NAME)["status"]["deadLetter"] == {"stream": chosen, "length": 0}


def test_an_existing_group_is_adopted_untouched(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    for number in range(1, 6):
        redis_86.cli("XADD", stream, f"{number}-0", "sku", "A")
    redis_86.cli("XGROUP", "CREATE", stream, NAME, "1-0")
    redis_86.cli("XREADGROUP", "GROUP", NAME, "jane", "COUNT", "3", "STREAMS", stream, ">")
    redis_86.cli("XACK", stream, NAME, "3-0")
    redis_86.cli("XGROUP", "CREATECONSUMER", stream, NAME, "idle-joe")
    before = _everything_about(redis_86, stream)
    resources.apply(NAME, a_spec(redis_86.url, stream, startFrom="End"))
    resources.await_condition(NAME, reason="Ready")
    assert _everything_about(redis_86, stream) == before
    kinds = [event["kind"] for event in acts_of(redis_86, derive_keys(stream, NAME).ledger)]
    assert kinds == ["group-adopted"]


def _everything_about(servers: RedisServers, stream: str) -> tuple[str, str, list[str]]:
    pending = servers.cli("XPENDING", stream, NAME)
    consumers = servers.cli("XINFO", "CONSUMERS", stream, NAME).splitlines()
    names = [
        line
        for before, line in zip(["", *consumers], consumers, strict=False)
        if before in ("name", "pending")
    ]
    return servers.cli("XINFO", "GROUPS", stream), pending, names


def test_two_groups_on_one_stream_stand_side_by_side(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    for group in ("billing", "shipping"):
        alone = {"strategy": "RetryStream"}
        resources.apply(group, a_spec(redis_86.url, stream, recovery=alone))
    for group in ("billing", "shipping"):
        resources.await_condition(group, reason="Ready")
        assert group_of(redis_86, stream, group)["last-delivered-id"] == "0-0"


def test_kubectl_get_shows_lag_pending_and_dead_letters(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    for number in range(1, 6):
        redis_86.cli("XADD", stream, f"{1700000000000 + number}-0", "sku", "A")
    redis_86.cli("XGROUP", "CREATE", stream, NAME, "0")
    redis_86.cli("XREADGROUP", "GROUP", NAME, "jane", "COUNT", "2", "STREAMS", stream, ">")
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    cells = _cells(resources)
    expected = {
        "NAME": NAME,
        "STREAM": stream,
        "GROUP": NAME,
        "READY": "True",
        "LAG": "3",
        "PENDING": "2",
        "DLQ": "0",
        "REPLICAS": "0/0",
        "DESIRED": "0",
        "REDIS": f"{redis_86.version} Standalone",
        "REASON": "Ready",
    }
    assert {column: cells[column] for column in expected} == expected
    assert cells["OLDEST"].endswith("d") or "y" in cells["OLDEST"]  # since November 2023


def test_the_columns_read_well_before_anything_is_known(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec("redis://127.0.0.1:1", stream))
    resources.await_condition(NAME, reason="RedisUnreachable")
    cells = _cells(resources)
    assert (cells["READY"], cells["REASON"]) == ("False", "RedisUnreachable")
    assert (cells["STREAM"], cells["GROUP"], cells["LAG"]) == (stream, NAME, "")


def _cells(resources: Resources) -> dict[str, str]:
    """The line of `kubectl get scg -o wide`, by column; columns begin where their heads do."""
    await_observed(resources)
    answer = resources.plane.kubectl("get", "scg", "-n", resources.namespace, "-o", "wide")
    head, line = answer.stdout.splitlines()
    assert tuple(head.split()) == COLUMNS
    starts = [*(head.index(column) for column in COLUMNS), len(line) + 1]
    return {
        column: line[starts[place] : starts[place + 1]].strip()
        for place, column in enumerate(COLUMNS)
    }


def test_numbers_in_status_follow_the_group(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    redis_86.cli("XADD", stream, "7-0", "sku", "A")
    redis_86.cli("XREADGROUP", "GROUP", NAME, "jane", "STREAMS", stream, ">")
    redis_86.cli("XADD", stream, "8-0", "sku", "A")
    group = _await_pending(resources, 1)
    assert (group["lastDeliveredId"], group["lag"], group["lagKnown"]) == ("7-0", 1, True)
    redis_86.cli("XACK", stream, NAME, "7-0")
    assert "oldestPendingTime" not in _await_pending(resources, 0)


def _await_pending(resources: Resources, count: int) -> dict[str, object]:
    def group() -> dict[str, object] | None:
        found: dict[str, object] = get(resources, "scg", NAME)["status"]["group"]
        return found if found["pending"] == count else None

    found = wait_until(group, timeout_s=60, what=f"{count} pending", every_s=0.2)
    assert found is not None
    return found
