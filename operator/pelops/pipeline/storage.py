"""Files of the archive, through Hadoop's file systems: a directory, a volume, or an object store.

What is complete appears by rename, so that a reader never sees the half of a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken
from pelops.pipeline.failures import explain_failure

_LOCAL: Final = "file"


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

        def read(files: Any, place: Any) -> str | None:
            if not files.exists(place):
                return None
            stream = files.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

        text: str | None = self._do(path, "read", read)
        return text

    def write_text(self, path: str, text: str) -> None:
        """Replace a file as a whole."""
        unfinished = self._write_beside(path, text)
        self._do(path, "write", lambda files, place: files.delete(place, False))
        self.rename(unfinished, path)

    def write_json(self, path: str, content: Mapping[str, Any]) -> None:
        """Replace a file by an object: equal objects give equal bytes."""
        self.write_text(path, render_json(content))

    def create_json(self, path: str, content: Mapping[str, Any]) -> bool:
        """Make a file that is not there yet; False when it is, which is then left as it was."""
        unfinished = self._write_beside(path, render_json(content))
        try:
            return self._link(unfinished, path)
        finally:
            self._do(unfinished, "remove", lambda files, place: files.delete(place, False))

    def list_names(self, path: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""

        def names(files: Any, place: Any) -> list[str]:
            if not files.exists(place):
                return []
            return sorted(str(one.getPath().getName()) for one in files.listStatus(place))

        found: list[str] = self._do(path, "list", names)
        return found

    def exists(self, path: str) -> bool:
        return bool(self._do(path, "read", lambda files, place: files.exists(place)))

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all in it, if it is there."""
        self._do(path, "remove", lambda files, place: files.delete(place, True))

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, which nothing has. Raises RunOvertaken."""
        to = self._jvm.org.apache.hadoop.fs.Path(target)
        if not self._do(source, "rename", lambda files, place: bool(files.rename(place, to))):
            raise RunOvertaken(f"{target} could not be put in place: another run works there")

    def make_directory(self, path: str) -> None:
        self._do(path, "create", lambda files, place: files.mkdirs(place))

    def write_parquet(self, frame: DataFrame, path: str) -> list[str]:
        """Write a directory of Parquet with file names that a repeat gives again.

        What was there is replaced. Answers the names, in the order of the partitions.
        """
        unfinished = f"{path}.{uuid4().hex}.unfinished"
        try:
            self._write(frame, unfinished, path)
            names = [name for name in self.list_names(unfinished) if name.endswith(".parquet")]
            told = [f"part-{number:05d}.parquet" for number in range(len(names))]
            for name, plain in zip(names, told, strict=True):
                self.rename(f"{unfinished}/{name}", f"{unfinished}/{plain}")
            self.remove(f"{unfinished}/_SUCCESS")
            self.remove(path)
            self.rename(unfinished, path)
        finally:
            self.remove(unfinished)
        return told

    @staticmethod
    def _write(frame: DataFrame, unfinished: str, path: str) -> None:
        try:
            frame.write.parquet(unfinished)
        except (Py4JJavaError, PySparkException) as error:
            raise explain_failure(error, path) from error

    def _write_beside(self, path: str, text: str) -> str:
        unfinished = f"{path}.{uuid4().hex}.unfinished"

        def write(files: Any, place: Any) -> None:
            files.mkdirs(place.getParent())
            stream = files.create(place, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

        self._do(unfinished, "write", write)
        return unfinished

    def _link(self, unfinished: str, path: str) -> bool:
        if self._scheme(path) == _LOCAL:
            return _link_locally(_plain(unfinished), _plain(path))
        if self.exists(path):
            return False
        self.rename(unfinished, path)
        return True

    def _scheme(self, path: str) -> str:
        return str(self._do(path, "read", lambda files, _: files.getUri().getScheme()))

    def _do(self, path: str, what: str, action: Any) -> Any:
        try:
            place = self._jvm.org.apache.hadoop.fs.Path(path)
            return action(place.getFileSystem(self._conf), place)
        except Py4JJavaError as error:
            told = str(error.java_exception.getMessage() or error.java_exception).splitlines()[0]
            raise ArchiveUnusable(f"cannot {what} {path}: {told}") from error


def render_json(content: Mapping[str, Any]) -> str:
    """An object as text for people and programs: equal objects give equal text."""
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _link_locally(source: str, target: str) -> bool:
    """Exclusive, as a rename is not: of two that make a file at once, one is told that it did."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        raise ArchiveUnusable(f"cannot write {target}: {error.strerror}") from error
    return True


def _plain(path: str) -> str:
    return (
        path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    )
