"""Which resources name one stream, and when Redis is asked for a former retry stream."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pelops.controller.group.group_observer import KNOWN_S, FormerRetryStreams, names_stream
from pelops.errors import RedisUnavailable
from pelops.redis_core.server import Server
from tests.builders import keys, resource

SENTINEL = {"masterName": "m", "nodes": ["a:26379", "b:26379"]}


@pytest.mark.parametrize(
    ("ours", "theirs", "is_same"),
    [
        ({"url": "redis://a"}, {"url": "redis://a"}, True),
        ({"url": "redis://a"}, {"url": "redis://b"}, False),
        ({"url": "redis://a"}, {"url": "redis://a", "authSecretRef": {"name": "x"}}, True),
        ({"secretRef": {"name": "x"}}, {"secretRef": {"name": "x"}}, True),
        ({"secretRef": {"name": "x"}}, {"secretRef": {"name": "y"}}, False),
        (
            {"sentinel": SENTINEL},
            {"sentinel": {**SENTINEL, "nodes": ["b:26379", "a:26379"]}},
            True,
        ),
        ({"sentinel": SENTINEL}, {"sentinel": {**SENTINEL, "masterName": "n"}}, False),
        ({"sentinel": SENTINEL}, {"sentinel": {**SENTINEL, "nodes": ["c:26379"]}}, False),
        ({"sentinel": SENTINEL}, {"url": "redis://a"}, False),
    ],
)
def test_two_resources_name_one_redis_by_the_same_address(
    ours: dict[str, Any], theirs: dict[str, Any], is_same: bool
) -> None:
    one = resource(redis=ours)
    metadata = {"namespace": one.metadata.namespace, "name": "other"}
    other = {"metadata": metadata, "spec": {"stream": one.spec.stream, "redis": theirs}}
    assert names_stream(other, one, one.spec.stream) is is_same
    assert not names_stream(other, one, "another")


# --- How often Redis is asked whether a retry stream is left that the spec no longer asks for


class Answers:
    """A server that knows one key's type, and counts how often it is asked."""

    def __init__(self, kind: bytes = b"stream") -> None:
        self.kind: bytes | None = kind
        self.asked = 0

    async def execute(self, *words: Any, key: str) -> bytes:
        assert words == ("TYPE", key)
        self.asked += 1
        if self.kind is None:
            raise RedisUnavailable("it does not answer")
        return self.kind


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def is_left(former: FormerRetryStreams, server: Answers, **changes: Any) -> bool:
    of = resource(**changes)
    return await former.is_left(of, cast(Server, server), keys(of))


async def test_a_retry_stream_that_is_asked_for_is_no_former_one() -> None:
    server = Answers()
    asked = {"recovery": {"strategy": "RetryStream"}}
    assert not await is_left(FormerRetryStreams(Clock()), server, **asked)
    assert server.asked == 0


async def test_an_answer_counts_for_a_while_and_for_one_spec() -> None:
    server, clock = Answers(b"none"), Clock()
    former = FormerRetryStreams(clock)
    for _ in range(3):
        assert not await is_left(former, server)
    assert server.asked == 1
    server.kind = b"stream"
    assert await is_left(former, server, metadata={"generation": 2})
    assert await is_left(former, server, metadata={"generation": 2})
    assert server.asked == 2
    clock.now += KNOWN_S
    server.kind = b"string"
    assert not await is_left(former, server, metadata={"generation": 2})


async def test_while_redis_does_not_answer_the_last_answer_counts() -> None:
    """Invariant 6: known work is not forgotten in an outage."""
    server, clock = Answers(), Clock()
    former = FormerRetryStreams(clock)
    assert await is_left(former, server)
    clock.now, server.kind = clock.now + KNOWN_S, None
    assert await is_left(former, server)
    assert await is_left(former, server, metadata={"generation": 2})
    assert not await is_left(former, server, stream="orders:others")
    assert not await is_left(FormerRetryStreams(clock), server)
