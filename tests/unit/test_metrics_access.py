"""Who may read the metrics: what is asked of the API server, and what is remembered."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pelops.controller.replica import MetricsAccess
from pelops.controller.runtime.access import ALLOWED_S, REFUSED_S, WAITING
from pelops.errors import KubernetesUnavailable
from pelops.kube.client import TOKEN_REVIEW, Kind, KubeApi

USER = {"username": "prometheus", "uid": "7", "groups": ["scrapers"], "extra": {"a": ["b"]}}


class Reviews:
    """Answers reviews as an API server that knows the token `well`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.is_allowed = True
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, kind: Kind, _: str, body: dict[str, Any]) -> dict[str, Any]:
        await self.gate.wait()
        if self.is_away:
            raise KubernetesUnavailable("away")
        self.asked.append(body["spec"])
        if kind is not TOKEN_REVIEW:
            return {"status": {"allowed": self.is_allowed}}
        is_known = body["spec"]["token"] == "well"
        return {"status": {"authenticated": is_known, "user": USER} if is_known else {}}


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def access(reviews: Reviews, now: list[float]) -> MetricsAccess:
    return MetricsAccess(cast(KubeApi, reviews), lambda: now[0])


async def test_the_rights_of_the_tokens_user_are_asked_for(
    access: MetricsAccess, reviews: Reviews
) -> None:
    assert await access("Bearer well") == 200
    path = {"path": "/metrics", "verb": "get"}
    whom = {"user": "prometheus", "uid": "7", "groups": ["scrapers"], "extra": {"a": ["b"]}}
    assert reviews.asked == [{"token": "well"}, {**whom, "nonResourceAttributes": path}]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic well", "well"])
async def test_without_a_bearer_token_no_review_is_requested(
    access: MetricsAccess, reviews: Reviews, header: str
) -> None:
    assert await access(header) == 401
    assert reviews.asked == []


async def test_an_answer_is_believed_for_a_while(
    access: MetricsAccess, reviews: Reviews, now: list[float]
) -> None:
    assert [await access("bearer well") for _ in range(3)] == [200] * 3
    reviews.is_allowed = False
    assert await access("Bearer well") == 200
    now[0] += ALLOWED_S
    assert [await access("Bearer well") for _ in range(3)] == [403] * 3
    reviews.is_allowed = True
    now[0] += REFUSED_S
    assert await access("Bearer well") == 200
    assert [await access("Bearer other") for _ in range(3)] == [401] * 3
    assert len(reviews.asked) == 3 * 2 + 1


async def test_an_outage_refuses_and_is_not_remembered(
    access: MetricsAccess, reviews: Reviews
) -> None:
    reviews.is_away = True
    assert await access("Bearer well") == 503
    reviews.is_away = False
    assert await access("Bearer well") == 200


async def test_a_flood_of_tokens_waits_for_the_api_server_within_bounds(
    access: MetricsAccess, reviews: Reviews
) -> None:
    reviews.gate.clear()
    flood = [asyncio.create_task(access(f"Bearer {number}")) for number in range(WAITING)]
    await asyncio.sleep(0)
    assert await access("Bearer one-more") == 429
    reviews.gate.set()
    assert await asyncio.gather(*flood) == [401] * WAITING
    assert await access("Bearer well") == 200
