"""Records the summaries beside the groups, where the operator reads them.

A window is archived and audited whether or not Redis takes its summary: what no run has recorded
yet is recorded by the next one, in the order of the windows, so that no lost entry goes uncounted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pelops.domain.audit import AuditSummary, parse_summary
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.compaction import read_marker
from pelops.pipeline.archive.layout import WindowPlace, slug
from pelops.pipeline.archive.window_selection import is_complete, last_plan, read_plan
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.reconcile.ledger_history import read_history
from pelops.pipeline.settings import AuditTarget, RedisPlace
from pelops.pipeline.stages import PipelineRun
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import record_audit, record_groups

_MARKER: Final = "published.json"
_MOST_LEFT: Final = 100  # windows: of an archive that was never recorded, the newest ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is recorded of one group."""

    target: AuditTarget
    summary: AuditSummary
    archived: EntryId  # the ledger's last event that is archived


def publish_windows(run: PipelineRun, name: str, stream: str) -> None:
    """Record every audited window of a stream that is not recorded yet. Repeats safely.

    Raises what the adapter raises; what is recorded by then is not recorded again.
    """
    for plan in _left(run, stream):
        place = _place(run, plan)
        asyncio.run(_record_all(run.settings.place, name, _publications(run, plan, place)))
        run.storage.create_json(place.part(_MARKER), {"name": name})


def publish_index(place: RedisPlace, name: str, targets: Iterable[AuditTarget]) -> None:
    """Record which groups a pattern has found. Raises what the adapter raises."""
    groups = {(one.stream, one.group) for one in targets}
    asyncio.run(_record_index(place, name, groups))


def _left(run: PipelineRun, stream: str) -> list[Plan]:
    """Audited windows that are not recorded, in order: before one that is, all are."""
    found: list[Plan] = []
    plan = last_plan(run, stream)
    while plan is not None and len(found) < _MOST_LEFT:
        if run.storage.exists(_place(run, plan).part(_MARKER)):
            break
        if is_complete(run, plan):
            found.append(plan)
        plan = read_plan(run, stream, plan.window.number - 1)
    return found[::-1]


def _place(run: PipelineRun, plan: Plan) -> WindowPlace:
    return WindowPlace(root=run.settings.archive, stream=plan.stream, number=plan.window.number)


def _publications(run: PipelineRun, plan: Plan, place: WindowPlace) -> list[Publication]:
    acts = read_marker(run.storage, place, "acts")
    audits = {
        target.group: read_marker(run.storage, place, f"group={slug(target.group)}")
        for target in plan.targets
    }
    return [
        Publication(
            target=target,
            summary=parse_summary(json.dumps(audits[target.group]["audit"]["summary"])),
            archived=read_history(acts, target.group).archived,
        )
        for target in plan.targets
    ]


async def _record_all(place: RedisPlace, name: str, publications: Sequence[Publication]) -> None:
    pool = ServerPool()
    try:
        server = await pool.server(place.endpoint)
        for one in publications:
            await _record(server, name, one)
    finally:
        await pool.close()


async def _record(server: Server, name: str, one: Publication) -> None:
    keys = derive_keys(one.target.stream, one.target.group, dead_letter=one.target.dead_letter)
    await record_audit(server, keys, name, one.summary, archived=one.archived)


async def _record_index(place: RedisPlace, name: str, groups: Iterable[tuple[str, str]]) -> None:
    pool = ServerPool()
    try:
        await record_groups(await pool.server(place.endpoint), name, groups)
    finally:
        await pool.close()
