"""Dead letters for tests of triage."""

from __future__ import annotations

from pelops.domain.entry_id import EntryId
from pelops.pipeline.triage.redrive_plan import TriagedLetter, parse_dead_letter

FIRST_MS = 1_760_000_000_000

Pairs = list[tuple[str, bytes]]


def dead_letter_fields(
    number: int, payload: Pairs, *, prefix: str = "_", **marks: str | bytes
) -> list[bytes]:
    """Names and values of a dead letter of the operator; `marks`: what the test is about."""
    ms = FIRST_MS + 1000 * number
    known: dict[str, str | bytes] = {
        "original_id": f"{FIRST_MS - 5000}-{number}",
        "stream": "orders",
        "group": "mail",
        "consumer": f"web-{number % 2}",
        "delivery_count": "5",
        "retry_count": "3",
        "reason": "HandlerFailed",
        "error": "ValueError: no",
        "delivered_ms": str(ms - 10),
        "dead_lettered_ms": str(ms),
    }
    known.update(marks)
    return _flat([*payload, *((prefix + name, _bytes(value)) for name, value in known.items())])


def dead_letter(
    number: int, payload: Pairs, *, prefix: str = "_", **marks: str | bytes
) -> TriagedLetter:
    """A dead letter as the operator writes it, parsed."""
    flat = dead_letter_fields(number, payload, prefix=prefix, **marks)
    return parse_dead_letter(EntryId(FIRST_MS + 1000 * number), flat, prefix)


def foreign_letter(number: int, payload: Pairs) -> TriagedLetter:
    """An entry of another producer in the dead-letter stream."""
    return parse_dead_letter(EntryId(FIRST_MS + 1000 * number), _flat(payload))


def _flat(pairs: Pairs) -> list[bytes]:
    return [part for name, value in pairs for part in (name.encode(), value)]


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
