"""The archive: four Delta tables, and the number of the run that wrote each row.

`entries`     Each archived entry, and each copy in a retry stream.
`events`      Events of the ledgers and the append-only files about entries.
`statuses`    The status of each entry, for each group.
`windows`     The plan of each window, and the findings of its audit.

A run first claims its number, with the commit that appends its plans to `windows`. It then appends
to the other tables. Finally, it appends its findings to `windows`; only then are its rows valid.
Rows of a run that died before are removed by the next run. If two runs overlap, the later claim
wins, and the other one cannot finish.

Tables are partitioned by the date of the window, and written in order of stream and ID.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from pelops.domain.site import page_url
from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken
from pelops.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log: Final = logging.getLogger(__name__)
ENTRIES, EVENTS, STATUSES, WINDOWS = "entries", "events", "statuses", "windows"
# Columns used in conditions: only for these do files have minimum and maximum statistics.
_SELECTED: Final = {"run", "stream", "window", "ms", "seq"}
MOST_HERE: Final = 200_000  # rows that pass through the driver; Spark tasks write larger frames
LAYOUT: Final = "3"
_LAYOUT_KEY: Final = "pelops.layout"
_CLAIM: Final = "pelops-run"  # appId of Delta transactions
_MARK: Final = "pelopsCommit"  # key in the commit's properties
_NEWEST: Final = 20  # commits that are searched
_COMBINED_ROWS: Final = 100_000  # of the driver; with more, chunks are not combined
_MOST_FILES: Final = 32  # of one day, before they are compacted
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")  # terminal colors in messages of deltalake
# deltalake retries a request that times out or is answered with 503 for about a minute. This holds
# whether each attempt takes its full timeout or is refused at once.
_PATIENCE: Final = {
    "timeout": "20s",
    "retry_timeout": "30s",
    "max_retries": "100",
    "backoff_config.max_backoff": "5s",
}
_KEPT: Final = timedelta(days=2)  # files that a table no longer uses, for concurrent readers


NEXT: Final = "and run the same command again: it continues where this run ended"
_TROUBLES: Final = (
    (
        r"No space left on device|StorageFull|Disk quota exceeded|File too large",
        f"no room is left. Make room there, {NEXT}",
    ),
    (
        r"503 Service Unavailable|SLOW_DOWN|SlowDown|SERVICE_UNAVAILABLE|ServiceUnavailable"
        r"|status code: 503|Status Code: 503",
        "the object store is busy, and refused the request each time it was repeated. Wait until "
        f"the store takes requests, {NEXT}",
    ),
    (
        r"(?i)timed out|timeout was reached|curlCode: 28|error sending request|connection refused"
        r"|ConnectException|SocketTimeout|ConnectTimeout|ApiCallTimeout",
        f"the object store did not answer in time. Check the store and the network between, {NEXT}",
    ),
)


def _schema(**columns: pa.DataType) -> pa.Schema:
    shared = {"date": pa.date32(), "run": pa.int64(), "stream": pa.string(), "window": pa.int32()}
    return pa.schema(list((shared | columns).items()))


_ID: Final = {"ms": pa.int64(), "seq": pa.int64()}
_ROOT: Final = {"root_ms": pa.int64(), "root_seq": pa.int64(), "retry_count": pa.int32()}
_TIME: Final = pa.timestamp("us", "UTC")
SCHEMAS: Final = {
    ENTRIES: _schema(
        **_ID,
        bytes=pa.int64(),
        **_ROOT,
        returned=pa.int32(),
        hash=pa.int64(),
        key=pa.string(),
        fields=pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
    ),
    EVENTS: _schema(
        group=pa.string(),
        source=pa.string(),
        kind=pa.string(),
        in_stream=pa.string(),
        **_ID,
        target=pa.string(),
        new_ms=pa.int64(),
        new_seq=pa.int64(),
        **_ROOT,
        deliveries=pa.int64(),
        idle_ms=pa.int64(),
        reason=pa.string(),
        consumer=pa.string(),
        event_ms=pa.int64(),
        event_seq=pa.int64(),
        first_delivered_ms=pa.int64(),
        act=pa.string(),
        removal=pa.string(),
        covered=pa.bool_(),
        proof=pa.string(),
    ),
    STATUSES: _schema(
        group=pa.string(),
        id=pa.string(),
        **_ID,
        root=pa.string(),
        status=pa.string(),
        why=pa.string(),
        evidence=pa.string(),
        outcome=pa.string(),
        added_at=_TIME,
        delivered_at=_TIME,
        acted_at=_TIME,
        audited_at=_TIME,
        consumer=pa.string(),
        deliveries=pa.int64(),
        retry_count=pa.int32(),
        new_id=pa.string(),
        last_copy=pa.string(),
        last_copy_stream=pa.string(),
        is_open=pa.bool_(),
        reason=pa.string(),
        as_of=pa.int32(),
    ),
    WINDOWS: _schema(
        group=pa.string(),
        phase=pa.string(),
        from_id=pa.string(),
        to_id=pa.string(),
        closed_at=_TIME,
        produced=pa.int64(),
        archived=pa.int64(),
        open=pa.int64(),
        verdict=pa.string(),
        certainty=pa.string(),
        sentence=pa.string(),
        summary=pa.string(),
        state=pa.string(),
        report=pa.string(),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlace:
    """The location of an archive, as Spark and deltalake address it."""

    root: str
    storage: dict[str, str]  # options of deltalake

    @property
    def is_local(self) -> bool:
        return urlsplit(self.root).scheme in {"", "file"}

    @property
    def directory(self) -> Path:
        """The directory of a local archive."""
        parts = urlsplit(self.root)
        return Path(unquote(parts.path) if parts.scheme else self.root)

    def path(self, name: str) -> str:
        """The path of a table, or of another part of the archive, to display."""
        if self.is_local:
            return str(self.directory / name)
        return f"{self.root.replace('s3a://', 's3://').rstrip('/')}/{name}"

    def uri(self, name: str) -> str:
        """The same as a URI for deltalake, which percent-decodes every path."""
        return (self.directory.absolute() / name).as_uri() if self.is_local else self.path(name)

    def spark_path(self, name: str) -> str:
        """The same as a URI for Spark."""
        if self.is_local:
            return (self.directory.absolute() / name).as_uri()
        return f"{self.root.replace('s3://', 's3a://').rstrip('/')}/{name}"


def find_archive(root: str, *, s3_endpoint: str | None, s3_region: str | None) -> ArchivePlace:
    """The location of an archive from a path or a URL."""
    storage = {} if urlsplit(root).scheme in {"", "file"} else dict(_PATIENCE)
    if s3_endpoint:
        storage |= {"AWS_ENDPOINT_URL": s3_endpoint, "AWS_REGION": s3_region or "us-east-1"}
        if s3_endpoint.startswith("http:"):
            storage["AWS_ALLOW_HTTP"] = "true"
    elif s3_region:
        storage |= {"AWS_REGION": s3_region}
    return ArchivePlace(root=root, storage=storage)


def open_archive(root: str) -> Archive:
    """Open an archive to read. An object store is configured by the variables of the audits.

    Raises ArchiveUnusable if it cannot be read, or has another layout.
    """
    place = find_archive(
        root,
        s3_endpoint=os.environ.get("PELOPS_AUDIT_S3_ENDPOINT"),
        s3_region=os.environ.get("PELOPS_AUDIT_S3_REGION"),
    )
    archive = Archive(place)
    archive.check()
    return archive


class Archive:
    """The tables of one archive. For one thread."""

    def __init__(self, place: ArchivePlace) -> None:
        self.place = place
        self.run = 0  # the claimed run; 0: none
        self._opened: dict[str, DeltaTable] = {}

    @classmethod
    def of(cls, settings: PipelineSettings) -> Archive:
        """The archive of a run. Raises ArchiveUnusable if it has another layout."""
        place = find_archive(
            settings.archive, s3_endpoint=settings.s3_endpoint, s3_region=settings.s3_region
        )
        archive = cls(place)
        archive.check()
        return archive

    def check(self) -> None:
        """Raise ArchiveUnusable if the path is not a directory, or has another layout."""
        if not self.place.root.strip():
            raise ArchiveUnusable("no archive: give --archive PATH")
        if self.place.is_local:
            self._check_directory()
        elif urlsplit(self.place.root).scheme not in {"s3", "s3a"}:
            raise ArchiveUnusable(
                f"the archive {self.place.root} cannot be used: an archive is a directory, or an "
                "address such as s3a://BUCKET/PREFIX"
            )
        table = self._open(WINDOWS)
        if table is not None:
            layout = table.metadata().configuration.get(_LAYOUT_KEY, "none")
            if layout != LAYOUT:
                raise ArchiveUnusable(_other_layout(self.place.root, layout))

    def _check_directory(self) -> None:
        directory = self.place.directory
        if unquote(str(directory)) != str(directory):
            raise ArchiveUnusable(
                f"the archive path {self.place.root} holds a percent sign with two digits, which "
                "deltalake takes for another letter: choose another path"
            )
        obstacle = _find_obstacle(directory)
        if obstacle is not None:
            raise ArchiveUnusable(
                f"the archive path {self.place.root} cannot be used: {obstacle}. Give --archive "
                "(PELOPS_AUDIT_ARCHIVE) the path of a directory; one that does not exist is created"
            )
        if (directory / "_pelops" / "layout.json").exists():
            raise ArchiveUnusable(_other_layout(self.place.root, "2"))

    # Reads.

    def exists(self, table: str) -> bool:
        """Whether a table was created."""
        return self._open(table) is not None

    def read(
        self, table: str, *conditions: ds.Expression, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows that match all conditions. Raises ArchiveUnusable."""
        wanted = list(columns or SCHEMAS[table].names)
        opened = self._open(table)
        if opened is None:
            return pa.schema([SCHEMAS[table].field(name) for name in wanted]).empty_table()
        condition = reduce(and_, conditions) if conditions else None
        with self._explained("read", table):
            rows = _scan(opened.to_pyarrow_dataset(), wanted, condition)
        return rows.cast(pa.schema([SCHEMAS[table].field(name) for name in wanted]))

    def count_rows(self, table: str, runs: Collection[int]) -> int:
        """Upper bound of the number of rows of these runs, from file statistics."""
        return sum(one["num_records"] or 0 for one in self._files(table, runs))

    def frame(
        self,
        spark: SparkSession,
        table: str,
        runs: Collection[int],
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """The rows of these runs as a frame. Few rows pass through the driver."""
        wanted = list(columns or SCHEMAS[table].names)
        if self.count_rows(table, runs) <= MOST_HERE:
            is_wanted = ds.field("run").isin(pa.array(sorted(runs), pa.int64()))
            return local_frame(spark, self.read(table, is_wanted, columns=wanted))
        chosen = ", ".join(map(str, runs))
        return self.whole_frame(spark, table).where(f"run IN ({chosen})").select(*wanted)

    def whole_frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table as a Spark frame."""
        return spark.read.format("delta").load(self.place.spark_path(table))

    def _files(self, table: str, runs: Collection[int]) -> list[dict[str, Any]]:
        opened = self._open(table)
        if opened is None or not runs:
            return []
        with self._explained("read", table):
            files = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
        low, high = min(runs), max(runs)
        return [one for one in files if _overlaps(one, low, high)]

    # Writes.

    def claim(self, plans: pa.Table, *, since: int) -> int:
        """Claim the next run by appending its plans; return its number.

        `since`: the newest run when these plans were made. Raises RunOvertaken if there is a newer.
        """
        self._append(WINDOWS, _with_run(WINDOWS, plans, since + 1), claim=(since, since + 1))
        self.run = since + 1
        return self.run

    def newest_run(self) -> int:
        """The number of the newest claimed run; 0 before the first."""
        table = self._open(WINDOWS)
        return 0 if table is None else table.transaction_version(_CLAIM) or 0

    def append(self, table: str, rows: pa.Table) -> None:
        """Append rows of this run. Raises ArchiveUnusable."""
        if rows.num_rows:
            self._append(table, _with_run(table, rows, self.run))

    def append_batches(self, table: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Append batches of this run, streamed in one commit; return the number of rows."""
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in batches:
                rows += batch.num_rows
                whole = _with_run(table, pa.Table.from_batches([batch]), self.run)
                yield from whole.to_batches()

        self._append(table, pa.RecordBatchReader.from_batches(SCHEMAS[table], counted()))
        return rows

    def end(self, windows: pa.Table) -> None:
        """Append the findings of this run. Raises RunOvertaken if another run was claimed."""
        self._append(WINDOWS, _with_run(WINDOWS, windows, self.run), claim=(self.run, self.run))

    def append_frame(self, table: str, frame: DataFrame, rows: int) -> None:
        """Append a frame of about `rows` rows, with the columns of a table except `run`.

        Few rows are collected first. Raises errors of Spark, and ArchiveUnusable.
        """
        if rows <= MOST_HERE:
            self.append(table, frame.toArrow())
            return
        from pyspark.sql import functions as F  # noqa: N812

        chosen = [
            F.lit(self.run).cast("bigint").alias("run") if name == "run" else F.col(f"`{name}`")
            for name in SCHEMAS[table].names
        ]
        self._make_tables()
        writer = frame.select(*chosen).write.format("delta").mode("append")
        writer.save(self.place.spark_path(table))

    def remove(self, table: str, predicate: str) -> int:
        """Remove the rows that match an SQL condition; return their number."""
        opened = self._open(table)
        if opened is None:
            return 0
        with self._explained("write", table):
            return int(opened.delete(predicate)["num_deleted_rows"] or 0)

    def maintain(self, today: date) -> None:
        """Compact the small files of days, and remove files that a table no longer uses."""
        for name in SCHEMAS:
            opened = self._open(name)
            if opened is None:
                continue
            with self._explained("write", name):
                files = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
                for day in sorted(
                    {one["partition.date"] for one in files if one["partition.date"]}
                ):
                    count = sum(1 for one in files if one["partition.date"] == day)
                    if count > (_MOST_FILES if day >= today else 1) and _is_worth(files, day):
                        opened.optimize.compact([("date", "=", day.isoformat())])
                hours = int(_KEPT / timedelta(hours=1))
                opened.vacuum(hours, dry_run=False, enforce_retention_duration=False)

    def _append(self, table: str, rows: Any, *, claim: tuple[int, int] | None = None) -> None:
        """Append rows; `claim`: the newest run that is expected, and the new one."""
        self._make_tables()
        opened = self._open(table)
        assert opened is not None
        claims = []
        if claim is not None:
            # Checked on the version that the commit is based on: it fails if another claim follows.
            if (opened.transaction_version(_CLAIM) or 0) != claim[0]:
                raise RunOvertaken(_overtaken(self.place.root))
            claims = [Transaction(_CLAIM, claim[1])]
        mark = uuid4().hex
        with self._explained("write", table):
            try:
                write_deltalake(
                    opened,
                    rows,
                    mode="append",
                    commit_properties=CommitProperties({_MARK: mark}, app_transactions=claims),
                )
            except CommitFailedError as error:
                # If the answer was lost, deltalake repeats the commit and conflicts with itself.
                if self._has_commit(table, mark):
                    return
                if claim is None:
                    raise
                raise RunOvertaken(_overtaken(self.place.root)) from error

    def _has_commit(self, table: str, mark: str) -> bool:
        """Whether the commit with this mark is among the newest commits of a table."""
        newest = DeltaTable(self.place.uri(table), storage_options=self.place.storage)
        return any(one.get(_MARK) == mark for one in newest.history(_NEWEST))

    def _make_tables(self) -> None:
        for name, schema in SCHEMAS.items():
            if self._open(name) is None:
                with self._explained("write", name):
                    if self.place.is_local:
                        Path(self.place.path(name)).mkdir(parents=True, exist_ok=True)
                    DeltaTable.create(
                        self.place.uri(name),
                        schema,
                        mode="ignore",
                        partition_by=["date"],
                        configuration={
                            _LAYOUT_KEY: LAYOUT,
                            "delta.dataSkippingStatsColumns": ",".join(
                                sorted(_SELECTED & set(schema.names))
                            ),
                        },
                        storage_options=self.place.storage,
                        raise_if_key_not_exists=False,
                    )

    def _open(self, table: str) -> DeltaTable | None:
        """The current version of the table; None if it does not exist."""
        with self._explained("read", table):
            opened = self._opened.get(table)
            if opened is not None:
                opened.update_incremental()
                return opened
            try:
                delta_table = DeltaTable(self.place.uri(table), storage_options=self.place.storage)
            except TableNotFoundError:
                return None
        self._opened[table] = delta_table
        return delta_table

    @contextmanager
    def _explained(self, verb: str, table: str) -> Iterator[None]:
        """Raise errors of deltalake and file systems as ArchiveUnusable, with a remedy."""
        try:
            yield
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise explain_store(verb, self.place.path(table), error) from error


def _scan(dataset: Any, columns: Sequence[str], condition: ds.Expression | None) -> pa.Table:
    try:
        return dataset.to_table(columns=columns, filter=condition)
    except pa.ArrowNotImplementedError:
        # If deltalake has rewritten a part of a file, its texts are string views, which Arrow
        # cannot compare while it scans.
        parts = [
            part.to_table(schema=dataset.schema).filter(condition).select(columns)
            for part in dataset.get_fragments(filter=condition)
        ]
        return pa.concat_tables([dataset.schema.empty_table().select(columns), *parts])


def _find_obstacle(path: Path) -> str | None:
    """What prevents a directory at this path; None if it exists or can be created."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            return f"{part} is a link to {part.readlink()}, which does not exist"
        if part.exists():
            return None if part.is_dir() else f"{part} is a file"
    return None


def explain_store(verb: str, path: str, error: Exception) -> ArchiveUnusable:
    """The error to raise if a store refuses, or holds something other than a table."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    if isinstance(error, FileNotFoundError) or "NotFound" in text or "No such file" in text:
        return ArchiveUnusable(
            f"the archive is damaged: a file of the table {path} is missing: {text[:400]}. Restore "
            f"it from a backup; see {page_url('audits/archive-tables', section='a-missing-file')}"
        )
    if isinstance(error, PermissionError) or "Permission denied" in text:
        return ArchiveUnusable(
            f"cannot {verb} {path}: Permission denied: give user {os.geteuid()}, which runs this "
            "process, the rights to read and write the archive"
        )
    meaning = explain_trouble(text)
    if meaning is not None:
        return ArchiveUnusable(f"cannot {verb} {path}: {meaning}: {text[:500]}")
    return ArchiveUnusable(f"cannot {verb} {path}: {text[:500]}")


def explain_trouble(text: str) -> str | None:
    """The cause and remedy for a known message of a store or disk; None for any other."""
    return next((advice for pattern, advice in _TROUBLES if re.search(pattern, text)), None)


def _overlaps(file: dict[str, Any], low: int, high: int) -> bool:
    least, most = file.get("min.run"), file.get("max.run")
    return least is None or most is None or (least <= high and most >= low)


def _is_worth(files: Sequence[dict[str, Any]], day: date) -> bool:
    """Whether the files of a day can be compacted: at least two are small."""
    small = [one for one in files if one["partition.date"] == day and one["size_bytes"] < 2**25]
    return len(small) > 1


def _with_run(table: str, rows: pa.Table, run: int) -> pa.Table:
    """Add the number of the run, and put the columns in the order of the table."""
    schema = SCHEMAS[table]
    numbers = pa.repeat(pa.scalar(run, pa.int64()), rows.num_rows)
    columns = {name: rows[name] for name in rows.column_names} | {"run": numbers}
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def local_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of the driver as a Spark frame."""
    # Each chunk becomes a partition, and if the first chunk is empty, Spark reads no rows. To
    # combine chunks takes the memory of all rows again.
    if rows.num_rows < _COMBINED_ROWS:
        return spark.createDataFrame(rows.combine_chunks())
    filled = [batch for batch in rows.to_batches() if batch.num_rows]
    return spark.createDataFrame(pa.Table.from_batches(filled, rows.schema))


def make_rows(table: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Build rows of a table; missing columns are null."""
    return pa.Table.from_pylist(list(rows), SCHEMAS[table])


def _overtaken(root: str) -> str:
    return (
        f"another run works on the archive {root}: this one ends, and the other one does its work. "
        "Run one audit of an archive at a time"
    )


def _other_layout(root: str, found: str) -> str:
    return (
        f"{root} has version {found} of the archive's layout; this release reads and writes version"
        f" {LAYOUT}. Give an empty directory to --archive, and read this one with the release that "
        "made it"
    )
