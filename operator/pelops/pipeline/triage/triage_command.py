"""The command `triage`: the dead letters of every group, clustered, with a plan to redrive them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.context import PipelineRun
from pelops.pipeline.files import Files
from pelops.pipeline.report.model import DeadLetterCluster
from pelops.pipeline.report.places import group_path
from pelops.pipeline.settings import ArchivedPayload, AuditTarget
from pelops.pipeline.triage.clusters import Cluster
from pelops.pipeline.triage.redrive_plan import (
    Triage,
    parse_dead_letter,
    plan_redrive,
    start_header,
    triage_dead_letters,
)


def run_triage(run: PipelineRun, found: Mapping[str, Sequence[AuditTarget]]) -> None:
    """Triage every group, and print the clusters."""
    for targets in found.values():
        for target in targets:
            triage, plan = triage_target(run, target)
            print(render_triage(target, triage, plan))


def triage_target(run: PipelineRun, target: AuditTarget) -> tuple[Triage, str]:
    """Cluster the present dead letters of a group; return the path of its plan as well.

    The clusters are written beside the plan, as `clusters.json`. Neither file and no example
    contains payloads, unless they are archived in full.
    """
    dead_letter = derive_keys(
        target.stream, target.group, dead_letter=target.dead_letter
    ).dead_letter
    last = run.watch.stream(dead_letter).last_generated
    triage = triage_dead_letters(
        parse_dead_letter(entry_id, flat, target.field_prefix)
        for entry_id, flat in run.watch.entries(dead_letter, EntryId.MIN, last)
    )
    if run.settings.payload is not ArchivedPayload.FULL:
        triage = replace(triage, clusters=tuple(map(_without_payload, triage.clusters)))
    files, base = Files(run.archive.place), group_path(target.stream, target.group)
    header = start_header(target.stream, target.group, dead_letter, at=datetime.now(UTC))
    files.write(f"{base}/redrive.jsonl", "".join(plan_redrive(triage, header)))
    document = {
        "version": 1,
        "stream": target.stream,
        "group": target.group,
        "letters": triage.letters,
        "clusters": [DeadLetterCluster.model_validate(one).model_dump() for one in triage.clusters],
    }
    files.write(f"{base}/clusters.json", json.dumps(document, indent=1, sort_keys=True) + "\n")
    return triage, files.path(f"{base}/redrive.jsonl")


def render_triage(target: AuditTarget, triage: Triage, plan: str) -> str:
    """The clusters, for a terminal."""
    rows = [f"{target.stream} / {target.group}: {triage.letters} dead letters"]
    for one in triage.clusters[:20]:
        cause = one.signature.error or one.signature.reason
        rows.append(f"  {one.letters:>10}  {one.advice.action:<8} {ascii(cause[:80])[1:-1]}")
    return "\n".join([*rows, f"  plan: {plan}"])


def _without_payload(cluster: Cluster) -> Cluster:
    examples = tuple(replace(one, fields=()) for one in cluster.examples)
    return replace(cluster, examples=examples)
