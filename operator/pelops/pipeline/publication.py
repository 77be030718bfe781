"""Records the summaries in Redis beside the groups, where the operator reads them.

A window is archived and audited even if Redis refuses its summary. The next run then records the
missing summaries in the order of the windows, so that every lost entry is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.records import (
    Journal,
    WindowPhase,
    published_rows,
    read_records,
    read_summaries,
)
from pelops.pipeline.archive.tables import WINDOWS
from pelops.pipeline.archive.windows import Plan, StreamRecord
from pelops.pipeline.context import PipelineRun
from pelops.pipeline.settings import AuditTarget, RedisPlace
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import record_audit, record_groups

_MOST_LEFT: Final = 100  # windows; of an archive that was never recorded, the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The data to record for one group."""

    target: AuditTarget
    summary: AuditSummary
    archived: EntryId  # the last archived event of the ledger


def publish_windows(run: PipelineRun, name: str, streams: Sequence[str]) -> None:
    """Record every audited window of these streams that is not recorded. Safe to repeat.

    Raises the errors of the adapter; windows recorded before an error are not recorded again.
    """
    journal = Journal.read(run.archive)
    left: dict[str, list[int]] = {}
    for stream in streams:
        published = journal.numbers(stream, WindowPhase.PUBLISHED)
        # Windows are recorded in order.
        after = max(published, default=-1)
        audited = journal.numbers(stream, WindowPhase.AUDITED)
        left[stream] = [number for number in audited if number > after][-_MOST_LEFT:]
    summaries = read_summaries(
        run.archive,
        {(stream, group): left[stream] for stream in left for group in journal.groups(stream)},
    )
    by_window = {(key, one.window.number): one for key, some in summaries.items() for one in some}
    recorded: list[Plan] = []
    try:
        for record in chain.from_iterable(read_records(run.archive, left).values()):
            asyncio.run(_record_all(run.settings.place, name, _publications(record, by_window)))
            recorded.append(record.plan)
    finally:
        if recorded:
            run.archive.append(WINDOWS, published_rows(recorded))


def publish_index(place: RedisPlace, name: str, targets: Iterable[AuditTarget]) -> None:
    """Record which groups match a pattern. Raises the errors of the adapter."""
    groups = {(one.stream, one.group) for one in targets}
    asyncio.run(_record_index(place, name, groups))


def _publications(
    record: StreamRecord, summaries: Mapping[tuple[tuple[str, str], int], AuditSummary]
) -> list[Publication]:
    plan = record.plan
    return [
        Publication(target=target, summary=summary, archived=record.ledgers[target.group].last)
        for target in plan.targets
        if (summary := summaries.get(((plan.stream, target.group), plan.number))) is not None
    ]


async def _record_all(place: RedisPlace, name: str, publications: Sequence[Publication]) -> None:
    pool = ServerPool()
    try:
        server = await pool.server(place.endpoint)
        for one in publications:
            await _record(server, name, one)
    finally:
        await pool.close()


async def _record(server: Server, name: str, publication: Publication) -> None:
    keys = derive_keys(
        publication.target.stream,
        publication.target.group,
        dead_letter=publication.target.dead_letter,
    )
    await record_audit(server, keys, name, publication.summary, archived=publication.archived)


async def _record_index(place: RedisPlace, name: str, groups: Iterable[tuple[str, str]]) -> None:
    pool = ServerPool()
    try:
        await record_groups(await pool.server(place.endpoint), name, groups)
    finally:
        await pool.close()
