"""The Pod Security level of a namespace, as the operator caches it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pelops.controller.runtime.namespaces import MAX_AGE_S, NamespaceLevels
from pelops.errors import Forbidden, KubernetesUnavailable, NotFound
from pelops.kube.client import Address, KubeApi
from pelops.kube.pod_security import ENFORCE_LABEL, PodSecurity


class Namespaces:
    """What the API server answers, and how often it was asked."""

    def __init__(self) -> None:
        self.answer: str | Exception = "baseline"
        self.asked = 0

    async def get(self, address: Address) -> dict[str, Any]:
        assert address.path == "/api/v1/namespaces/shop"
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"metadata": {"labels": {ENFORCE_LABEL: self.answer}}}


async def test_a_level_is_read_once_a_minute_and_outlives_an_outage() -> None:
    server, now = Namespaces(), [0.0]
    levels = NamespaceLevels(cast(KubeApi, server), lambda: now[0])
    assert await levels.level("shop") is PodSecurity.BASELINE
    server.answer = "privileged"
    assert await levels.level("shop") is PodSecurity.BASELINE
    now[0] += MAX_AGE_S
    server.answer = KubernetesUnavailable("away")
    assert await levels.level("shop") is PodSecurity.BASELINE
    now[0] += MAX_AGE_S
    server.answer = "privileged"
    assert await levels.level("shop") is PodSecurity.PRIVILEGED
    assert server.asked == 3


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("none")])
async def test_what_may_not_be_read_is_restricted(error: Exception) -> None:
    server = Namespaces()
    server.answer = error
    levels = NamespaceLevels(cast(KubeApi, server), lambda: 0.0)
    assert await levels.level("shop") is PodSecurity.RESTRICTED


async def test_without_an_answer_nothing_is_guessed() -> None:
    server = Namespaces()
    server.answer = KubernetesUnavailable("away")
    with pytest.raises(KubernetesUnavailable):
        await NamespaceLevels(cast(KubeApi, server), lambda: 0.0).level("shop")
