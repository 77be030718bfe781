"""Events of objects that are too large to be kept reach kopf as small ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from pelops.controller.runtime.watch import LARGE_BYTES, TrimmedLines
from pelops.kube.trimmed import MOST_TEMPLATE_BYTES, is_kept


class Content:
    """The content of a response, which arrives in these parts."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


async def read(*parts: bytes) -> list[bytes]:
    lines = TrimmedLines(cast(Any, Content(list(parts))))
    text = b"".join([part async for part in lines.iter_chunked(1024)])
    return text.splitlines(keepends=True)


def an_event(name: str, *, template: str = "", of: str = "MODIFIED") -> bytes:
    manifest = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "7"},
        "spec": {"stream": "orders", "template": {"spec": {"text": template}}},
        "status": {"observedGeneration": 1},
    }
    return json.dumps({"type": of, "object": manifest}).encode() + b"\n"


SMALL = an_event("small")
HUGE = an_event("huge", template="x" * (MOST_TEMPLATE_BYTES + 1))
LARGE_AND_KEPT = an_event("large", template="x" * (LARGE_BYTES + 1))


@pytest.mark.parametrize("size", [7, 1000, LARGE_BYTES, 10 * LARGE_BYTES])
async def test_other_events_are_passed_on_as_they_came(size: int) -> None:
    text = SMALL + LARGE_AND_KEPT + SMALL
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    assert await read(*parts) == [SMALL, LARGE_AND_KEPT, SMALL]


@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
async def test_an_object_that_is_too_large_is_passed_on_without_its_content(kind: str) -> None:
    huge = an_event("huge", template="x" * (MOST_TEMPLATE_BYTES + 1), of=kind)
    first, stub, last = await read(SMALL + huge[:100], huge[100:] + SMALL)
    assert first == last == SMALL
    assert len(stub) < 1000
    event = json.loads(stub)
    assert event["type"] == kind
    assert not is_kept(event["object"])
    assert event["object"]["metadata"]["name"] == "huge"
    assert event["object"]["status"] == {"observedGeneration": 1}


async def test_what_is_no_event_is_passed_on_as_it_came() -> None:
    broken = b"{" * LARGE_BYTES + b"}\n"
    error = json.dumps({"type": "ERROR", "object": {"message": "x" * LARGE_BYTES}}).encode() + b"\n"
    odd = json.dumps({"type": "ADDED", "object": {"metadata": "x" * LARGE_BYTES}}).encode() + b"\n"
    assert await read(broken, error, odd, HUGE[:1000]) == [broken, error, odd, HUGE[:1000]]
