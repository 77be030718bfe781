"""Small files of the archive, beside its tables: reports and redrive plans.

They are on a local disk, or in the object store of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow.fs as pafs

from pelops.pipeline.archive.tables import ArchivePlace, explain_trouble
from pelops.pipeline.errors import ArchiveUnusable

UNFINISHED: Final = ".unfinished"
_TRIES: Final = 5  # of a request to a store: 30 s, or 60 s if there are no answers


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one archive, by paths from its root."""

    place: ArchivePlace

    def path(self, name: str) -> str:
        """The path of a file, to display."""
        return f"{self.place.root.rstrip('/')}/{name}"

    def exists(self, name: str) -> bool:
        """Whether the file exists."""
        with self._explained("read", name):
            return bool(self._store().get_file_info(self._inside(name)).type == pafs.FileType.File)

    def read(self, name: str) -> str | None:
        """The text of a file; None if it does not exist. Raises ArchiveUnusable."""
        with self._explained("read", name):
            if not self.exists(name):
                return None
            with self._store().open_input_stream(self._inside(name)) as file:
                return bytes(file.read()).decode()

    def write(self, name: str, text: str) -> None:
        """Create or replace a file atomically. Raises ArchiveUnusable."""
        with self._explained("write", name):
            store, target = self._store(), self._inside(name)
            if not self.place.is_local:
                with store.open_output_stream(target) as file:  # stores replace objects atomically
                    file.write(text.encode())
                return
            directory, _, base = target.rpartition("/")
            store.create_dir(directory, recursive=True)
            unfinished = f"{directory}/.{base}.{uuid4().hex}{UNFINISHED}"
            try:
                with store.open_output_stream(unfinished) as file:
                    file.write(text.encode())
                store.move(unfinished, target)
            except BaseException:
                if store.get_file_info(unfinished).type == pafs.FileType.File:
                    store.delete_file(unfinished)
                raise

    def list_names(self, directory: str) -> list[str]:
        """The names in a directory; empty if it does not exist."""
        with self._explained("read", directory):
            base = self._inside(directory)
            selector = pafs.FileSelector(base, allow_not_found=True)
            names = {
                info.path.removeprefix(base).strip("/").partition("/")[0]
                for info in self._store().get_file_info(selector)
            }
        return sorted(name for name in names if name and not name.endswith(UNFINISHED))

    def _store(self) -> Any:
        if self.place.is_local:
            return pafs.LocalFileSystem()
        endpoint = urlsplit(self.place.storage.get("AWS_ENDPOINT_URL", ""))
        chosen = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        region = self.place.storage.get("AWS_REGION")
        return pafs.S3FileSystem(
            region=region,
            # Each file is one request, which is repeated as a whole.
            allow_delayed_open=True,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
            **(chosen if endpoint.netloc else {}),
        )

    def _inside(self, name: str) -> str:
        if self.place.is_local:
            return str(self.place.directory.absolute() / name)
        return self.place.path(name).partition("://")[2]

    @contextmanager
    def _explained(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, UnicodeDecodeError) as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            meaning = explain_trouble(text)
            what = text if meaning is None else f"{meaning}: {text}"
            raise ArchiveUnusable(f"cannot {verb} {self.path(name)}: {what}") from error
