"""Dead letters in clusters of one cause each, and a plan of what to do with them.

Letters come as the data source reads a dead-letter stream with `duplicateFields=keep`: columns
`id`, `ms`, `seq` and `fields` (an array of name and value). There may be millions: they stay in
Spark, and only clusters with a few examples come to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Final

import pyarrow as pa

from pelops.domain.dead_letter import REDRIVE_MARKS
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LETTER_FIELDS
from pelops.domain.redrive import ACTIONS, PlanHeader, PlannedCluster, render_plan
from pelops.pipeline.engine.sql import Column, DataFrame, Row
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.triage.clusters import MOST_RETRIES, Cluster, LetterExample, ValueHead
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
    delivered_ms ended_ms fields redriven`: `fields` without what Pelops added, and `redriven` of a
    letter that was moved back before and came again.

    A stream of dead letters may hold entries of another hand: these have the reason `Unknown`, and
    are their own root. Names of fields may be text or binary.
    """
    # A letter of another hand may lack them.
    marked = F.size("fields") >= len(LETTER_FIELDS)
    for place, name in enumerate(LETTER_FIELDS):
        found = F.try_element_at("fields", F.lit(place - len(LETTER_FIELDS)))["name"]
        marked = marked & (found.cast("string") == F.lit(field_prefix + name))
    # A redrive has added its own before them: the entry came back at least once.
    redriven = F.size("fields") >= len(LETTER_FIELDS) + len(REDRIVE_MARKS)
    for place, name in enumerate(REDRIVE_MARKS):
        at = place - len(REDRIVE_MARKS) - len(LETTER_FIELDS)
        found = F.try_element_at("fields", F.lit(at))["name"]
        redriven = redriven & (found.cast("string") == F.lit(field_prefix + name))
    known = raw.withColumn("marked", F.coalesce(marked, F.lit(False)))
    known = known.withColumn("redriven", F.col("marked") & F.coalesce(redriven, F.lit(False)))
    added = F.when(F.col("marked"), len(LETTER_FIELDS)).otherwise(0)
    added += F.when(F.col("redriven"), len(REDRIVE_MARKS)).otherwise(0)
    kept = F.size("fields") - added
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
        "redriven",
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


EXAMPLES: Final = 3
FIELDS_SHOWN: Final = 12  # of an example
BYTES_SHOWN: Final = 256  # of a value of an example
MOST_CLUSTERS: Final = 1000  # that come to the driver
PLANNED_CLUSTERS: Final = 100  # that the plan's header explains


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """What the dead letters of a group died of."""

    letters: int
    clusters: tuple[Cluster, ...]  # the largest first, MOST_CLUSTERS at most
    signed: DataFrame  # every letter with its `cluster`: for the plan


def triage_dead_letters(raw: DataFrame, *, field_prefix: str = "_") -> Triage:
    """Cluster the dead letters of one group.

    The frame is read twice: give one of Parquet, or a cached one, rather than one of Redis.
    """
    signed = sign_dead_letters(parse_dead_letters(raw, field_prefix))
    grouped = _cluster(signed)
    largest = grouped.orderBy(F.desc("letters"), "cluster").limit(MOST_CLUSTERS)
    clusters = tuple(_read_cluster(row) for row in largest.collect())
    total = sum(one.letters for one in clusters)
    if len(clusters) == MOST_CLUSTERS:
        total = signed.count()
    return Triage(letters=total, clusters=clusters, signed=signed)


def plan_redrive(triage: Triage, header: PlanHeader) -> tuple[PlanHeader, DataFrame]:
    """The plan's header with its counts, and the letters as columns `ms seq root cluster action`.

    Letters of clusters that did not come to the driver are to be inspected.
    """
    actions = dict.fromkeys(ACTIONS, 0)
    for cluster in triage.clusters:
        actions[cluster.advice.action] += cluster.letters
    actions["inspect"] += triage.letters - sum(actions.values())
    filled = replace(
        header,
        letters=triage.letters,
        actions=actions,
        clusters=tuple(map(_planned_cluster, triage.clusters[:PLANNED_CLUSTERS])),
    )
    action = F.lit("inspect")
    for chosen in ("redrive", "discard"):
        mine = [c.signature.cluster for c in triage.clusters if c.advice.action == chosen]
        action = F.when(F.col("cluster").isin(mine), F.lit(chosen)).otherwise(action)
    columns = ("ms", "seq", "root", "cluster")
    return filled, triage.signed.select(*columns, action.alias("action"))


def plan_lines(header: PlanHeader, letters: DataFrame) -> DataFrame:
    """The plan as one partition of text in its order: what `parse_plan` reads."""
    (first,) = render_plan(header, ())
    entry_id = F.concat_ws("-", "ms", "seq").alias("id")
    line = F.to_json(F.struct(entry_id, "root", "cluster", "action")).alias("value")
    session = letters.sparkSession
    head = session.createDataFrame(
        [(-1, -1, first.rstrip("\n"))], "ms bigint, seq bigint, value string"
    )
    whole = head.unionByName(letters.select("ms", "seq", line))
    return whole.repartition(1).sortWithinPartitions("ms", "seq").select("value")


def start_header(stream: str, group: str, dead_letter: str, *, at: datetime) -> PlanHeader:
    """A header that has no counts yet."""
    return PlanHeader(stream=stream, group=group, dead_letter=dead_letter, at=at, letters=0)


def _planned_cluster(cluster: Cluster) -> PlannedCluster:
    return PlannedCluster(
        cluster=cluster.signature.cluster,
        letters=cluster.letters,
        action=cluster.advice.action,
        reason=cluster.advice.reason,
    )


def _cluster(signed: DataFrame) -> DataFrame:
    returned = signed.groupBy("root").agg(F.min(_place()).alias("first_of_root"))
    marked = signed.join(returned, "root").withColumn(
        "returned", (F.col("redriven") | (_place() > F.col("first_of_root"))).cast("long")
    )
    keys = [F.col(name) for name in ("cluster", "reason_key", "exception", "error_key", "shape")]
    return marked.groupBy(*keys).agg(
        F.count("*").alias("letters"),
        F.min("ended_ms").alias("first_seen_ms"),
        F.max("ended_ms").alias("last_seen_ms"),
        F.approx_count_distinct("consumer").alias("consumers"),
        F.sum("returned").alias("returned"),
        F.array(*map(_retries_at, range(MOST_RETRIES + 1))).alias("retries"),
        F.min_by(_example(), _place(), EXAMPLES).alias("examples"),
    )


def _retries_at(number: int) -> Column:
    charged = F.least(F.col("retries"), F.lit(MOST_RETRIES))
    return F.count_if(charged == F.lit(number))


def _place() -> Column:
    return F.struct("ms", "seq")


def _example() -> Column:
    shown = F.transform(
        F.slice("fields", 1, FIELDS_SHOWN),
        lambda pair: F.struct(
            F.substring(pair["name"], 1, BYTES_SHOWN).alias("name"),
            F.octet_length(pair["name"]).alias("name_size"),
            F.substring(pair["value"], 1, BYTES_SHOWN).alias("value"),
            F.octet_length(pair["value"]).alias("value_size"),
        ),
    )
    error = F.substring("error", 1, 4 * BYTES_SHOWN).alias("error")
    size = F.size("fields").alias("field_count")
    return F.struct("ms", "seq", "root", "consumer", error, size, shown.alias("fields"))


def _read_cluster(row: Row) -> Cluster:
    return Cluster(
        signature=Signature(
            reason=row["reason_key"],
            exception=row["exception"],
            error=row["error_key"],
            shape=row["shape"],
        ),
        letters=row["letters"],
        first_seen_ms=row["first_seen_ms"],
        last_seen_ms=row["last_seen_ms"],
        consumers=row["consumers"],
        retries=tuple(row["retries"]),
        returned=row["returned"],
        examples=tuple(_read_examples(row["examples"])),
    )


def _read_examples(rows: Sequence[Row]) -> Iterator[LetterExample]:
    for row in sorted(rows, key=lambda one: (one["ms"], one["seq"])):
        yield LetterExample(
            entry_id=EntryId(row["ms"], row["seq"]),
            root_id=parse_entry_id(row["root"]),
            consumer=row["consumer"],
            error=row["error"],
            fields=tuple(_read_pair(pair) for pair in row["fields"]),
            field_count=row["field_count"],
        )


def _read_pair(pair: Row) -> tuple[ValueHead, ValueHead]:
    return (
        ValueHead(head=bytes(pair["name"]), size=pair["name_size"]),
        ValueHead(head=bytes(pair["value"]), size=pair["value_size"]),
    )
