"""Dead letters for tests of triage, in the columns that the data source gives."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id string, ms bigint, seq bigint, fields array<struct<name: string, value: binary>>"
FIRST_MS = 1_760_000_000_000

Pairs = list[tuple[str, bytes]]
Letter = tuple[str, int, int, Pairs]


def dead_letter(number: int, payload: Pairs, *, prefix: str = "_", **marks: str | bytes) -> Letter:
    """A letter as the operator writes it; `marks` are those that the test is about."""
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
    own = [(prefix + name, _bytes(value)) for name, value in known.items()]
    return (f"{ms}-0", ms, 0, [*payload, *own])


def foreign_letter(number: int, payload: Pairs) -> Letter:
    """What somebody else put into the stream of dead letters."""
    ms = FIRST_MS + 1000 * number
    return (f"{ms}-0", ms, 0, payload)


def frame(spark: SparkSession, letters: Sequence[Letter]) -> DataFrame:
    return spark.createDataFrame([tuple(letter) for letter in letters], SCHEMA)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
