"""W3C trace context in the fields of entries, if OpenTelemetry's API is installed.

A worker's span is a child of the producer's. `traceparent` and `tracestate` are the last fields of
an entry and have their names from HTTP, so that other programs can use them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from pelops.worker.entry import TRACE_FIELDS, Entry
from pelops.worker.handlers import HandleMany, HandleOne, Handler

_SYSTEM: Final = "redis"


def read_context() -> dict[str, str]:
    """Fields with the current span's context; empty without OpenTelemetry or a span."""
    carrier: dict[str, str] = {}
    tools = load_tools()
    if tools is not None:
        tools.propagator.inject(carrier)
    return carrier


def traced(handler: Handler) -> Handler:
    """Run a handler in a span: a child of the producer's, or for a batch with links to them.

    Returns the handler itself without OpenTelemetry. If only its API is installed, entries without
    a trace context add no cost.
    """
    tools = load_tools()
    if tools is None:
        return handler
    if handler.one is not None:
        return Handler(one=_trace_one(tools, handler.one))
    assert handler.many is not None
    return Handler(many=_trace_many(tools, handler.many))


class _Tools:
    """The parts of OpenTelemetry's API that are used."""

    def __init__(self) -> None:
        module = "opentelemetry.trace.propagation.tracecontext"
        self.propagator: Any = import_module(module).TraceContextTextMapPropagator()
        self.trace: Any = import_module("opentelemetry.trace")
        self.no_context: Any = import_module("opentelemetry.context").Context()
        self.tracer: Any = self.trace.get_tracer("pelops.worker")

    @property
    def records(self) -> bool:
        """Whether a tracer provider is set up, beyond the API's default."""
        return not isinstance(self.trace.get_tracer_provider(), self.trace.ProxyTracerProvider)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any], **more: Any) -> Iterator[None]:
        """A span that records only the type of an exception: its message may quote the payload."""
        with self.tracer.start_as_current_span(
            name,
            kind=self.trace.SpanKind.CONSUMER,
            attributes={"messaging.system": _SYSTEM, **attributes},
            record_exception=False,
            set_status_on_exception=False,
            **more,
        ) as span:
            try:
                yield
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(self.trace.StatusCode.ERROR)
                raise

    def links(self, entries: Iterable[Entry]) -> list[Any]:
        """Links to the spans in which these entries were added."""
        trace = self.trace
        carriers = filter(None, map(find_carrier, entries))
        contexts = (
            trace.get_current_span(self.propagator.extract(carrier)).get_span_context()
            for carrier in carriers
        )
        return [trace.Link(context) for context in contexts if context.is_valid]


@cache
def load_tools() -> _Tools | None:
    """What OpenTelemetry offers for traces; None if it is not installed."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        return None
    return _Tools()


def find_carrier(entry: Entry) -> dict[str, str] | None:
    """The trace context of an entry, or None. Of a repeated field, the last value."""
    if not entry.carries_trace:
        return None
    return {
        name.decode(): value.decode("latin-1")
        for name, value in entry.pairs
        if name in TRACE_FIELDS
    }


def _trace_one(tools: _Tools, handle: HandleOne) -> HandleOne:
    records = tools.records

    async def in_span(entry: Entry) -> Any:
        about = {
            "messaging.destination.name": entry.stream,
            "messaging.message.id": entry.id,
            "pelops.attempt": entry.attempt,
        }
        # An empty context: a trace in which the worker itself runs is not the entry's.
        context = tools.propagator.extract(find_carrier(entry) or {}, context=tools.no_context)
        with tools.span(f"process {entry.stream}", about, context=context):
            return await handle(entry)

    def traced_one(entry: Entry) -> Awaitable[Any]:
        # No coroutine around another: it would cost as much as a quick handler.
        return in_span(entry) if records or entry.carries_trace else handle(entry)

    return traced_one


def _trace_many(tools: _Tools, handle: HandleMany) -> HandleMany:
    records = tools.records

    async def traced_many(entries: list[Entry]) -> Any:
        links = tools.links(entries)
        if not links and not records:
            return await handle(entries)
        about = {
            "messaging.destination.name": entries[0].stream,
            "messaging.batch.message_count": len(entries),
        }
        name = f"process {entries[0].stream}"
        with tools.span(name, about, links=links, context=tools.no_context):
            return await handle(entries)

    return traced_many
