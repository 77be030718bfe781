"""What makes frames: rows at hand, Parquet of an archive, and streams of Redis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.pipeline.archive.local_files import is_local, plain_path
from pelops.pipeline.engine.arrow.frame import Frame
from pelops.pipeline.engine.arrow.values import parse_schema, spark_schema
from pelops.pipeline.errors import ArchiveUnusable

if TYPE_CHECKING:
    from pelops.pipeline.archive.storage import Storage


_SUFFIX: Final = ".parquet"
_SOURCE: Final = "redis_streams"


class ArrowSession:
    """Makes frames of this process, in the words of `pyspark.sql.SparkSession`."""

    def __init__(self, storage: Storage | None) -> None:
        self._storage = storage

    @property
    def read(self) -> FrameReader:
        return FrameReader(self._storage)

    def createDataFrame(self, rows: Iterable[Sequence[Any]], schema: str) -> Frame:  # noqa: N802
        """Rows at hand, with the columns of a schema."""
        wanted, given = parse_schema(schema), list(rows)
        columns = {
            field.name: pa.array([row[place] for row in given], field.type)
            for place, field in enumerate(wanted)
        }
        return Frame(columns, len(given))


class FrameReader:
    """Reads one frame, in the words of `pyspark.sql.DataFrameReader`."""

    def __init__(self, storage: Storage | None) -> None:
        self._storage = storage
        self._format = "parquet"
        self._schema: str | None = None
        self._options: dict[str, str] = {}

    def format(self, name: str) -> Self:
        self._format = name
        return self

    def schema(self, schema: str) -> Self:
        self._schema = schema
        return self

    def option(self, name: str, value: Any) -> Self:
        self._options[name] = str(value)
        return self

    def options(self, **options: str) -> Self:
        self._options |= options
        return self

    def parquet(self, *paths: str) -> Frame:
        """The rows of files and of directories of files. Raises ArchiveUnusable."""
        files = [file for path in paths for file in self._files(path)]
        if not files:
            raise ArchiveUnusable(f"{', '.join(paths)}: there is no Parquet")
        tables = [self._read(file) for file in files]
        return Frame.of(pa.concat_tables(tables, promote_options="permissive"))

    def load(self, path: str | None = None) -> Frame:
        """What the format reads. Raises RedisStreamsError."""
        if self._format == "parquet" and path is not None:
            return self.parquet(path)
        if self._format != _SOURCE or self._schema is None:
            raise TypeError(f"a frame of this process is not read from {self._format!r}")
        # Here, since it needs PySpark's types.
        from pyspark_redis_streams.source import DefaultSource

        schema = parse_schema(self._schema)
        reader = DefaultSource(self._options).reader(spark_schema(schema))
        batches = []
        for part in reader.partitions():
            for batch in reader.read(part):
                batches.append(batch)
                if self._storage is not None:
                    self._storage.check_interrupt()
        return Frame.of(pa.Table.from_batches(batches, None if batches else schema))

    def _files(self, path: str) -> list[str]:
        if path.endswith(_SUFFIX):
            return [path]
        assert self._storage is not None
        names = self._storage.list_names(path)
        return [f"{path}/{name}" for name in names if name.endswith(_SUFFIX)]

    def _read(self, file: str) -> pa.Table:
        if is_local(file):
            source: Any = plain_path(file)
        else:
            assert self._storage is not None
            source = self._storage.parquet_source(file)
        try:
            # By itself: names of directories are no columns.
            with pq.ParquetFile(source) as parquet:
                return parquet.read(use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise ArchiveUnusable(f"cannot read {file}: {error}") from error
