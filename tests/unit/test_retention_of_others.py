"""The limits of a stream are the larger ones of all resources on it, as far as they can be read."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.upkeep import UpkeepActions
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import STREAM_CONSUMER_GROUP


def manifest_of(name: str, retention: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}
    spec = {"redis": {"url": "redis://redis"}, "stream": "orders", "retention": retention}
    return {"metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("others", "longest"),
    [
        ({"maxLength": 9}, 9),
        ({"maxLength": 3}, 5),
        ({"maxLength": "many"}, 5),
        ({"maxLength": -1}, 5),
        ("much", 5),
        ([], 5),
        (None, 5),
    ],
)
def test_of_two_limits_the_larger_counts_unless_it_is_none(others: Any, longest: int) -> None:
    cache = WorkloadCache()
    mine = manifest_of("mine", {"maxLength": 5})
    for manifest in (mine, manifest_of("theirs", others)):
        cache.put(STREAM_CONSUMER_GROUP, manifest)
    upkeep = UpkeepActions(None, cache, identity="me")  # type: ignore[arg-type]
    limits = upkeep._limits(StreamConsumerGroup.parse(mine))
    assert limits is not None and limits.max_length == longest
