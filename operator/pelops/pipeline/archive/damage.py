"""Whether the files of the archive are still what the markers of their stages say.

A marker names each file with its rows and its bytes. One listing of each directory tells which
files are missing or cut: none is opened, however much they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

FILES: Final = "files"  # of a marker: {path in the stage: {"rows": ..., "bytes": ...}}


class Listing(Protocol):
    """What can tell the bytes of each file in a directory, by its name; nothing without one."""

    def list_sizes(self, path: str) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file of a stage that is not what the stage's marker says."""

    stage: str
    part: str  # the directory in the stage; empty for the stage itself
    path: str
    problem: str

    @property
    def groups(self) -> set[str]:
        """The directories of the groups that it concerns; none: it concerns all."""
        return {one for one in f"{self.stage}/{self.part}".split("/") if one.startswith("group=")}

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"


def find_damage(
    files: Listing, directory_of: Callable[[str], str], stage: str, marker: Mapping[str, Any]
) -> Iterator[Damage]:
    """Files that a stage's marker names, and that are missing or of another size.

    `directory_of` tells where a part of a stage lies. Raises ArchiveUnusable.
    """
    parts: dict[str, dict[str, Mapping[str, int]]] = {}
    for path, reported in marker.get(FILES, {}).items():
        part, _, name = path.rpartition("/")
        parts.setdefault(part, {})[name] = reported
    for part, named in sorted(parts.items()):
        directory = directory_of(f"{stage}/{part}" if part else stage)
        sizes = files.list_sizes(directory)
        for name, reported in sorted(named.items()):
            problem = _problem(reported, sizes.get(name))
            if problem is not None:
                yield Damage(stage=stage, part=part, path=f"{directory}/{name}", problem=problem)


def _problem(reported: Mapping[str, int], size: int | None) -> str | None:
    if size is None:
        return f"({reported['rows']} rows) is missing"
    if size != reported["bytes"]:
        return f"({reported['rows']} rows) has {size} of its {reported['bytes']} bytes"
    return None
