"""Tables and records of an archive, read with Arrow alone: no Spark, and no Java to start.

Filters are pushed down to the statistics of Parquet's row groups, so that a few entries of a large
table are found by its footers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from pelops.pipeline.archive.layout import (
    STATUSES,
    VERSION,
    layout_path,
    records_path,
    slug,
    statuses_path,
    window_numbers,
)
from pelops.pipeline.archive.windows import Plan, parse_plan
from pelops.pipeline.errors import ArchiveUnusable, FileDamaged

Row = dict[str, Any]
_S3: Final = ("s3a://", "s3n://", "s3://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedStream:
    """A stream of the archive, by the plan of its newest window."""

    name: str
    groups: tuple[str, ...]
    windows: tuple[int, ...]
    business_key: str | None
    payload: str


class ArchiveFiles:
    """An archive in a directory or an object store. Its methods raise ArchiveUnusable."""

    def __init__(self, root: str, environment: Mapping[str, str] | None = None) -> None:
        if not root.strip():
            raise ArchiveUnusable("no archive: give --archive PATH")
        self._files, path = _open(root, os.environ if environment is None else environment)
        self.root: Final = path.rstrip("/")
        self._left_out: set[str] = set()
        self._shown = root
        reported = self.read_record(layout_path(self.root))
        if reported is None:
            file = self._find_file()
            problem = (
                f"{root} does not hold an archive of this release: give"
                if file is None
                else f"the archive path {root} cannot be used: {file} is a file. Give"
            )
            raise ArchiveUnusable(f"{problem} the directory that --archive of `audit` names")
        if reported.get("version") != VERSION:
            raise ArchiveUnusable(
                f"{root} has version {reported.get('version')} of the archive's layout; this "
                "release "
                f"reads version {VERSION}. Use the release that made it"
            )

    def streams(self) -> list[ArchivedStream]:
        """Every stream that the archive holds."""
        base = records_path(self.root)
        names = [name for name in self.names(base) if name.startswith("stream=")]
        found = [self._stream(f"{base}/{name}") for name in names]
        return [one for one in found if one is not None]

    def names(self, directory: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""
        return sorted(one.base_name for one in self._list(directory, recursive=False))

    def read_record(self, path: str) -> dict[str, Any] | None:
        """An object of JSON; None when there is no such file. Raises FileDamaged."""
        try:
            with self._files.open_input_stream(path) as stream:
                found = json.loads(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise FileDamaged(f"cannot read {path}: {_first_line(error)}") from error
        except OSError as error:
            raise ArchiveUnusable(f"cannot read {path}: {_first_line(error)}") from error
        return found if isinstance(found, dict) else {}

    def read_plan(self, path: str) -> Plan | None:
        """The plan of a window; None when there is none, or none that can be read."""
        try:
            found = self.read_record(path)
            return None if found is None else parse_plan(found, path)
        except FileDamaged:
            return None

    def sizes(self, table: str, stream: str) -> dict[str, int]:
        """The Parquet files of a stream's part of a table, with the bytes of each."""
        return {path: size for path, _, size in self._parquet(table, stream)}

    def count_rows(self, path: str) -> int:
        """The rows of a Parquet file by its footer. Raises FileDamaged for none that is."""
        try:
            with self._files.open_input_file(path) as file:
                return int(pq.read_metadata(file).num_rows)
        except (OSError, pa.ArrowInvalid) as error:
            raise FileDamaged(f"cannot read {path}: {_first_line(error)}") from error

    def leave_out(self, paths: Iterable[str]) -> None:
        """Read these files no more: they are known to be damaged."""
        self._left_out.update(paths)

    def shown(self, path: str) -> str:
        """A path of the archive as its user writes it."""
        return f"{self._shown.rstrip('/')}{path.removeprefix(self.root)}"

    def rows(self, table: str, stream: str, schema: pa.Schema, wanted: ds.Expression) -> list[Row]:
        """Rows of a stream's part of a table; a file lacks the columns that are null in it."""
        files = [path for path, _, _ in self._parquet(table, stream)]
        return self._read(files, schema, wanted)

    def rows_by_group(
        self, table: str, stream: str, schema: pa.Schema, wanted: ds.Expression
    ) -> list[tuple[str, Row]]:
        """As `rows`, of a table that is kept by groups: each row with its group's directory."""
        by_group: dict[str, list[str]] = {}
        for path, below, _ in self._parquet(table, stream):
            group = next((part for part in below.split("/") if part.startswith("group=")), "")
            by_group.setdefault(group, []).append(path)
        return [
            (group, row)
            for group, files in sorted(by_group.items())
            for row in self._read(files, schema, wanted)
        ]

    def has(self, table: str, stream: str) -> bool:
        """Whether the table holds anything of the stream."""
        return bool(self._parquet(table, stream))

    def _find_file(self) -> str | None:
        """The nearest part of the archive's path that is there, when it is a file."""
        path = PurePosixPath(self.root)
        try:
            found = self._files.get_file_info([str(one) for one in (path, *path.parents)[:-1]])
        except OSError:  # who may use a part of a bucket alone may not ask what lies above it
            return None
        there = next((one for one in found if one.type != fs.FileType.NotFound), None)
        if there is None or there.type != fs.FileType.File:
            return None
        return self._shown if there.path == self.root else str(there.path)

    def _stream(self, directory: str) -> ArchivedStream | None:
        numbers = window_numbers(self.names(directory))
        for number in reversed(numbers):
            plan = self.read_plan(f"{directory}/window={number}/plan.json")
            if plan is not None:
                return ArchivedStream(
                    name=plan.stream,
                    groups=tuple(one.group for one in plan.targets),
                    windows=tuple(numbers),
                    business_key=plan.business_key,
                    payload=plan.payload,
                )
        return None

    def _parquet(self, table: str, stream: str) -> list[tuple[str, str, int]]:
        """Files of a stream's part of a table, each with its path below the table and its bytes."""
        if table == STATUSES:
            base = statuses_path(self.root)
            days = [name for name in self.names(base) if name.startswith("date=")]
            places = [f"{base}/{day}/{slug(stream)}" for day in days]
        else:
            base = f"{self.root}/{table}"
            places = [f"{base}/stream={slug(stream)}"]
        found = [
            (one.path, one.path[len(base) + 1 :], one.size)
            for place in places
            for one in self._list(place, recursive=True)
            if one.type == fs.FileType.File
            and one.path.endswith(".parquet")
            and one.path not in self._left_out
        ]
        return sorted(found)

    def _read(self, files: list[str], schema: pa.Schema, wanted: ds.Expression) -> list[Row]:
        if not files:
            return []
        try:
            table = ds.dataset(files, schema=schema, format="parquet", filesystem=self._files)
            found: list[Row] = table.to_table(filter=wanted).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise ArchiveUnusable(f"cannot read {self._shown}: {_first_line(error)}") from error
        return found

    def _list(self, directory: str, *, recursive: bool) -> list[Any]:
        asked = fs.FileSelector(directory, recursive=recursive, allow_not_found=True)
        try:
            return list(self._files.get_file_info(asked))
        except OSError as error:
            raise ArchiveUnusable(f"cannot list {self._shown}: {_first_line(error)}") from error


def _open(root: str, environment: Mapping[str, str]) -> tuple[Any, str]:
    """The file system of a path or an address, and the path in it."""
    prefix = next((one for one in _S3 if root.startswith(one)), None)
    try:
        if prefix is not None:
            return _open_s3(environment), root.removeprefix(prefix).rstrip("/")
        if "://" in root or root.startswith("file:"):
            found, path = fs.FileSystem.from_uri(_plain(root))
            return found, path
    except (OSError, pa.ArrowInvalid) as error:
        raise ArchiveUnusable(f"cannot open {root}: {_first_line(error)}") from error
    return fs.LocalFileSystem(), os.path.abspath(root)


def _open_s3(environment: Mapping[str, str]) -> Any:
    """The store that the pipeline writes to, by the variables that it reads."""
    reported = environment.get("PELOPS_AUDIT_S3_ENDPOINT", "")
    scheme, found, host = reported.rpartition("://")
    region = environment.get("PELOPS_AUDIT_S3_REGION") or ("us-east-1" if reported else None)
    return fs.S3FileSystem(
        endpoint_override=host or None, scheme=scheme if found else "https", region=region
    )


def _plain(root: str) -> str:
    """`file:/path`, which Hadoop writes, as the address that Arrow reads."""
    return root if "://" in root else f"file://{root.removeprefix('file:')}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
