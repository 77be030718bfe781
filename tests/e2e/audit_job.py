"""Stands for an audit's job: believes its environment alone, and records that all is well."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime

from pelops.domain.endpoint import parse_redis_url
from pelops.domain.naming import derive_keys
from pelops.redis_core.pool import ServerPool
from pelops.redis_streams.audit.records import record_audit, record_groups
from tests.audits import a_summary, a_window


async def main() -> None:
    """Record one window of each group."""
    assert "KUBECONFIG" not in os.environ, "the pod has a token"
    name = os.environ["PELOPS_AUDIT_NAME"]
    groups = json.loads(os.environ.get("PELOPS_AUDIT_GROUPS", "[]"))
    pattern = os.environ.get("PELOPS_AUDIT_STREAM_PATTERN")
    if pattern is not None:
        groups = [{"stream": pattern.replace("*", "1"), "group": "g"}]
    pool = ServerPool()
    server = await pool.server(parse_redis_url(os.environ["PELOPS_REDIS_URL"]))
    if pattern is not None:
        await record_groups(server, name, [(one["stream"], one["group"]) for one in groups])
    for one in groups:
        summary = a_summary(
            a_window(at=datetime.now(UTC)),
            stream=one["stream"],
            group=one["group"],
            sentence=f"Archived to {os.environ['PELOPS_AUDIT_ARCHIVE']}.",
        )
        await record_audit(server, derive_keys(one["stream"], one["group"]), name, summary)
    await pool.close()


if __name__ == "__main__":
    asyncio.run(main())
