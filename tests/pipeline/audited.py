"""A stream and a group to audit: filled, read, acknowledged, cut; and audits of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

import pyarrow.dataset as ds
import redis
from deltalake import DeltaTable
from pydantic import TypeAdapter
from pyspark.sql import SparkSession

from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.records import GroupRecord, WindowPhase
from pelops.pipeline.archive.tables import (
    ENTRIES,
    EVENTS,
    SCHEMAS,
    STATUSES,
    WINDOWS,
    Archive,
    find_archive,
)
from pelops.pipeline.archive.windows import Plan, parse_plan
from pelops.pipeline.context import PipelineRun, open_run
from pelops.pipeline.report.model import GroupReport
from pelops.pipeline.report.pages import write_reports
from pelops.pipeline.run import find_targets, run_archive, run_audit
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import AuditTarget, PipelineSettings, RedisPlace, read_place

FIRST_MS = 1_700_000_000_000
GROUP = "workers"
STUCK_AFTER_MS: Final = 3_600_000  # no test takes as long, however busy the machine is
Row = dict[str, Any]
_DONE: Final = {EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.ACKNOWLEDGED_PROVEN}
_RECORDS: Final = TypeAdapter(GroupRecord)
# What differs from audit to audit of the same window: when each looked.
_TIMES: Final = {"at_ms", "idle_s", "oldest_stuck_s", "times", "stuck_ages"}
_TEXTS: Final = ("state", "summary", "report")


def by_password_file(place: RedisPlace, directory: Path) -> RedisPlace:
    """The same place with its password in a file: executors keep the variables of their start."""
    if place.endpoint.password is None:
        return place
    path = directory / "password"
    path.write_text(place.endpoint.password)
    kept = {key: value for key, value in place.options.items() if not key.endswith("Env")}
    return replace(place, options={**kept, "passwordFile": str(path)})


def changed(settings: PipelineSettings, **changes: Any) -> PipelineSettings:
    """The same settings with some that are different."""
    return settings.model_copy(update=changes)


class Audited:
    """One stream `orders` with the group `workers`, and the archive of its audits."""

    def __init__(
        self,
        spark: SparkSession | LazySession,
        servers: RedisServers,
        prefix: str,
        archive: Path,
    ) -> None:
        self.spark = spark if isinstance(spark, LazySession) else LazySession(given=spark)
        self.servers = servers
        self.port = servers.master().port
        self.prefix = prefix
        self.archive = archive
        self.stream = f"{prefix}orders"
        self.keys = derive_keys(self.stream, GROUP)
        self.client: Any = redis.Redis(port=self.port)
        self.count = 0
        self.ids: list[str] = []  # of all entries that were added
        self.settings = PipelineSettings(
            place=read_place({}, f"redis://127.0.0.1:{self.port}/0"),
            archive=str(archive),
            targets=(AuditTarget(stream=self.stream, group=GROUP, stuck_after_ms=STUCK_AFTER_MS),),
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
        """The session of Spark that the audits use."""
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
        self.ids += ids
        return ids

    def create_group(self, at: str = "0") -> None:
        self.client.xgroup_create(self.stream, GROUP, id=at, mkstream=True)

    def deliver(self, number: int, consumer: str = "a") -> list[str]:
        """Read so many new entries; answers their IDs."""
        read = self.client.xreadgroup(GROUP, consumer, {self.stream: ">"}, count=number)
        return [entry_id.decode() for _, entries in read for entry_id, _ in entries]

    def acknowledge(self, *ids: str) -> None:
        self.client.xack(self.stream, GROUP, *ids)

    def let_idle(
        self, entry_id: str, idle_ms: int = 2 * STUCK_AFTER_MS, consumer: str = "a"
    ) -> None:
        """Make a pending entry look as if it was delivered so long ago."""
        self.client.execute_command(
            "XCLAIM", self.stream, GROUP, consumer, 0, entry_id, "IDLE", idle_ms
        )

    def record(self, kind: str, *pairs: Any, entry_id: str = "*") -> None:
        """Write an event into the group's ledger."""
        self.client.execute_command(
            "XADD", self.keys.ledger, entry_id, "kind", kind, "stream", self.stream, *pairs
        )

    @contextmanager
    def running(self, **changes: Any) -> Iterator[PipelineRun]:
        """For the block: a run, as a command begins one."""
        run = open_run(self.spark, changed(self.settings, **changes))
        try:
            yield run
        finally:
            run.watch.close()

    def audit(self, **changes: Any) -> list[AuditSummary]:
        """Audit once, as a run of its own does."""
        with self.running(**changes) as run:
            return run_audit(run, find_targets(run))

    def archive_only(self) -> int:
        """Archive a window that no audit looks at yet; answers the number of its entries."""
        with self.running() as run:
            return run_archive(run, find_targets(run))

    def write_report(self, **changes: Any) -> Path:
        """Write the reports, as the command does; answers the page of all streams."""
        with self.running(**changes) as run:
            return Path(write_reports(run, find_targets(run)))

    def audit_one(self, **changes: Any) -> AuditSummary:
        (summary,) = self.audit(**changes)
        return summary

    def target(self, group: str) -> AuditTarget:
        return replace(self.settings.targets[0], group=group)

    def counts(self, summary: AuditSummary) -> dict[str, int]:
        """The statuses that any entry has."""
        return {status.value: count for status, count in summary.counts.items() if count}

    # What the archive holds.

    @property
    def archive_tables(self) -> Archive:
        """The tables of the archive, as they are now."""
        return Archive(find_archive(str(self.archive), s3_endpoint=None, s3_region=None))

    def report(self, number: int = 0, group: str = GROUP) -> GroupReport:
        """What the audit of a window found of a group."""
        return GroupReport.model_validate_json(
            self._window(number, group, WindowPhase.AUDITED)["report"]
        )

    def limits(self, number: int = 0, group: str = GROUP) -> list[str]:
        """What the audit of a window could not prove as a whole, in sentences."""
        return [one.sentence for one in self.report(number, group).unproven if one.why == "limit"]

    def state(self, number: int = 0, group: str = GROUP) -> GroupRecord:
        """What the audit of a window keeps of a group for the next one."""
        return _RECORDS.validate_json(self._window(number, group, WindowPhase.AUDITED)["state"])

    def plan(self, number: int = 0) -> Plan:
        """The plan of a window."""
        return parse_plan(self._window(number, None, WindowPhase.PLANNED)["state"])

    def windows(self, phase: WindowPhase | None = None) -> list[Row]:
        """The rows of the stream in the table `windows`, in order of windows and runs."""
        rows = self._table(WINDOWS, ds.field("stream") == self.stream)
        chosen = [row for row in rows if phase in (None, row["phase"])]
        return sorted(chosen, key=lambda row: (row["window"], row["run"]))

    def statuses(
        self, number: int | None = None, group: str = GROUP, stream: str | None = None
    ) -> list[Row]:
        """What audits say of each entry for a group: the audit of a window, or all of them.

        `stream`: only entries that it holds.
        """
        condition = ds.field("group") == group
        if number is not None:
            condition &= ds.field("as_of") == number
        if stream is not None:
            condition &= ds.field("stream") == stream
        return sorted(self._table(STATUSES, condition), key=_place)

    def rows(self, part: str, number: int = 0, group: str = GROUP) -> list[Row]:
        """Some of the statuses that the audit of a window reports.

        - exceptions: of the window, and not acknowledged.
        - open: of this or an earlier window, and can still change.
        - settled: of earlier windows, and came to an end.
        - retried: copies in the group's retry stream.
        - roots: that were followed to their last copy; `status` is that of the copy.
        - statuses: all.
        """
        rows = self.statuses(number, group)
        retry = derive_keys(self.stream, group).retry
        if part == "roots":
            return [row | {"status": row["outcome"]} for row in rows if row["outcome"] is not None]
        chosen: Mapping[str, Callable[[Row], bool]] = {
            "exceptions": lambda row: row["window"] == number and row["status"] not in _DONE,
            "open": _is_open,
            "settled": lambda row: row["window"] != number and not _is_open(row),
        }
        if part in chosen:
            return [row for row in rows if row["stream"] == self.stream and chosen[part](row)]
        return [row for row in rows if part == "statuses" or row["stream"] == retry]

    def entries(self, number: int | None = None) -> list[Row]:
        """The archived entries of a window, or of all; also of retry streams."""
        condition = None if number is None else ds.field("window") == number
        return sorted(self._table(ENTRIES, condition), key=_place)

    def events(self, number: int | None = None) -> list[Row]:
        """Events from ledgers and append-only files: of a window, or of all."""
        condition = None if number is None else ds.field("window") == number
        return sorted(self._table(EVENTS, condition), key=_place)

    def grow_older(self, number: int, by: timedelta) -> None:
        """Make the rows of a window as old as if it had been closed so much earlier."""
        place = self.archive_tables.place
        day = f"date - interval '{by.days} days'"
        for name in SCHEMAS:
            table = DeltaTable(place.path(name))
            table.update(updates={"date": day}, predicate=f'"window" = {number}')

    def content(self) -> dict[str, list[Row]]:
        """The rows of every table, without the times and the run numbers of their writing.

        An archive whose run was repeated has the same ones: it is planned more often, that is all.
        """
        found = {name: sorted(map(_plain, self._table(name)), key=str) for name in SCHEMAS}
        planned = [row for row in found[WINDOWS] if row["phase"] == WindowPhase.PLANNED]
        again = [row for place, row in enumerate(planned) if row in planned[:place]]
        for row in again:
            found[WINDOWS].remove(row)
        return found

    def _window(self, number: int, group: str | None, phase: WindowPhase) -> Row:
        """The newest row of this kind."""
        rows = [row for row in self.windows(phase) if row["window"] == number]
        return [row for row in rows if row["group"] == group][-1]

    def _table(self, name: str, condition: ds.Expression | None = None) -> list[Row]:
        conditions = () if condition is None else (condition,)
        rows: list[Row] = self.archive_tables.read(name, *conditions).to_pylist()
        return rows


def _place(row: Row) -> tuple[str, int, int]:
    """Some events are of no entry."""
    return row["stream"], -1 if row["ms"] is None else row["ms"], row["seq"] or 0


def _is_open(row: Row) -> bool:
    """By its own status: that of its last copy may be open as well."""
    return bool(row["is_open"]) and row["outcome"] is None


def _plain(row: Row) -> Row:
    kept = {name: value for name, value in row.items() if name not in {"run", "delivered_at"}}
    texts = {
        name: _without_times(json.loads(kept[name]))
        for name in _TEXTS
        if kept.get(name) is not None
    }
    return kept | texts


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if name not in _TIMES}
    return [_without_times(one) for one in value] if isinstance(value, list) else value
