"""One entry, as a handler receives it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

from pelops.domain.records.dead_letter import read_redrive_marks
from pelops.domain.records.ledger import bound_deliveries
from pelops.worker.outcomes import Undecodable
from pelops.worker.server.adapter import DeliverySource, RawEntry

T = TypeVar("T")
# The maximum of `spec.recovery.maxRetries`, plus one. A larger count, which only a producer can
# write, has no further effect.
MOST_RETRIES: Final = 1001
TRACE_FIELDS: Final = (b"traceparent", b"tracestate")  # of W3C trace context


class Terms:
    """Settings that all entries of one worker share."""

    __slots__ = ("clock", "idle_s", "prefix")

    def __init__(self, clock: Callable[[], float], idle_s: float, prefix: bytes = b"_") -> None:
        self.clock = clock
        self.idle_s = idle_s  # the processing timeout
        self.prefix = prefix  # of the fields that Pelops adds


class Arrival:
    """Data that entries of one delivery share."""

    __slots__ = ("key", "source", "stamp_s", "terms")

    def __init__(self, key: bytes, source: DeliverySource, stamp_s: float, terms: Terms) -> None:
        self.key = key
        self.source = source
        self.stamp_s = stamp_s  # time of the request, the earliest start of their idle time
        self.terms = terms


class Entry:
    """One entry of the stream.

    Fields and values are bytes in `fields`, `pairs` and `entry[name]`. `text`, `json`, `decode` and
    `entry[name]` raise Undecodable, which moves an entry with other content to the dead letters.
    """

    # Class attributes, because most entries keep these defaults.
    failures: int = 0  # failed attempts in this worker
    started_s: float = 0.0
    seconds: float = 0.0  # duration of its handler
    cancelled_for: str = ""
    is_disowned: bool = False
    has_finished: bool = False
    runs_isolated: bool = False
    was_put_back: bool = False  # its start was deferred once to check its owner
    batch: Sequence[Entry] = ()  # its batch, while the failure is settled
    order: Hashable | None = None  # entries with equal ones run one after another

    def __init__(self, arrival: Arrival, raw: RawEntry) -> None:
        self._arrival = arrival
        self._raw = raw
        self.key = arrival.key
        self.raw_id: bytes = raw[0]
        self.refreshed_s = arrival.stamp_s

    def __repr__(self) -> str:
        return f"<Entry {self.id} of {self.stream}>"  # never the payload

    @property
    def id(self) -> str:
        """The entry's ID, unique within `stream`."""
        return self.raw_id.decode()

    @property
    def stream(self) -> str:
        """The stream it came from: the group's own, or its retry stream."""
        return self._arrival.key.decode("utf-8", "replace")

    @property
    def size(self) -> int:
        """Bytes of its fields and values."""
        return sum(map(len, self._raw[1]))

    @property
    def idle_s(self) -> float:
        """Seconds that it was pending without a heartbeat before this delivery; 0 if new."""
        return max(int(self._raw[2]), 0) / 1000

    @property
    def deliveries(self) -> int:
        """Number of earlier deliveries, including reads of a consumer's history; 0 if new."""
        return bound_deliveries(int(self._raw[3]))

    @property
    def is_reclaimed(self) -> bool:
        """Whether it was delivered before, to any process."""
        return self.deliveries > 0 or self._arrival.source is not DeliverySource.NEW

    @property
    def source(self) -> DeliverySource:
        """How it was delivered: new, claimed, or from the consumer's history."""
        return self._arrival.source

    @cached_property
    def retry_count(self) -> int:
        """Number of failed attempts before this delivery, as its last two fields record it."""
        return read_retry_count(self.raw_id, self._raw[1], self._arrival.terms.prefix)

    @property
    def attempt(self) -> int:
        """The number of this attempt; the first is 1."""
        return self.retry_count + self.failures + 1

    @cached_property
    def original_id(self) -> str:
        """ID that the producer was given. Copies keep it: use it as the key for idempotency."""
        return self._raw[1][-3].decode() if self._has_attempt_pairs else self.id

    @property
    def _has_attempt_pairs(self) -> bool:
        return has_attempt_pairs(self.raw_id, self._raw[1], self._arrival.terms.prefix)

    @property
    def age_s(self) -> float:
        """Seconds since a producer added it, by this machine's clock."""
        return max(time.time() - int(self.original_id.partition("-")[0]) / 1000, 0.0)

    @property
    def remaining(self) -> float:
        """Seconds until it counts as stuck without a heartbeat; negative: it may already."""
        terms = self._arrival.terms
        return terms.idle_s - (terms.clock() - self.refreshed_s)

    @property
    def carries_trace(self) -> bool:
        """Whether its fields hold a producer's trace context."""
        return TRACE_FIELDS[0] in self._raw[1]

    @cached_property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Fields and values in order, repeated names included, without the fields of Pelops."""
        own = self._raw[1]
        if self._has_attempt_pairs:
            own = own[:-4]
            is_redriven = bool(read_redrive_marks(own, self._arrival.terms.prefix)[0])
            own = own[:-4] if is_redriven else own
        return list(zip(own[::2], own[1::2], strict=True))

    @cached_property
    def fields(self) -> Mapping[bytes, bytes]:
        """Values by field; the last value of a repeated field."""
        return dict(self.pairs)

    def __getitem__(self, field: str | bytes) -> bytes:
        name = field.encode() if isinstance(field, str) else field
        try:
            return self.fields[name]
        except KeyError:
            raise Undecodable(f"field {name.decode('utf-8', 'replace')!r} is missing") from None

    @cached_property
    def text(self) -> Mapping[str, str]:
        """Fields and values as text."""
        try:
            return {name.decode(): value.decode() for name, value in self.pairs}
        except UnicodeDecodeError as error:
            raise Undecodable(f"not valid UTF-8: {error.reason}") from None

    def json(self, field: str | None = None) -> Any:
        """Parse the value of `field`, or of the only field, as JSON. Raises Undecodable."""
        try:
            return json.loads(self._value(field))
        except (ValueError, RecursionError) as error:
            raise Undecodable(f"not valid JSON: {type(error).__name__}") from None

    def decode(self, model: Callable[..., T], field: str | None = None) -> T:
        """Return what `model` makes of the entry. Raises Undecodable when `model` raises.

        A pydantic model validates the JSON of `field`, or all fields as text without `field`. Any
        other callable receives the bytes of `field`, or all fields as text.
        """
        try:
            return self._build(model, field)
        except Undecodable:
            raise
        except Exception as error:
            # The message may hold the payload, so at most fields and types are reported.
            problem = report_without_input(error) or type(error).__name__
            raise Undecodable(f"{getattr(model, '__name__', model)}: {problem}") from None

    def _build(self, model: Callable[..., T], field: str | None) -> T:
        if hasattr(model, "model_validate_json"):
            built: T = (
                model.model_validate(dict(self.text))  # type: ignore[attr-defined]
                if field is None
                else model.model_validate_json(self[field])
            )
            return built
        return model(self.text if field is None else self[field])

    def _value(self, field: str | None) -> bytes:
        if field is not None:
            return self[field]
        pairs = self.pairs
        if self.carries_trace:
            pairs = [pair for pair in pairs if pair[0] not in TRACE_FIELDS]
        if len(pairs) != 1:
            raise Undecodable(f"the entry has {len(pairs)} fields: name the field to read")
        return pairs[0][1]


def has_attempt_pairs(entry_id: bytes, flat: list[bytes], prefix: bytes) -> bool:
    """Whether the last two pairs are those of Pelops, which have a fixed place and order.

    A copy has a larger ID than its original. Pairs whose `original_id` is not smaller than the
    entry's own ID come from a producer, and are fields like any other.
    """
    return (
        len(flat) >= 4
        and flat[-2] == prefix + b"retry_count"
        and flat[-4] == prefix + b"original_id"
        and flat[-1].isdigit()
        and len(flat[-1]) <= 6
        and _comes_before(flat[-3], entry_id)
    )


def read_retry_count(entry_id: bytes, flat: list[bytes], prefix: bytes) -> int:
    """Number of failed attempts, at most MOST_RETRIES; 0 when the entry records none."""
    if not has_attempt_pairs(entry_id, flat, prefix):
        return 0
    return min(int(flat[-1]), MOST_RETRIES)


def _comes_before(first: bytes, second: bytes) -> bool:
    """Whether both are entry IDs, and the first is the smaller one."""
    halves = [*first.split(b"-"), *second.split(b"-")]
    if len(halves) != 4 or not all(half.isdigit() and len(half) <= 20 for half in halves):
        return False
    ms, seq, other_ms, other_seq = map(int, halves)
    return (ms, seq) < (other_ms, other_seq)


def report_without_input(error: BaseException) -> str | None:
    """A validation error (pydantic) without its input; None for any other error."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return None
    try:
        details = errors(include_input=False, include_url=False, include_context=False)
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['type']}" for one in details)
    except Exception:
        return None
