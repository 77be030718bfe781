"""The evidence of one window as a stage of its own: a row for each entry that the files name.

    evidence/group=<group>/*.parquet    ms, seq, proof, act, fate, covered, consumer, ...

`proof` and `act` are as `policy.classification` takes them: the ledger's own word comes first, and
`act` is that of a ledger whose record is gone by now. The driver reads the files, so they lie where
it runs. To be read after the snapshot: what happens meanwhile only makes later facts known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.engine.sql import DataFrame, at_or_before
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.evidence.entry_histories import ENDING_ACTS, Fate, Removal, name_of
from pelops.pipeline.evidence.file_evidence import EvidenceLocation, FileEvidence, read_evidence
from pelops.pipeline.stages import Content, WindowWork, run_stage, write_sorted

STAGE: Final = "evidence"
_IDS: Final = ("ms", "seq")
_BEFORE_GROUP: Final = name_of(Fate.BEFORE_GROUP)
_STREAM_DELETED: Final = name_of(Removal.STREAM_DELETED)


def archive_evidence(work: WindowWork, aof_path: str, *, after: EntryId = EntryId.MAX) -> Content:
    """Archive what the files say of the window's entries, for each of its groups.

    `after`: begin there, when it lies before the window, for entries of earlier windows that are
    still open. Answers `groups`: of each the rows, and how many of these the files saw added.
    Raises EvidenceUnusable.
    """
    plan = work.plan
    groups = [derive_keys(plan.stream, target.group) for target in plan.targets]
    source = EvidenceLocation(
        directory=Path(aof_path),
        database=work.run.settings.place.endpoint.db,
        after=min(plan.window.from_id, after),
    )

    def make(directory: str) -> Content:
        evidence = read_evidence(source, groups)
        with TemporaryDirectory() as temporary:
            content: Content = {"groups": {}, "until_ms": evidence.clock_ms}
            for place, keys in enumerate(groups):
                local = Path(temporary, f"{place}.parquet")
                path = f"{directory}/group={slug(keys.group)}"
                content["groups"][keys.group] = _write(work, evidence, keys.group, local, path)
            return content

    return run_stage(work, STAGE, make)


def join_proofs(work: WindowWork, group: str, found: DataFrame) -> DataFrame:
    """Rows, by their IDs, with `proof` and `covered`, and with acts that the ledger lacks by now.

    Without files nothing is proven.
    """
    if work.run.settings.aof_path is None:
        return found.withColumns({"proof": F.lit(None).cast("string"), "covered": F.lit(False)})
    return (
        found.join(read_proofs(work, group), list(_IDS), "left")
        .withColumn("covered", F.coalesce("covered", F.lit(False)))
        .withColumn("act", F.coalesce("act", "told_act"))
        .drop("told_act")
    )


def read_covered(work: WindowWork, group: str, after: EntryId) -> DataFrame:
    """The IDs of entries after one that the files saw added, or tell the end of.

    Also of what no archive has; without those from before the group, and those of streams of the
    same name that were deleted before the window began.
    """
    is_reported = F.col("covered") | F.col("proof").isNotNull() | F.col("act").isNotNull()
    rows = work.read(f"{STAGE}/group={slug(group)}").where(is_reported)
    was_deleted = F.coalesce(F.col("removal") == _STREAM_DELETED, F.lit(False))
    is_other = was_deleted & at_or_before(work.plan.window.from_id)
    is_ours = (F.col("fate") != _BEFORE_GROUP) & ~is_other & ~at_or_before(after)
    return rows.where(is_ours).select(*_IDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What the files saw of a group's first creation."""

    position: EntryId | None = None  # None: they did not see it
    gone_before: int = 0  # entries below the window that were gone by then: never the group's


def read_creation(content: Content | None, group: str) -> Creation:
    """Of a group, from what `archive_evidence` answered; nothing without files."""
    reported = {} if content is None else content["groups"][group]
    position = reported.get("created_at")
    return Creation(
        position=None if position is None else parse_entry_id(position),
        gone_before=reported.get("gone_before", 0),
    )


def read_proofs(work: WindowWork, group: str) -> DataFrame:
    """What is proven of each entry that the files name."""
    rows = work.read(f"{STAGE}/group={slug(group)}")
    return rows.select(*_IDS, "proof", "covered", F.col("act").alias("told_act"))


def _write(work: WindowWork, evidence: FileEvidence, group: str, local: Path, path: str) -> Content:
    evidence.write(local, work.plan.stream, group)
    is_in_window = at_or_before(work.plan.window.to_id)
    frame = work.session.read.parquet(local.as_uri()).where(is_in_window)
    endings = F.col("act").isin(*(kind.value for kind in ENDING_ACTS.values()))
    reported = frame.withColumn("act", F.when(endings, F.col("act")))
    rows = write_sorted(work, reported, path, *_IDS)
    covered = work.session.read.parquet(path).where("covered")
    created = evidence.created_at(work.plan.stream, group)
    content: Content = {"rows": rows, "covered": covered.count()}
    if created is not None:
        content["created_at"] = str(created)
    if work.plan.is_first:
        is_below = at_or_before(work.plan.window.from_id) & (F.col("removal") != _STREAM_DELETED)
        gone = covered.where(is_below & (F.col("fate") == _BEFORE_GROUP))
        content["gone_before"] = gone.count()
    return content
