"""Files of an archive through Hadoop's file systems: an object store, HDFS.

What is complete appears at once: where a rename moves a whole directory, by rename; on an object
store, where a rename copies object by object, by one request that makes the object.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from pelops.pipeline.archive.local_files import link_exclusively, plain_path
from pelops.pipeline.engine.spark_errors import explain_storage, is_missing, is_refused
from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCAL: Final = "file"
_RENAMED_WHOLE: Final = frozenset({LOCAL, "hdfs"})  # file systems; of others it is not assumed
# What Hadoop calls a file that appears when it is closed, and only where there is none.
_ONLY_IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
_TRIES: Final = 5  # to make an object while another run makes it: a store may refuse both
_BETWEEN_TRIES_S: Final = 0.2
_Answer = TypeVar("_Answer")
_Other = TypeVar("_Other")


class HadoopFiles:
    """What `Storage` asks of a file system; raises ArchiveUnusable, which names the path."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session._jvm
        self._conf = session._jsc.hadoopConfiguration()

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None when there is none."""

        def read(files: Any, place: Any) -> bytes:
            stream = files.open(place)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self._ask(path, "read", read, None)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file as a whole."""
        if not self.renames_whole(path):
            self._do(path, "write", lambda files, place: _fill(files.create(place, True), content))
            return
        unfinished = self._write_beside(path, content)
        # Of two runs that replace a file at once, either may win: it is whole in any case.
        self._do(path, "write", lambda files, place: files.delete(place, False))
        try:
            self.rename(unfinished, path)
        except (RunOvertaken, ArchiveUnusable):
            if not self.exists(path):
                raise

    def create(self, path: str, content: bytes) -> bool:
        """Make a file unless there is one; of several that do so at once one is reported it did."""
        if self._do(path, "create", lambda f, place: f.hasPathCapability(place, _ONLY_IF_ABSENT)):
            return self._create_object(path, content)
        unfinished = self._write_beside(path, content)
        try:
            return self._link(unfinished, path)
        except ArchiveUnusable:
            # Another run that ends removes what is unfinished, ours too: then its file is there.
            if self.exists(path):
                return False
            raise
        finally:
            with suppress(ArchiveUnusable):
                self.remove(unfinished)

    def list_names(self, path: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""

        def names(files: Any, place: Any) -> list[str]:
            return sorted(str(one.getPath().getName()) for one in files.listStatus(place))

        return self._ask(path, "list", names, [])

    def list_files(self, directory: str) -> list[str]:
        """The files of a directory and those in it, by their paths from there."""

        def names(files: Any, place: Any) -> list[str]:
            base = str(files.makeQualified(place).toString())
            found, each = [], files.listFiles(place, True)
            while each.hasNext():
                found.append(str(each.next().getPath().toString())[len(base) + 1 :])
            return sorted(found)

        return self._ask(directory, "list", names, [])

    def list_sizes(self, path: str) -> dict[str, int]:
        """The bytes of each file in a directory, by its name; nothing without a directory."""

        def sizes(files: Any, place: Any) -> dict[str, int]:
            found = files.listStatus(place)
            return {str(one.getPath().getName()): int(one.getLen()) for one in found}

        return self._ask(path, "list", sizes, {})

    def size(self, path: str) -> int:
        """The bytes of a file, or of all files in a directory."""
        return self._do(path, "read", lambda f, place: int(f.getContentSummary(place).getLength()))

    def exists(self, path: str) -> bool:
        return self._do(path, "read", lambda files, place: bool(files.exists(place)))

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all in it, if it is there."""
        self._do(path, "remove", lambda files, place: files.delete(place, True))

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, which nothing has. Raises RunOvertaken."""
        to = self._jvm.org.apache.hadoop.fs.Path(target)
        if not self._do(source, "rename", lambda files, place: bool(files.rename(place, to))):
            raise RunOvertaken(f"{target} could not be written: another run works in this archive")

    def find_obstacle(self, path: str) -> str | None:
        """What lies where a directory would have to be; None when the path is one, or can be."""

        def find(files: Any, place: Any) -> str | None:
            while place is not None:
                try:
                    there = files.getFileStatus(place)
                except Py4JJavaError as error:
                    if not is_missing(error):
                        raise
                    place = place.getParent()
                else:
                    return None if there.isDirectory() else f"{place.toString()} is a file"
            return None

        try:
            return self._do(path, "read", find)
        except ArchiveUnusable as error:
            # Who may use a prefix of a bucket alone may not ask what lies above it.
            if is_refused(error.__cause__):
                return None
            raise

    def make_directory(self, path: str) -> None:
        self._do(path, "create", lambda files, place: files.mkdirs(place))

    def renames_whole(self, path: str) -> bool:
        """Whether a rename moves a directory at once."""
        return self.scheme(path) in _RENAMED_WHOLE

    def scheme(self, path: str) -> str:
        return self._do(path, "read", lambda files, _: str(files.getUri().getScheme()))

    def _create_object(self, path: str, content: bytes) -> bool:
        def create(files: Any, place: Any) -> None:
            builder = files.createFile(place).recursive().overwrite(False)
            _fill(builder.must(_ONLY_IF_ABSENT, True).build(), content)

        for left in reversed(range(_TRIES)):
            try:
                self._do(path, "create", create)
            except ArchiveUnusable:
                found = self.read(path)
                if found is not None:
                    # When an answer is lost, it is our own object that is in the way.
                    return found == content
                if not left:
                    raise
                time.sleep(_BETWEEN_TRIES_S)
            else:
                return True
        raise AssertionError("the last try answers or raises")

    def _write_beside(self, path: str, content: bytes) -> str:
        unfinished = f"{path}.{uuid4().hex}.unfinished"

        def write(files: Any, place: Any) -> None:
            files.mkdirs(place.getParent())
            _fill(files.create(place, True), content)

        self._do(unfinished, "write", write)
        return unfinished

    def _link(self, unfinished: str, path: str) -> bool:
        if self.scheme(path) == LOCAL:
            return link_exclusively(plain_path(unfinished), path)
        if self.exists(path):
            return False
        try:
            self.rename(unfinished, path)
        except RunOvertaken:
            if not self.exists(path):
                raise
            return False
        return True

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


def _fill(stream: Any, content: bytes) -> None:
    stream.write(bytearray(content))
    # Not after a write that failed: an object appears when its stream is closed, half or whole.
    stream.close()
