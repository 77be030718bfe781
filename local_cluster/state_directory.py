"""A state directory: marked, so that no other directory is ever emptied or removed."""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local_cluster.errors import LocalClusterError

MARKER = ".pelops-local-cluster"
SUMMARY = "cluster.json"


class StateDirectory:
    """The directory of one cluster that outlives the command which started it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def is_ours(self) -> bool:
        """Whether it carries the marker."""
        return (self.path / MARKER).is_file()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the directory, made and marked when it is not there, against other commands.

        Raises LocalClusterError when it holds anything else, or another command is at work.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.is_ours() and any(self.path.iterdir()):
            raise LocalClusterError(
                f"{self.path} is not empty and not a state directory of a local cluster; use "
                "another one"
            )
        with (self.path / MARKER).open("a") as marker:
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalClusterError(f"another command is using {self.path}") from None
            yield

    def read_summary(self) -> dict[str, object] | None:
        """What `up` wrote at its end; None while nothing is up."""
        try:
            return dict(json.loads((self.path / SUMMARY).read_text()))
        except FileNotFoundError:
            return None

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Say that a cluster is up, and what it is."""
        fresh = self.path / f"{SUMMARY}.new"
        fresh.write_text(json.dumps(summary, indent=2))
        fresh.rename(self.path / SUMMARY)

    def empty(self) -> None:
        """Remove all but the marker. Raises LocalClusterError when the directory is not marked."""
        self._insist_on_marker()
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != MARKER:
                entry.unlink()

    def remove(self) -> None:
        """Remove it. Raises LocalClusterError when the directory is not marked."""
        self._insist_on_marker()
        shutil.rmtree(self.path)

    def _insist_on_marker(self) -> None:
        if not self.is_ours():
            raise LocalClusterError(f"{self.path} is not a state directory of a local cluster")
