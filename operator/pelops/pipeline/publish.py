"""Records the summaries beside the groups, where the operator reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pelops.domain.audit import AuditSummary
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.place import Place
from pelops.pipeline.settings import Target
from pelops.redis_streams.audits import record_audit, record_groups
from pelops.redis_streams.connection import ServerPool
from pelops.redis_streams.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is recorded of one group."""

    target: Target
    summary: AuditSummary
    archived: EntryId  # the ledger's last event that is archived


def publish(place: Place, name: str, publications: Sequence[Publication], *, index: bool) -> None:
    """Record summaries; with `index`, also which groups a pattern found. Repeats safely.

    Raises what the door raises.
    """
    asyncio.run(_publish(place, name, publications, index=index))


async def _publish(
    place: Place, name: str, publications: Sequence[Publication], *, index: bool
) -> None:
    pool = ServerPool()
    try:
        server = await pool.server(place.endpoint)
        for one in publications:
            await _record(server, name, one)
        if index:
            groups = {(one.target.stream, one.target.group) for one in publications}
            await record_groups(server, name, groups)
    finally:
        await pool.close()


async def _record(server: Server, name: str, one: Publication) -> None:
    keys = derive_keys(one.target.stream, one.target.group, dead_letter=one.target.dead_letter)
    await record_audit(server, keys, name, one.summary, archived=one.archived)
