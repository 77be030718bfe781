"""Files of the archive, through Hadoop's file systems: a directory, a volume, or an object store.

What is complete appears at once: where a rename moves a whole directory, by rename; on an object
store, where a rename copies object by object, by one request that makes the object.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken
from pelops.pipeline.failures import explain_failure, explain_storage, is_missing
from pelops.pipeline.footer_order import order_footer
from pelops.pipeline.local_links import exchange, link_exclusively, plain_path, read_file
from pelops.pipeline.part_names import plain_name

log: Final = logging.getLogger(__name__)
_LOCAL: Final = "file"
_RENAMED_WHOLE: Final = frozenset({_LOCAL, "hdfs"})  # file systems; of others it is not assumed
# What Hadoop calls a file that appears when it is closed, and only where there is none.
_ONLY_IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
_TRIES: Final = 5  # to make an object while another run makes it: a store may refuse both
_BETWEEN_TRIES_S: Final = 0.2
_MOVED_AT_ONCE: Final = 8
# Told with each write: a session of spark-submit's has options of its own, and bytes must be equal.
_OF_A_WRITE: Final = {
    "compression": "zstd",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# One copy of each object in place of two. It is no less safe where nobody looks before the end.
_ONE_COPY: Final = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}
_Answer = TypeVar("_Answer")
_Other = TypeVar("_Other")


class Storage:
    """Everything that the pipeline does to files but for the reading and writing of Parquet."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session._jvm
        self._conf = session._jsc.hadoopConfiguration()

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The object in a file; None when there is no such file. Raises ArchiveUnusable."""
        text = self.read_text(path)
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ArchiveUnusable(f"{path} holds no JSON: remove it, or its window") from error
        if not isinstance(found, dict):
            raise ArchiveUnusable(f"{path} holds no JSON object: remove it, or its window")
        return found

    def read_text(self, path: str) -> str | None:
        """The text of a file; None when there is none."""

        def read(files: Any, place: Any) -> str:
            stream = files.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

        return self._ask(path, "read", read, None)

    def write_text(self, path: str, text: str) -> None:
        """Replace a file as a whole."""
        if not self._is_renamed_whole(path):
            self._do(
                path, "write", lambda files, place: _fill(files.create(place, True), text.encode())
            )
            return
        unfinished = self._write_beside(path, text)
        self._replace(unfinished, path)

    def write_json(self, path: str, content: Mapping[str, Any]) -> None:
        """Replace a file by an object: equal objects give equal bytes."""
        self.write_text(path, render_json(content))

    def create_json(self, path: str, content: Mapping[str, Any]) -> bool:
        """Make a file that is not there yet; False when it is, which is then left as it was.

        Of several runs that make it at once one is told that it did, on local files, HDFS and s3a.
        """
        text = render_json(content)
        if self._do(path, "create", lambda f, place: f.hasPathCapability(place, _ONLY_IF_ABSENT)):
            return self._create_object(path, text)
        unfinished = self._write_beside(path, text)
        try:
            return self._link(unfinished, path)
        except ArchiveUnusable:
            # Another run that ends removes what is unfinished, ours too: then its file is there.
            if self.exists(path):
                return False
            raise
        finally:
            self.discard(unfinished)

    def read_bytes(self, path: str) -> bytes:
        """All of a file. Raises ArchiveUnusable."""
        if self._scheme(path) == _LOCAL:
            return read_file(path)

        def read(files: Any, place: Any) -> bytes:
            stream = files.open(place)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self._do(path, "read", read)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file that nobody reads yet."""

        def write(files: Any, place: Any) -> None:
            files.mkdirs(place.getParent())
            _fill(files.create(place, True), data)

        self._do(path, "write", write)

    def size(self, path: str) -> int:
        """The bytes of a file, or of all files in a directory."""
        return self._do(path, "read", lambda f, place: int(f.getContentSummary(place).getLength()))

    def exchange(self, one: str, other: str) -> bool:
        """Let two directories change places in one step; False where the store has no such step."""
        return self._scheme(one) == _LOCAL and exchange(one, other)

    def list_names(self, path: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""

        def names(files: Any, place: Any) -> list[str]:
            return sorted(str(one.getPath().getName()) for one in files.listStatus(place))

        return self._ask(path, "list", names, [])

    def list_sizes(self, path: str) -> dict[str, int]:
        """The bytes of each file in a directory, by its name; nothing without a directory."""

        def sizes(files: Any, place: Any) -> dict[str, int]:
            found = files.listStatus(place)
            return {str(one.getPath().getName()): int(one.getLen()) for one in found}

        return self._ask(path, "list", sizes, {})

    def list_files(self, directory: str) -> list[str]:
        """The files of a directory and those in it, by their paths from there."""

        def names(files: Any, place: Any) -> list[str]:
            base = str(files.makeQualified(place).toString())
            found, each = [], files.listFiles(place, True)
            while each.hasNext():
                found.append(str(each.next().getPath().toString())[len(base) + 1 :])
            return sorted(found)

        return self._ask(directory, "list", names, [])

    def exists(self, path: str) -> bool:
        return self._do(path, "read", lambda files, place: bool(files.exists(place)))

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all in it, if it is there."""
        self._do(path, "remove", lambda files, place: files.delete(place, True))

    def discard(self, path: str) -> None:
        """Remove what nobody will read; where that fails, it stays, and the log says so."""
        try:
            self.remove(path)
        except ArchiveUnusable as error:
            log.warning("%s", error)

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, which nothing has. Raises RunOvertaken."""
        to = self._jvm.org.apache.hadoop.fs.Path(target)
        if not self._do(source, "rename", lambda files, place: bool(files.rename(place, to))):
            raise RunOvertaken(f"{target} could not be put in place: another run works there")

    def make_directory(self, path: str) -> None:
        self._do(path, "create", lambda files, place: files.mkdirs(place))

    def put_in_place(self, directory: str, path: str) -> None:
        """Move a directory that is complete to where readers look for it.

        Safe to repeat, after a run that died in it, and while another run does the same. Readers
        may look once this has returned: until then, on an object store, the half may be there.
        """
        if not self._is_renamed_whole(path):
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
        if not self._is_renamed_whole(path):
            self._write(frame, "parquet", path, path, **_ONE_COPY)
            return
        unfinished = f"{path}.{uuid4().hex}.unfinished"
        try:
            self._write(frame, "parquet", unfinished, path)
            names = [name for name in self.list_names(unfinished) if name.endswith(".parquet")]
            for number, name in enumerate(names):
                if self._scheme(unfinished) == _LOCAL:
                    order_footer(self._jvm, plain_path(f"{unfinished}/{name}"))
                self.rename(f"{unfinished}/{name}", f"{unfinished}/part-{number:05d}.parquet")
            self.remove(path)
            self.rename(unfinished, path)
        finally:
            self.discard(unfinished)

    def write_lines(self, lines: DataFrame, path: str) -> None:
        """Replace a file by the lines of a frame of one column and one partition."""
        unfinished = f"{path}.{uuid4().hex}.unfinished"
        try:
            self._write(lines, "text", unfinished, path, compression="none")
            (name,) = (one for one in self.list_names(unfinished) if one.startswith("part-"))
            self._replace(f"{unfinished}/{name}", path)
        finally:
            self.discard(unfinished)

    @staticmethod
    def _write(frame: DataFrame, kind: str, directory: str, path: str, **options: str) -> None:
        writer = frame.write.format(kind).mode("overwrite")
        try:
            writer.options(**{**_OF_A_WRITE, **options}).save(directory)
        except (Py4JJavaError, PySparkException) as error:
            raise explain_failure(error, path) from error

    def _move_files(self, directory: str, path: str) -> None:
        """An object is removed only when it was copied: what is left to move is what is there."""
        names = self.list_files(directory)
        if not names and not self.exists(directory) and not self.exists(path):
            raise ArchiveUnusable(f"{path} was removed while it was made")
        self.make_directory(path)
        with ThreadPoolExecutor(_MOVED_AT_ONCE) as pool:
            ends = [(f"{directory}/{name}", f"{path}/{plain_name(name)}") for name in names]
            list(pool.map(lambda end: self._rename_once(*end), ends))
        self.remove(directory)

    def _replace(self, source: str, path: str) -> None:
        """Of two runs that replace a file at once, either may win: it is whole in any case."""
        self._do(path, "write", lambda files, place: files.delete(place, False))
        self._rename_once(source, path)

    def _rename_once(self, source: str, target: str) -> None:
        """Rename; that another run has done so, or a run that died nearly had, is as good."""
        try:
            self.rename(source, target)
        except (RunOvertaken, ArchiveUnusable):
            if not self.exists(target):
                raise

    def _create_object(self, path: str, text: str) -> bool:
        def create(files: Any, place: Any) -> None:
            builder = files.createFile(place).recursive().overwrite(False)
            _fill(builder.must(_ONLY_IF_ABSENT, True).build(), text.encode())

        for left in reversed(range(_TRIES)):
            try:
                self._do(path, "create", create)
            except ArchiveUnusable:
                found = self.read_text(path)
                if found is not None:
                    # When an answer is lost, it is our own object that is in the way.
                    return found == text
                if not left:
                    raise
                time.sleep(_BETWEEN_TRIES_S)
            else:
                return True
        raise AssertionError("the last try answers or raises")

    def _write_beside(self, path: str, text: str) -> str:
        unfinished = f"{path}.{uuid4().hex}.unfinished"

        def write(files: Any, place: Any) -> None:
            files.mkdirs(place.getParent())
            _fill(files.create(place, True), text.encode())

        self._do(unfinished, "write", write)
        return unfinished

    def _link(self, unfinished: str, path: str) -> bool:
        if self._scheme(path) == _LOCAL:
            return link_exclusively(unfinished, path)
        if self.exists(path):
            return False
        try:
            self.rename(unfinished, path)
        except RunOvertaken:
            if not self.exists(path):
                raise
            return False
        return True

    def _is_renamed_whole(self, path: str) -> bool:
        return self._scheme(path) in _RENAMED_WHOLE

    def _scheme(self, path: str) -> str:
        return self._do(path, "read", lambda files, _: str(files.getUri().getScheme()))

    def _ask(
        self, path: str, what: str, action: Callable[[Any, Any], _Answer], absent: _Other
    ) -> _Answer | _Other:
        """What the action answers; `absent` where there is nothing, or since a moment no more."""
        try:
            return self._do(path, what, action)
        except ArchiveUnusable as error:
            if is_missing(error.__cause__):
                return absent
            raise

    def _do(self, path: str, what: str, action: Callable[[Any, Any], _Answer]) -> _Answer:
        try:
            place = self._jvm.org.apache.hadoop.fs.Path(path)
            return action(place.getFileSystem(self._conf), place)
        except Py4JJavaError as error:
            raise ArchiveUnusable(f"cannot {what} {path}: {explain_storage(error)}") from error


def render_json(content: Mapping[str, Any]) -> str:
    """An object as text for people and programs: equal objects give equal text."""
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _fill(stream: Any, data: bytes) -> None:
    stream.write(bytearray(data))
    # Not after a write that failed: an object appears when its stream is closed, half or whole.
    stream.close()
