"""What the cache keeps of objects of any size, and what it costs."""

from __future__ import annotations

import json
import random
import string
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from pelops.controller.runtime.watch import LARGE_BYTES, TrimmedLines
from pelops.domain.records.packed_parts import part_of, unpack
from pelops.errors import InvalidSpec
from pelops.kube.json_text import TOO_DEEP
from pelops.kube.trimmed import (
    MOST_TEMPLATE_BYTES,
    check_kept,
    copy_template,
    is_kept,
    pack,
    trim,
)
from pelops.kube.worker_deployment import is_applied

KIB = 1024


def template_of(size: int, **metadata: Any) -> dict[str, Any]:
    """A template of this many bytes of small objects, which take the most memory as dicts."""
    one = {"name": "A1", "value": "b"}
    count = size // (len(json.dumps(one)) + 2)
    container = {"name": "worker", "env": [dict(one) for _ in range(count)]}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def manifest_of(template: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"redis": {"url": "redis://shop"}, "stream": "orders"}
    if template is not None:
        spec["template"] = template
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"namespace": "shop", "name": "orders", "uid": "u", **metadata},
        "spec": spec,
    }


def test_a_small_object_is_kept_as_it_is_without_its_managers() -> None:
    manifest = manifest_of(
        template_of(KIB), managedFields=[{"manager": "kubectl"}], labels={"a": "b"}
    )
    assert trim(manifest) == manifest_of(template_of(KIB), labels={"a": "b"})


def test_a_copy_of_the_object_in_an_annotation_is_not_kept() -> None:
    last = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 200 * KIB, "mine": "y"}
    assert trim(manifest_of(annotations=last)) == manifest_of(annotations={"mine": "y"})


@pytest.mark.parametrize("size", [KIB, 20 * KIB, 200 * KIB])
def test_a_template_of_any_allowed_size_comes_back_as_it_was(size: int) -> None:
    template = template_of(size, labels={"app": "orders"})
    kept = trim(manifest_of(template))
    check_kept(kept)
    assert unpack(kept) == manifest_of(template) | {"metadata": unpack(kept)["metadata"]}
    assert copy_template(kept["spec"]["template"]) == template
    assert part_of(kept["spec"]["template"], "metadata") == {"labels": {"app": "orders"}}
    assert part_of(kept["spec"]["template"], "other") is None


def test_a_template_with_unknown_fields_is_restored_unchanged() -> None:
    template = {**template_of(20 * KIB), **{f"part-{number}": number for number in range(5_000)}}
    kept = trim(manifest_of(template))
    assert copy_template(kept["spec"]["template"]) == template
    assert part_of(kept["spec"]["template"], "part-7") == 7


@pytest.mark.full
def test_what_is_packed_comes_back_as_it_was_without_its_status() -> None:
    for size in (KIB, 100 * KIB):
        manifest = {**manifest_of(template_of(size)), "status": {"replicas": 1}}
        packed = pack(manifest)
        assert "status" not in packed
        assert packed["metadata"]["uid"] == manifest["metadata"]["uid"]
        assert unpack(packed)["spec"] == manifest["spec"]
        assert len(str(packed["spec"])) < 2 * KIB


def cost_of(text: str, keep: Callable[[dict[str, Any]], dict[str, Any]] = trim) -> float:
    """The bytes that are kept of each of ten objects of this text."""
    tracemalloc.start()
    try:
        kept = [keep(json.loads(text)) for _ in range(10)]
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(kept) == 10
    return size / 10


def test_many_objects_with_the_same_words_have_them_in_memory_once() -> None:
    words = {f"field{letter}": f"Word{letter}" for letter in string.ascii_letters}
    manifest = {**manifest_of(), "status": words}
    assert trim(json.loads(json.dumps(manifest))) == manifest
    whole = cost_of(json.dumps(manifest), lambda manifest: manifest)
    assert cost_of(json.dumps(manifest)) < whole / 2


def test_a_large_template_costs_no_more_than_its_compressed_size() -> None:
    assert cost_of(json.dumps(manifest_of(template_of(200 * KIB)))) < 20 * KIB


def test_a_template_that_cannot_be_compressed_costs_no_more_than_its_text() -> None:
    noise = random.Random(1).randbytes(100 * KIB).hex()
    text = json.dumps(manifest_of({"spec": {"containers": [{"name": noise}]}}))
    assert cost_of(text) < len(text)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (manifest_of(template_of(MOST_TEMPLATE_BYTES + KIB)), r"258 KiB in spec\.template"),
        (manifest_of({"spec": {"containers": [{"name": TOO_DEEP}]}}), "nested deeper than 64"),
        (manifest_of(finalizers=[f"a/{n}" for n in range(20_000)]), "beside its pod template"),
    ],
    ids=["template", "depth", "else"],
)
def test_of_an_object_that_is_too_large_only_its_name_is_kept(
    manifest: dict[str, Any], why: str
) -> None:
    kept = trim(manifest)
    with pytest.raises(InvalidSpec, match=why):
        check_kept(kept)
    assert kept["metadata"]["uid"] == "u"
    assert kept["spec"] == {}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("orders", "spec"),
        ([1], "spec"),
        (7, "spec"),
        ({"targetRef": "orders"}, "spec.targetRef"),
        ({"targetRef": ["orders"]}, "spec.targetRef"),
        ({"targetRef": {"name": {"a": 1}}}, "spec.targetRef.name"),
        ({"targetRef": {"kind": ["Deployment"], "name": "a"}}, "spec.targetRef.kind"),
        ({"redis": "redis://redis"}, "spec.redis"),
        ({"redis": {"url": ["redis://redis"]}}, "spec.redis.url"),
        ({"redis": {"sentinel": "redis"}}, "spec.redis.sentinel"),
        ({"redis": {"sentinel": {"nodes": [{"host": "a"}]}}}, "spec.redis.sentinel.nodes"),
        ({"template": [1]}, "spec.template"),
        ({"recovery": [1]}, "spec.recovery"),
        ({"recovery": {"locks": "x"}}, "spec.recovery.locks"),
        ({"recovery": {"tuning": "x"}}, "spec.recovery.tuning"),
        ({"deadLetter": "x"}, "spec.deadLetter"),
        ({"stream": {"a": 1}}, "spec.stream"),
        ({"group": 7}, "spec.group"),
        ({"groups": 7}, "spec.groups"),
        ({"groups": [{"a": 1}]}, "spec.groups"),
        ({"groupRef": "orders"}, "spec.groupRef"),
    ],
)
def test_of_an_object_of_another_shape_only_its_name_is_kept(spec: Any, field: str) -> None:
    """Fields that are read of the resources of others, without parsing all of these."""
    kept = trim(manifest_of() | {"spec": spec})
    with pytest.raises(InvalidSpec, match=rf"another type in {field} than"):
        check_kept(kept)
    assert kept["spec"] == {}


def test_what_is_absent_or_null_is_no_other_shape() -> None:
    for spec in (None, {}, {"targetRef": None, "groups": None, "recovery": {"locks": None}}):
        kept = trim(manifest_of() | {"spec": spec})
        check_kept(kept)
        assert kept["spec"] == (spec or {})


def test_many_labels_and_annotations_are_not_kept() -> None:
    many = {f"l{number}": "" for number in range(20_000)} | {"pelops.dev/resource": "orders"}
    kept = trim(manifest_of(labels=many, annotations=many))
    check_kept(kept)
    assert kept["metadata"]["labels"] == {"pelops.dev/resource": "orders"}
    assert kept["metadata"]["annotations"] == {"pelops.dev/resource": "orders"}


def test_thousands_of_items_are_compared_in_no_time() -> None:
    """Each against each would be a hundred million comparisons."""
    wished = [{"name": f"A{number}", "value": "x"} for number in range(10_000)]
    assert is_applied(wished, [dict(one) for one in wished])
    assert not is_applied(wished, [dict(one) for one in reversed(wished)])
    assert is_applied(wished[:50], [dict(one) for one in reversed(wished[:50])])


# --- Events of objects that are too large to be kept reach kopf as small ones


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
