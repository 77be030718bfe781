"""Which resources are known to name one stream at one Redis, by their words alone."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.controller.group.group_observer import names_stream
from tests.builders import resource

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
