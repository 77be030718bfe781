"""Dead letters in clusters of one cause each, and a plan of what to do with them.

Letters come as the data source reads a dead-letter stream with `duplicateFields=keep`: columns
`id`, `ms`, `seq` and `fields` (an array of name and value). There may be millions: they stay in
Spark, and only clusters with a few examples come to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.redrive import ACTIONS, PlanHeader, PlannedCluster, render_plan
from pelops.pipeline.engine.functions import Column, DataFrame, Row
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.pipeline.triage.clusters import MOST_RETRIES, Cluster, LetterExample, ValueHead
from pelops.pipeline.triage.dead_letters import parse_dead_letters, sign_dead_letters
from pelops.policy.redrive.triage import Signature

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
        "returned", (_place() > F.col("first_of_root")).cast("long")
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
