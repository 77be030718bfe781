"""Files of the archive: a directory, a volume, or an object store.

Local files need nothing but the operating system. All others go through Hadoop's file systems, and
so through a Spark session, which is opened when the first of them is asked for.

Parquet's writer lists the encodings of a column in the order of a hash set, which is another one in
each JVM (`ParquetMetadataConverter.addRowGroup`). In order, equal rows give equal bytes.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from pelops.pipeline.archive.local_files import LocalFiles, exchange, is_local, plain_path
from pelops.pipeline.engine.spark_session import LazySession, as_lazy
from pelops.pipeline.engine.sql import is_on_driver
from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pelops.pipeline.archive.hadoop_files import HadoopFiles


_END: Final = b"PAR1"
_SIZE_BYTES: Final = 4  # the footer's size stands before the end, the lowest byte first


def order_footer(jvm: Any, file: Path) -> None:
    """Write a local file's footer again with its lists in order. Raises ArchiveUnusable."""
    try:
        _order(jvm, file)
    except OSError as error:
        raise ArchiveUnusable(f"cannot write {file}: {error.strerror}") from error
    # What Hadoop noted of the bytes as they were. The pages have checksums of their own.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _order(jvm: Any, file: Path) -> None:
    with file.open("r+b") as parquet:
        at = parquet.seek(-_SIZE_BYTES - len(_END), 2)
        size = int.from_bytes(parquet.read(_SIZE_BYTES), "little")
        parquet.seek(at - size)
        footer = _in_order(jvm, parquet.read(size))
        parquet.seek(at - size)
        parquet.write(footer + len(footer).to_bytes(_SIZE_BYTES, "little") + _END)
        parquet.truncate()


def _in_order(jvm: Any, footer: bytes) -> bytes:
    structures = jvm.org.apache.parquet.format.Util
    found = structures.readFileMetaData(jvm.java.io.ByteArrayInputStream(footer))
    for group in found.getRow_groups():
        for column in group.getColumns():
            jvm.java.util.Collections.sort(column.getMeta_data().getEncodings())
    written = jvm.java.io.ByteArrayOutputStream()
    structures.writeFileMetaData(found, written)
    return bytes(written.toByteArray())


_OF_SPARK: Final = re.compile(r"part-(\d+)-[0-9a-f-]{36}-c(\d+)\b.*\.parquet$")


def plain_name(path: str) -> str:
    """The path of a file without what Spark's names of files have of the run that made it."""
    directory, slash, name = path.rpartition("/")
    found = _OF_SPARK.fullmatch(name)
    if found is None:
        return path
    more = f"-{found[2]}" if int(found[2]) else ""
    return f"{directory}{slash}part-{found[1]}{more}.parquet"


log: Final = logging.getLogger(__name__)
_MOVED_AT_ONCE: Final = 8
# Told with each write: a session of spark-submit's has options of its own, and bytes must be equal.
_OF_A_WRITE: Final = {
    "compression": "zstd",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# One copy of each object in place of two. It is no less safe where nobody looks before the end.
_ONE_COPY: Final = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}
_SUFFIX: Final = ".parquet"


class Files(Protocol):
    """One kind of file system."""

    def read(self, path: str) -> bytes | None: ...
    def write(self, path: str, content: bytes) -> None: ...
    def create(self, path: str, content: bytes) -> bool: ...
    def list_names(self, path: str) -> list[str]: ...
    def list_files(self, directory: str) -> list[str]: ...
    def list_sizes(self, path: str) -> dict[str, int]: ...
    def size(self, path: str) -> int: ...
    def exists(self, path: str) -> bool: ...
    def remove(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def find_obstacle(self, path: str) -> str | None: ...
    def make_directory(self, path: str) -> None: ...
    def renames_whole(self, path: str) -> bool: ...


class Storage:
    """Everything that the pipeline does to files but for the reading and writing of Parquet."""

    def __init__(self, session: SparkSession | LazySession) -> None:
        self.spark = as_lazy(session)
        self._local = LocalFiles()
        self._hadoop: HadoopFiles | None = None

    def check_interrupt(self) -> None:
        """Raises KeyboardInterrupt when what works here is to end: as a job of Spark is ended."""
        if self.spark.interrupted.is_set():
            raise KeyboardInterrupt

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The object in a file; None when there is no such file. Raises ArchiveUnusable."""
        text = self.read_text(path)
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ArchiveUnusable(f"{path} is not valid JSON: remove it, or its window") from error
        if not isinstance(found, dict):
            raise ArchiveUnusable(f"{path} is not a JSON object: remove it, or its window")
        return found

    def read_text(self, path: str) -> str | None:
        """The text of a file; None when there is none."""
        content = self._of(path).read(path)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str) -> bytes:
        """All of a file. Raises ArchiveUnusable."""
        content = self._of(path).read(path)
        if content is None:
            raise ArchiveUnusable(f"cannot read {path}: No such file or directory")
        return content

    def parquet_source(self, path: str) -> Path | io.BytesIO:
        """What pyarrow reads a Parquet file from: its path, or all of what lies elsewhere.

        Raises ArchiveUnusable.
        """
        return plain_path(path) if is_local(path) else io.BytesIO(self.read_bytes(path))

    def write_text(self, path: str, text: str) -> None:
        """Replace a file as a whole."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, content: bytes) -> None:
        """Replace a file as a whole."""
        self._of(path).write(path, content)

    def write_json(self, path: str, content: Mapping[str, Any]) -> None:
        """Replace a file by an object: equal objects give equal bytes."""
        self.write_text(path, render_json(content))

    def create_json(self, path: str, content: Mapping[str, Any]) -> bool:
        """Make a file that is not there yet; False when it is, which is then left as it was.

        Of several runs that make it at once one is told that it did, on local files, HDFS and s3a.
        """
        return self._of(path).create(path, render_json(content).encode())

    def list_names(self, path: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""
        return self._of(path).list_names(path)

    def list_sizes(self, path: str) -> dict[str, int]:
        """The bytes of each file in a directory, by its name; nothing without a directory."""
        return self._of(path).list_sizes(path)

    def list_files(self, directory: str) -> list[str]:
        """The files of a directory and those in it, by their paths from there."""
        return self._of(directory).list_files(directory)

    def size(self, path: str) -> int:
        """The bytes of a file, or of all files in a directory."""
        return self._of(path).size(path)

    def exchange(self, one: str, other: str) -> bool:
        """Let two directories change places in one step; False where the store has no such step."""
        return is_local(one) and is_local(other) and exchange(one, other)

    def exists(self, path: str) -> bool:
        return self._of(path).exists(path)

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all in it, if it is there."""
        self._of(path).remove(path)

    def discard(self, path: str) -> None:
        """Remove what nobody will read; where that fails, it stays, and the log says so."""
        try:
            self.remove(path)
        except ArchiveUnusable as error:
            log.warning("%s", error)

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, which nothing has. Raises RunOvertaken."""
        self._of(source).rename(source, target)

    def find_obstacle(self, path: str) -> str | None:
        """What lies where a directory would have to be, as in `/a/b is a file`; None: nothing."""
        return self._of(path).find_obstacle(path)

    def make_directory(self, path: str) -> None:
        self._of(path).make_directory(path)

    def put_in_place(self, directory: str, path: str) -> None:
        """Move a directory that is complete to where readers look for it.

        Safe to repeat, after a run that died in it, and while another run does the same. Readers
        may look once this has returned: until then, on an object store, the half may be there.
        """
        if not self._of(path).renames_whole(path):
            self._move_files(directory, path)
        else:
            self.put_file_in_place(directory, path)

    def put_file_in_place(self, source: str, target: str) -> None:
        """Move a file that is complete to where readers look for it. Safe to repeat."""
        if not self.exists(target):
            self.make_directory(target.rpartition("/")[0])
            self._rename_once(source, target)

    def write_parquet(self, frame: DataFrame, path: str) -> None:
        """Write a directory of Parquet in place of what was there.

        Its files have names that a repeat gives again: at once, or after `put_in_place`. On a local
        file system equal rows give equal bytes.
        """
        if is_on_driver():
            self._write_file(frame, path)
            return
        if not self._of(path).renames_whole(path):
            _write(frame, "parquet", path, path, **_ONE_COPY)
            return
        unfinished = f"{path}.{uuid4().hex}.unfinished"
        try:
            _write(frame, "parquet", unfinished, path)
            names = [name for name in self.list_names(unfinished) if name.endswith(_SUFFIX)]
            for number, name in enumerate(names):
                if is_local(path):
                    _order_footer(frame, f"{unfinished}/{name}")
                self.rename(f"{unfinished}/{name}", f"{unfinished}/part-{number:05d}{_SUFFIX}")
            self.remove(path)
            self.rename(unfinished, path)
        finally:
            self.discard(unfinished)

    def _write_file(self, frame: Any, path: str) -> None:
        """A frame of this process as the one file of a directory."""
        from pelops.pipeline.engine.arrow.parquet_output import render_parquet

        is_whole = self._of(path).renames_whole(path)
        directory = f"{path}.{uuid4().hex}.unfinished" if is_whole else path
        try:
            if not is_whole:
                self.remove(path)
            self.write_bytes(f"{directory}/part-00000{_SUFFIX}", render_parquet(frame))
            if is_whole:
                self.remove(path)
                self.rename(directory, path)
        finally:
            if is_whole:
                self.discard(directory)

    def write_lines(self, lines: DataFrame, path: str) -> None:
        """Replace a file by the lines of a frame of one column and one partition."""
        if is_on_driver():
            self.write_text(path, "".join(f"{row[0]}\n" for row in lines.collect()))
            return
        unfinished = f"{path}.{uuid4().hex}.unfinished"
        try:
            _write(lines, "text", unfinished, path, compression="none")
            (name,) = (one for one in self.list_names(unfinished) if one.startswith("part-"))
            self._of(path).remove(path)
            self._rename_once(f"{unfinished}/{name}", path)
        finally:
            self.discard(unfinished)

    def _move_files(self, directory: str, path: str) -> None:
        """An object is removed only when it was copied: what is left to move is what is there."""
        names = self.list_files(directory)
        if not names and not self.exists(directory) and not self.exists(path):
            raise ArchiveUnusable(f"{path} was removed while it was being written")
        self.make_directory(path)
        with ThreadPoolExecutor(_MOVED_AT_ONCE) as pool:
            ends = [(f"{directory}/{name}", f"{path}/{plain_name(name)}") for name in names]
            list(pool.map(lambda end: self._rename_once(*end), ends))
        self.remove(directory)

    def _rename_once(self, source: str, target: str) -> None:
        """Rename; that another run has done so, or a run that died nearly had, is as good."""
        try:
            self.rename(source, target)
        except (RunOvertaken, ArchiveUnusable):
            if not self.exists(target):
                raise

    def _of(self, path: str) -> Files:
        return self._local if is_local(path) else self._on_hadoop()

    def _on_hadoop(self) -> HadoopFiles:
        if self._hadoop is None:
            # Here, since it needs Java.
            from pelops.pipeline.archive.hadoop_files import HadoopFiles

            self._hadoop = HadoopFiles(self.spark.get())
        return self._hadoop


def render_json(content: Mapping[str, Any]) -> str:
    """An object as text for people and programs: equal objects give equal text."""
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _write(frame: DataFrame, kind: str, directory: str, path: str, **options: str) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from pelops.pipeline.engine.spark_errors import explain_failure

    writer = frame.write.format(kind).mode("overwrite")
    try:
        writer.options(**{**_OF_A_WRITE, **options}).save(directory)
    except (Py4JJavaError, PySparkException) as error:
        raise explain_failure(error, path) from error


def _order_footer(frame: DataFrame, path: str) -> None:

    jvm: Any = frame.sparkSession._jvm
    order_footer(jvm, plain_path(path))
