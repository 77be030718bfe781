"""Dead letters as columns: what Pelops added to an entry told apart from what was the user's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pelops.domain.dead_letters import LETTER_FIELDS
from pelops.pipeline.engine.functions import Column, DataFrame
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.policy.redrive.payload_shape import Fields, describe_shape
from pelops.policy.redrive.triage import Signature, build_signature

UNKNOWN: Final = "Unknown"  # reason of a letter that has no marks
_ID: Final = r"^[0-9]{1,19}-[0-9]{1,19}$"  # twenty digits can be more than 64 bits
_NAMES: Final = ("cluster", "reason_key", "exception", "error_key", "shape")
_SIGNATURE: Final = ", ".join(f"{name} STRING" for name in _NAMES)
_FIELDS: Final = "array<struct<name: binary, value: binary>>"
_REMEMBERED: Final = 4096  # errors; most letters of a cluster tell the same


def parse_dead_letters(raw: DataFrame, field_prefix: str = "_") -> DataFrame:
    """Columns of each letter: `id ms seq root stream group consumer deliveries retries reason error
    delivered_ms ended_ms fields`, the last one without what Pelops added.

    A stream of dead letters may hold entries of another hand: these have the reason `Unknown`, and
    are their own root. Names of fields may be text or binary.
    """
    # A letter of another hand may lack them.
    marked = F.size("fields") >= len(LETTER_FIELDS)
    for place, name in enumerate(LETTER_FIELDS):
        found = F.try_element_at("fields", F.lit(place - len(LETTER_FIELDS)))["name"]
        marked = marked & (found.cast("string") == F.lit(field_prefix + name))
    known = raw.withColumn("marked", F.coalesce(marked, F.lit(False)))
    kept = F.size("fields") - F.when(F.col("marked"), len(LETTER_FIELDS)).otherwise(0)
    return known.select(
        "id",
        "ms",
        "seq",
        F.when(_mark("original_id").rlike(_ID), _mark("original_id"))
        .otherwise(F.col("id"))
        .alias("root"),
        *(_text(name).alias(name) for name in ("stream", "group", "consumer")),
        _number("delivery_count").alias("deliveries"),
        _number("retry_count").alias("retries"),
        F.coalesce(_mark("reason"), F.lit(UNKNOWN)).alias("reason"),
        _text("error").alias("error"),
        _number("delivered_ms").alias("delivered_ms"),
        # Without it: when it was written, by its own ID.
        F.when(_number("dead_lettered_ms") > 0, _number("dead_lettered_ms"))
        .otherwise(F.col("ms"))
        .alias("ended_ms"),
        F.slice("fields", F.lit(1), kept).cast(_FIELDS).alias("fields"),
    )


def sign_dead_letters(letters: DataFrame) -> DataFrame:
    """The letters, each with its `cluster` and what the letters of that have in common."""
    # The stubs do not know it, and another way into Arrow needs pandas.
    sign = F.arrow_udf(_sign_batch, _SIGNATURE)  # type: ignore[attr-defined]
    signed = letters.withColumn("signature", sign("reason", "error", "fields"))
    return signed.select(*letters.columns, "signature.*")


def _mark(name: str) -> Column:
    """The value of one mark as text; null for a letter without marks."""
    place = LETTER_FIELDS.index(name) - len(LETTER_FIELDS)
    value = F.try_element_at("fields", F.lit(place))["value"]
    # Bytes that are no UTF-8 become U+FFFD each.
    return F.when(F.col("marked"), F.make_valid_utf8(value.cast("string")))


def _text(name: str) -> Column:
    return F.coalesce(_mark(name), F.lit(""))


def _number(name: str) -> Column:
    return F.coalesce(_mark(name).try_cast("long"), F.lit(0))


def _sign_batch(reasons: pa.Array, errors: pa.Array, fields: pa.Array) -> pa.Array:
    columns: list[list[str]] = [[] for _ in _NAMES]
    for reason, error, pairs in zip(reasons, errors, _pairs(fields), strict=True):
        for column, text in zip(
            columns, _signature(reason.as_py(), error.as_py(), describe_shape(pairs)), strict=True
        ):
            column.append(text)
    return pa.StructArray.from_arrays(
        [pa.array(column, pa.string()) for column in columns], names=list(_NAMES)
    )


def _pairs(fields: pa.Array) -> Iterator[Fields]:
    for pairs in fields.to_pylist():
        yield [(pair["name"], pair["value"]) for pair in pairs]


@lru_cache(maxsize=_REMEMBERED)
def _signature(reason: str, error: str, shape: str) -> tuple[str, ...]:
    found: Signature = build_signature(reason=reason, error=error, shape=shape)
    return (found.cluster, found.reason, found.exception, found.error, found.shape)
