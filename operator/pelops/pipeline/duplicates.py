"""Entries that came more than once: by root, by payload, by the user's business key."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pelops.pipeline.settings import Payload
from pelops.pipeline.work import Content, Work, run_stage, write_sorted

_EXAMPLES: Final = 5  # IDs that are told of each


def find_duplicates(work: Work) -> Content:
    """Find the window's duplicates. Answers, for each way, how many keys and entries too many.

    A copy that a recovery made is none: two copies of one root with one count of failures are.
    """

    def make(directory: str) -> Content:
        entries = work.read("entries")
        added = entries.where(F.col("root_ms").isNull())
        found = {
            "root": _find(
                work,
                entries.where(F.col("root_ms").isNotNull()),
                F.concat_ws("-", "root_ms", "root_seq", "retry_count"),
                f"{directory}/root",
            )
        }
        if work.plan.payload is not Payload.NONE:
            found["payload"] = _find(work, added, F.col("hash"), f"{directory}/payload")
        if work.plan.business_key is not None:
            found["key"] = _find(work, added, F.col("key"), f"{directory}/key")
        return {"found": found}

    return run_stage(work, "duplicates", make)


def _find(work: Work, entries: DataFrame, key: Any, path: str) -> Content:
    told = entries.select(key.alias("value"), "ms", "seq").where(F.col("value").isNotNull())
    counted = told.groupBy("value").count().where(F.col("count") > 1)
    # Only what is there twice is looked at again, to name some of it.
    ids = F.sort_array(F.collect_list(F.struct("ms", "seq")))
    named = (
        told.join(counted, "value")
        .groupBy("value", "count")
        .agg(F.slice(ids, 1, _EXAMPLES).alias("ids"))
    )
    keys = write_sorted(work, named, path, "value")
    more = work.session.read.parquet(path).agg(F.sum(F.col("count") - 1)).first()
    return {"keys": keys, "entries": int((more[0] if more else 0) or 0)}
