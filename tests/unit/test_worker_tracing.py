"""Trace context on its way from a producer's span to a worker's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from pelops.worker import Entry, tracing
from pelops.worker.handlers import Handler
from pelops.worker.producer import flatten
from pelops.worker.testing import MemoryGroup
from pelops.worker.tracing import read_context, traced

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def api() -> Iterator[Any]:
    """OpenTelemetry's API."""
    yield import_module("opentelemetry.trace")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without it."""
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(tracing, "find_spec", lambda name: None)
    tracing.load_tools.cache_clear()
    yield
    tracing.load_tools.cache_clear()


def _work(group: MemoryGroup, handle: Any) -> None:
    worker = group.worker()
    worker.handler(handle)
    group.run(worker)


@pytest.mark.usefixtures("absent")
def test_without_opentelemetry_nothing_is_carried_and_handlers_stay_as_they_are() -> None:
    async def handle(entry: Entry) -> None:
        """A handler."""

    handler = Handler(one=handle)
    assert read_context() == {}
    assert traced(handler) is handler


@pytest.mark.usefixtures("absent")
def test_entries_that_carry_a_context_are_handled_without_opentelemetry() -> None:
    group = MemoryGroup()
    group.add({"body": "[1]", "traceparent": PARENT, "tracestate": "a=b"})
    seen: list[Any] = []
    _work(group, lambda entry: seen.append((entry.json(), entry["traceparent"])))
    assert seen == [([1], PARENT.encode())]


def test_the_only_field_is_found_beside_the_context() -> None:
    group = MemoryGroup()
    group.add({"traceparent": PARENT, "body": "7"})
    group.add({"body": "8"})
    seen: list[Any] = []
    _work(group, lambda entry: seen.append(entry.json()))
    assert seen == [7, 8]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_span_goes_on_in_the_handler_of_its_entry(api: Any, is_async: bool) -> None:
    group = MemoryGroup()
    group.add({"n": "1", "traceparent": PARENT})
    group.add({"n": "2"})
    seen: dict[bytes, str] = {}

    def handle(entry: Entry) -> None:
        context = api.get_current_span().get_span_context()
        seen[entry["n"]] = f"{context.trace_id:032x}" if context.is_valid else ""

    async def handle_async(entry: Entry) -> None:
        handle(entry)

    _work(group, handle_async if is_async else handle)
    assert seen == {b"1": TRACE, b"2": ""}


def test_what_is_carried_on_is_the_span_of_the_handler(api: Any) -> None:
    group = MemoryGroup()
    group.add({"traceparent": PARENT, "tracestate": "a=b"})
    seen: list[dict[str, str]] = []
    _work(group, lambda entry: seen.append(read_context()))
    assert seen[0]["traceparent"].split("-")[1] == TRACE
    assert seen[0]["tracestate"] == "a=b"
    assert [part for part in flatten(seen[0]) if not isinstance(part, str)] == []
    assert read_context() == {}


@pytest.mark.parametrize("nonsense", ["", "x", "00-0-0-00", PARENT[:-1], "\udcff"])
def test_a_context_that_is_none_keeps_no_entry_from_being_handled(api: Any, nonsense: str) -> None:
    group = MemoryGroup()
    group.add([("n", "1"), ("traceparent", nonsense.encode("utf-8", "surrogateescape"))])
    seen: list[bool] = []
    _work(group, lambda entry: seen.append(api.get_current_span().get_span_context().is_valid))
    assert seen == [False]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keeps the spans that a worker ends."""
    sdk = import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    memory = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    tools = tracing.load_tools()
    assert tools is not None
    monkeypatch.setattr(tools, "tracer", provider.get_tracer("pelops.worker"))
    return exporter


def test_a_batch_is_linked_with_the_spans_of_its_entries(exporter: Any) -> None:
    group = MemoryGroup()
    group.add({"n": "0"})  # alone: the first read is of one entry
    group.add({"traceparent": PARENT})
    group.add({"n": "2"})

    class Handle:
        async def handle_batch(self, entries: list[Entry]) -> None:
            """A handler."""

    _work(group, Handle)
    (span,) = exporter.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]
    assert span.attributes["messaging.batch.message_count"] == 2


def test_a_span_of_a_failure_holds_no_payload(exporter: Any) -> None:
    group = MemoryGroup()
    group.add({"card": "4929 1234", "traceparent": PARENT})
    _work(group, lambda entry: int(entry["card"]))
    spans = exporter.get_finished_spans()
    assert spans
    assert "4929" not in "".join(span.to_json() for span in spans)
    assert {span.status.status_code.name for span in spans} == {"ERROR"}
    assert {span.attributes["error.type"] for span in spans} == {"ValueError"}
