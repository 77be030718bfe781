"""The command `triage`: the dead letters of every group, clustered, with a plan to redrive them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import report_path, slug
from pelops.pipeline.engine.spark_session import LazySession
from pelops.pipeline.engine.sql import DataFrame, SparkSession, is_on_driver, on_driver
from pelops.pipeline.name_check import check_dead_letters
from pelops.pipeline.report.model import DeadLetterCluster
from pelops.pipeline.run import find_targets, is_small_stream, open_run
from pelops.pipeline.settings import ArchivedPayload, AuditTarget, PipelineSettings
from pelops.pipeline.stages import PipelineRun
from pelops.pipeline.triage.clusters import Cluster
from pelops.pipeline.triage.redrive_plan import (
    Triage,
    plan_lines,
    plan_redrive,
    start_header,
    triage_dead_letters,
)

_LETTERS: Final = (
    "id STRING, ms BIGINT, seq BIGINT, fields ARRAY<STRUCT<name: BINARY, value: BINARY>>"
)


def run_triage(session: SparkSession | LazySession, settings: PipelineSettings) -> int:
    """Triage every group, and print what was found; the exit code is 0 whatever that is.

    Raises WrongSettings for a group that is not there, and has left no dead letters.
    """
    run = open_run(session, settings)
    try:
        check_dead_letters(run)
        for targets in find_targets(run).values():
            for target in targets:
                triage, plan = triage_target(run, target)
                print(render_triage(target, triage, plan))
    finally:
        run.watch.close()
    return 0


def triage_target(run: PipelineRun, target: AuditTarget) -> tuple[Triage, str]:
    """Cluster the dead letters of a group as they are now; answers the path of its plan as well.

    Beside the plan lie the clusters, as `clusters.json`. Payloads are shown in neither, and in no
    example, unless they may be archived in full.
    """
    keys = derive_keys(target.stream, target.group, dead_letter=target.dead_letter)
    with on_driver(is_small_stream(run, keys.dead_letter)):
        return _triage(run, target, keys.dead_letter)


def _triage(run: PipelineRun, target: AuditTarget, dead_letter: str) -> tuple[Triage, str]:
    letters = _keep(_read(run, dead_letter))
    try:
        triage = triage_dead_letters(letters, field_prefix=target.field_prefix)
        if run.settings.payload is not ArchivedPayload.FULL:
            triage = replace(triage, clusters=tuple(map(_without_payload, triage.clusters)))
        base = f"{report_path(run.settings.archive, target.stream)}/group={slug(target.group)}"
        header = start_header(target.stream, target.group, dead_letter, at=datetime.now(UTC))
        lines = plan_lines(*plan_redrive(triage, header))
        run.storage.write_lines(lines, f"{base}/redrive.jsonl")
        content = {"version": 1, "stream": target.stream, "group": target.group}
        reported = {
            **content,
            "letters": triage.letters,
            "clusters": [
                DeadLetterCluster.model_validate(one).model_dump() for one in triage.clusters
            ],
        }
        run.storage.write_json(f"{base}/clusters.json", reported)
    finally:
        letters.unpersist()
    return triage, f"{base}/redrive.jsonl"


def render_triage(target: AuditTarget, triage: Triage, plan: str) -> str:
    """What was found, for a terminal."""
    rows = [f"{target.stream} / {target.group}: {triage.letters} dead letters"]
    for one in triage.clusters[:20]:
        reported = one.signature.error or one.signature.reason
        rows.append(f"  {one.letters:>10}  {one.advice.action:<8} {ascii(reported[:80])[1:-1]}")
    return "\n".join([*rows, f"  plan: {plan}"])


def _read(run: PipelineRun, stream: str) -> DataFrame:
    given = {
        "stream": stream,
        "duplicateFields": "keep",
        "failOnDataLoss": "false",
        "missingStream": "empty",
        **run.watch.place.options,
    }
    return run.session.read.format("redis_streams").schema(_LETTERS).options(**given).load()


def _keep(letters: DataFrame) -> DataFrame:
    """On disk, for the second time that they are read: there may be millions."""
    if is_on_driver():
        return letters
    from pyspark import StorageLevel

    return letters.persist(StorageLevel.DISK_ONLY)


def _without_payload(cluster: Cluster) -> Cluster:
    examples = tuple(replace(one, fields=()) for one in cluster.examples)
    return replace(cluster, examples=examples)
