"""A stream and a group to audit: filled, read, acknowledged, cut; and audits of them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
import redis
from pyspark.sql import SparkSession

from local_cluster.redis_servers import RedisServers
from pelops.domain.audit import AuditSummary
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import WindowPlace
from pelops.pipeline.engine.spark_session import LazySession, as_lazy
from pelops.pipeline.run import open_run, run_audit
from pelops.pipeline.settings import AuditTarget, PipelineSettings, RedisPlace, read_place

FIRST_MS = 1_700_000_000_000
GROUP = "workers"


def by_password_file(place: RedisPlace, directory: Path) -> RedisPlace:
    """The same place with its password in a file: executors keep the variables of their start."""
    if place.endpoint.password is None:
        return place
    path = directory / "password"
    path.write_text(place.endpoint.password)
    kept = {key: value for key, value in place.options.items() if not key.endswith("Env")}
    return replace(place, options={**kept, "passwordFile": str(path)})


def is_made_by(stage: str, part: str) -> bool:
    """Whether a stage makes this part of a table, by its path in the archive."""
    table = part.partition("/")[0]
    if stage.startswith("group="):
        if table == "statuses":  # it lies by its date, and the group's name is no partition
            return f"/{stage.removeprefix('group=')}/" in part
        of_others = ("acts", "evidence", "letters", "retries", "snapshot_")
        return f"/{stage}/" in f"/{part}/" and not table.startswith(of_others)
    return table == stage or table.startswith(f"{stage}_")


class Audited:
    """One stream `orders` with the group `workers`, and the archive of its audits."""

    def __init__(
        self,
        spark: SparkSession | LazySession,
        servers: RedisServers,
        prefix: str,
        archive: Path,
    ) -> None:
        self.spark = as_lazy(spark)
        self.servers = servers
        self.port = servers.master().port
        self.prefix = prefix
        self.archive = archive
        self.stream = f"{prefix}orders"
        self.keys = derive_keys(self.stream, GROUP)
        self.client: Any = redis.Redis(port=self.port)
        self.count = 0
        self.settings = PipelineSettings(
            place=read_place({}, f"redis://127.0.0.1:{self.port}/0"),
            archive=str(archive),
            targets=(AuditTarget(stream=self.stream, group=GROUP, stuck_after_ms=60_000),),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        keys = list(self.client.scan_iter(match=self.prefix.replace("{", "\\{") + "*"))
        keys += list(self.client.scan_iter(match=f"{{{self.keys.tag}}}*"))
        if keys:
            self.client.delete(*keys)
        self.client.close()

    @property
    def session(self) -> SparkSession:
        """A session of Spark, for a test that needs one: windows as small as these do not."""
        return self.spark.get()

    def add(self, number: int, **fields: Any) -> list[str]:
        """Add entries, ten in each millisecond; answers their IDs."""
        ids = [f"{FIRST_MS + i // 10}-{i % 10}" for i in range(self.count, self.count + number)]
        pipeline = self.client.pipeline(transaction=False)
        for place, entry_id in enumerate(ids, self.count):
            pairs = [part for pair in fields.items() for part in pair] or ["number", place]
            pipeline.execute_command("XADD", self.stream, entry_id, *pairs)
        pipeline.execute()
        self.count += number
        return ids

    def create_group(self, at: str = "0") -> None:
        self.client.xgroup_create(self.stream, GROUP, id=at, mkstream=True)

    def deliver(self, number: int, consumer: str = "a") -> list[str]:
        """Read so many new entries; answers their IDs."""
        read = self.client.xreadgroup(GROUP, consumer, {self.stream: ">"}, count=number)
        return [entry_id.decode() for _, entries in read for entry_id, _ in entries]

    def acknowledge(self, *ids: str) -> None:
        self.client.xack(self.stream, GROUP, *ids)

    def let_idle(self, entry_id: str, idle_ms: int, consumer: str = "a") -> None:
        """Make a pending entry look as if it was delivered so long ago."""
        self.client.execute_command(
            "XCLAIM", self.stream, GROUP, consumer, 0, entry_id, "IDLE", idle_ms
        )

    def record(self, kind: str, *pairs: Any, entry_id: str = "*") -> None:
        """Write an event into the group's ledger."""
        self.client.execute_command(
            "XADD", self.keys.ledger, entry_id, "kind", kind, "stream", self.stream, *pairs
        )

    def audit(self, **changes: Any) -> list[AuditSummary]:
        """Audit once, as a run of its own does."""
        run = open_run(self.spark, replace(self.settings, **changes))
        try:
            return run_audit(run)
        finally:
            run.watch.close()

    def audit_one(self, **changes: Any) -> AuditSummary:
        (summary,) = self.audit(**changes)
        return summary

    def target(self, group: str) -> AuditTarget:
        return replace(self.settings.targets[0], group=group)

    def json(self, name: str, number: int = 0, group: str = GROUP) -> dict[str, Any]:
        """A file of a group's results."""
        path = Path(self.place(number).of_group(group, name))
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def marker(self, stage: str, number: int = 0) -> dict[str, Any]:
        """What a stage's marker says."""
        found: dict[str, Any] = json.loads(
            Path(self.place(number).part(f"{stage}.json")).read_text()
        )
        return found

    def counts(self, summary: AuditSummary) -> dict[str, int]:
        """The statuses that any entry has."""
        return {status.value: count for status, count in summary.counts.items() if count}

    def place(self, number: int = 0) -> WindowPlace:
        return WindowPlace(root=str(self.archive), stream=self.stream, number=number)

    def remove_window(self, number: int) -> None:
        """Take a window out of the archive, as if it had not been audited."""
        shutil.rmtree(self.place(number).path, ignore_errors=True)
        for part in self.archive.glob(f"*/**/*..*/{number}"):
            shutil.rmtree(part)

    def remove_stage(self, stage: str, number: int = 0) -> None:
        """Take a stage out of a window: its marker, its records, and its parts of tables."""
        place = self.place(number)
        Path(place.record(f"{stage}.json")).unlink(missing_ok=True)
        shutil.rmtree(place.record(stage), ignore_errors=True)
        for part in self.archive.glob(f"*/**/*..*/{number}"):
            if is_made_by(stage, str(part.relative_to(self.archive))):
                shutil.rmtree(part)

    def rows(self, part: str, number: int = 0) -> list[dict[str, Any]]:
        """The rows of a part of the group's results."""
        path = self.place(number).of_group(GROUP, part)
        found: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
        return found

    def files(self) -> dict[str, bytes]:
        """Every file of the archive but the plans, which tell when they were made."""
        found = {}
        for folder, _, names in os.walk(self.archive):
            for name in names:
                if name != "plan.json" and not name.startswith("."):
                    path = Path(folder, name)
                    found[str(path.relative_to(self.archive))] = path.read_bytes()
        return found
