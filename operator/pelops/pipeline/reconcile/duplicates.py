"""Entries that came more than once: by root, by payload, by the user's business key."""

from __future__ import annotations

from typing import Any

from pelops.pipeline.engine.sql import DataFrame, small
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.settings import ArchivedPayload
from pelops.pipeline.stages import (
    HEAVY,
    Content,
    WindowWork,
    remove_part,
    run_stage,
    write_part,
    write_sorted,
)


def find_duplicates(work: WindowWork) -> Content:
    """Find the window's duplicates. Answers, for each way, how many keys and entries too many.

    A copy that a recovery or a redrive made is none: two copies of one root with the same count of
    failures and of redrives are.
    """

    def make(directory: str) -> Content:
        entries = work.read("entries")
        added = entries.where(F.col("root_ms").isNull())
        found = {
            "root": _find(
                work,
                entries.where(F.col("root_ms").isNotNull()),
                F.concat_ws("-", "root_ms", "root_seq", "retry_count", "returned"),
                f"{directory}/root",
            )
        }
        if work.plan.payload is not ArchivedPayload.NONE:
            found["payload"] = _find(work, added, F.col("hash"), f"{directory}/payload")
        if work.plan.business_key is not None:
            found["key"] = _find(work, added, F.col("key"), f"{directory}/key")
        return {"found": found}

    return run_stage(work, "duplicates", make)


def _find(work: WindowWork, entries: DataFrame, key: Any, path: str) -> Content:
    reported = entries.select(key.alias("value"), "ms", "seq").where(F.col("value").isNotNull())
    counted = reported.groupBy("value").count().where(F.col("count") > 1)
    is_heavy = work.plan.produced > HEAVY
    size = write_part(work, counted, f"{path}.counted", is_heavy=is_heavy)
    if not size:
        remove_part(work, f"{path}.counted")
        return {"keys": 0, "entries": 0}
    # Only what is there twice is looked at again, to name the first and the last of it.
    twice = small(work.load(f"{path}.counted"), size)
    entry = F.struct("ms", "seq")
    named = reported.join(twice, "value").groupBy("value", "count")
    ends = named.agg(F.array(F.min(entry), F.max(entry)).alias("ids"))
    keys = write_sorted(work, ends, path, "value", is_heavy=is_heavy)
    remove_part(work, f"{path}.counted")
    more = work.load(path).agg(F.sum(F.col("count") - 1)).first()
    return {"keys": keys, "entries": int((more[0] if more else 0) or 0)}
