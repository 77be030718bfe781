"""Files of an archive on a local file system: nothing of this needs Java."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken

_SCHEME: Final = "file:"
_HERE: Final = -100  # AT_FDCWD: paths are from where the process is
_RENAME_EXCHANGE: Final = 2
_TRIES: Final = 5  # to remove a directory in which another run works
# Where these are set, a path without a scheme is what Hadoop's configuration makes of it.
_OF_HADOOP: Final = ("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT")
_TAKEN: Final = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR}


def is_local(path: str) -> bool:
    """Whether a path names a file of this machine, unless Hadoop is set up to mean another."""
    if path.startswith(_SCHEME):
        return True
    return "://" not in path and not any(os.environ.get(name) for name in _OF_HADOOP)


def plain_path(path: str) -> Path:
    """The path of a path or of a file: address."""
    bare = path.removeprefix(_SCHEME) if path.startswith(_SCHEME) else path
    return Path(bare.removeprefix("//") if bare.startswith("///") else bare)


class LocalFiles:
    """What `Storage` asks of a file system; raises ArchiveUnusable, which names the path."""

    def renames_whole(self, _: str) -> bool:
        """Whether a rename moves a directory at once."""
        return True

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None when there is none."""
        with _explained("read", path):
            try:
                return plain_path(path).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, path: str, content: bytes) -> None:
        """Replace a file as a whole."""
        unfinished = self._write_beside(path, content)
        with _explained("write", path):
            os.replace(unfinished, plain_path(path))
        _forget_checksum(plain_path(path))

    def create(self, path: str, content: bytes) -> bool:
        """Make a file unless there is one; of several that do so at once one is reported it did."""
        unfinished = self._write_beside(path, content)
        try:
            return link_exclusively(unfinished, path)
        except ArchiveUnusable:
            # Another run that ends removes what is unfinished, ours too: then its file is there.
            if self.exists(path):
                return False
            raise
        finally:
            unfinished.unlink(missing_ok=True)

    def list_names(self, path: str) -> list[str]:
        """Names in a directory, in order; none when there is no such directory."""
        with _explained("list", path):
            try:
                names = os.listdir(plain_path(path))
            except (FileNotFoundError, NotADirectoryError):
                return []
        # Checksums that Hadoop keeps beside its files are none of the archive's.
        return sorted(name for name in names if not _is_checksum(name))

    def list_files(self, directory: str) -> list[str]:
        """The files of a directory and those in it, by their paths from there."""
        base = plain_path(directory)
        with _explained("list", directory):
            files = [one for one in base.rglob("*") if one.is_file()]
        return sorted(str(one.relative_to(base)) for one in files if not _is_checksum(one.name))

    def list_sizes(self, path: str) -> dict[str, int]:
        """The bytes of each file in a directory, by its name; nothing without a directory."""
        place = plain_path(path)
        with _explained("list", path):
            if not place.is_dir():
                return {}
            return {one.name: one.stat().st_size for one in place.iterdir() if one.is_file()}

    def size(self, path: str) -> int:
        """The bytes of a file, or of all files in a directory."""
        place = plain_path(path)
        with _explained("read", path):
            if place.is_file():
                return place.stat().st_size
            return sum(one.stat().st_size for one in place.rglob("*") if one.is_file())

    def exists(self, path: str) -> bool:
        with _explained("read", path):
            return plain_path(path).exists()

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all in it, if it is there."""
        place = plain_path(path)
        with _explained("remove", path):
            try:
                place.unlink()
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):
                _remove_tree(place)
        _forget_checksum(place)

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, which nothing has. Raises RunOvertaken."""
        to = plain_path(target)
        with _explained("rename", source):
            try:
                os.rename(plain_path(source), to)
            except OSError as error:
                if error.errno in _TAKEN or to.exists():
                    raise RunOvertaken(
                        f"{target} could not be written: another run works in this archive"
                    ) from error
                raise

    def find_obstacle(self, path: str) -> str | None:
        """What lies where a directory would have to be; None when the path is one, or can be."""
        return _find_obstacle(plain_path(path))

    def make_directory(self, path: str) -> None:
        with _explained("create", path):
            _make_directories(plain_path(path))

    @staticmethod
    def _write_beside(path: str, content: bytes) -> Path:
        place = plain_path(path)
        unfinished = place.with_name(f"{place.name}.{uuid4().hex}.unfinished")
        with _explained("write", path):
            _make_directories(place.parent)
            try:
                unfinished.write_bytes(content)
            except OSError:
                unfinished.unlink(missing_ok=True)
                raise
        return unfinished


def link_exclusively(source: Path, target: str) -> bool:
    """Give a file a second name; False when something has it.

    Exclusive, as a rename is not: of two that make a file at once, one is told that it did.
    """
    with _explained("write", target):
        try:
            os.link(source, plain_path(target))
        except FileExistsError:
            return False
    return True


def exchange(one: str, other: str) -> bool:
    """Let two files or directories change places in one step; False where that cannot be done."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # of Linux alone
    if call is None:
        return False
    first, second = (os.fsencode(plain_path(path)) for path in (one, other))
    return bool(call(_HERE, first, _HERE, second, _RENAME_EXCHANGE) == 0)


@contextmanager
def _explained(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"cannot {what} {path}: {error.strerror or error}"
        raise ArchiveUnusable(f"{message}{_hint(error, path)}") from error


def _hint(error: OSError, path: str) -> str:
    """What the system's own words leave out, with the colon before it."""
    if error.errno == errno.EACCES:
        user = os.geteuid()
        return (
            f": give user {user}, which runs this process, the rights to read and write the archive"
        )
    obstacle = _find_obstacle(plain_path(path).parent) if error.errno == errno.ENOTDIR else None
    return "" if obstacle is None else f": {obstacle}"


def _find_obstacle(place: Path) -> str | None:
    """The nearest part of a path that is there, if it is not a directory, as in `/a is a file`."""
    there = next((one for one in (place, *place.parents) if os.path.lexists(one)), None)
    if there is None or os.path.isdir(there):
        return None
    if os.path.exists(there):
        return f"{there} is a file"
    return f"{there} is a link to {os.readlink(there)}, which does not exist"


def _make_directories(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def _remove_tree(place: Path) -> None:
    for left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(place)
        except OSError as error:
            # Another run removes it at the same time, or still writes into it.
            if not left or error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
                raise
        if not place.exists():
            return


def _is_checksum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")


def _forget_checksum(place: Path) -> None:
    """Remove what Hadoop noted of the bytes as they were, when it wrote the file before."""
    place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
