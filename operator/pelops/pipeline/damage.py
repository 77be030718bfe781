"""Whether the files of the archive are still what the markers of their stages say.

A marker names each file with its rows and its bytes. One listing of each directory tells which
files are missing or cut: none is opened, however much they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.pipeline.layout import WindowPlace, slug
from pelops.pipeline.storage import Storage

FILES: Final = "files"  # of a marker: {path in the stage: {"rows": ..., "bytes": ...}}
_STAGES: Final = (
    "entries", "retries", "letters", "snapshot", "acts", "evidence", "copies", "duplicates",
    "truth",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file of a stage that is not what the stage's marker says."""

    stage: str
    part: str  # the directory in the stage; empty for the stage itself
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"


def find_damage(
    storage: Storage, place: WindowPlace, stage: str, marker: Mapping[str, Any]
) -> Iterator[Damage]:
    """Files that a stage's marker names, and that are missing or of another size.

    Raises ArchiveUnusable.
    """
    parts: dict[str, dict[str, Mapping[str, int]]] = {}
    for path, told in marker.get(FILES, {}).items():
        part, _, name = path.rpartition("/")
        parts.setdefault(part, {})[name] = told
    for part, named in sorted(parts.items()):
        directory = place.part(f"{stage}/{part}" if part else stage)
        sizes = storage.list_sizes(directory)
        for name, told in sorted(named.items()):
            problem = _problem(told, sizes.get(name))
            if problem is not None:
                yield Damage(stage=stage, part=part, path=f"{directory}/{name}", problem=problem)


def find_damage_of_window(storage: Storage, place: WindowPlace) -> list[Damage]:
    """What is damaged of a window that was audited to its end. Raises ArchiveUnusable."""
    manifest = storage.read_json(place.part("manifest.json"))
    if manifest is None:
        return [_without_marker(place, "manifest")]
    found: list[Damage] = []
    for stage in _STAGES:
        found += find_damage(storage, place, stage, storage.read_json(_marker(place, stage)) or {})
    for group in manifest["groups"]:
        stage = f"group={slug(group)}"
        marker = storage.read_json(_marker(place, stage))
        found += (
            [_without_marker(place, stage)]
            if marker is None
            else find_damage(storage, place, stage, marker)
        )
    return found


def _marker(place: WindowPlace, stage: str) -> str:
    return place.part(f"{stage}.json")


def _without_marker(place: WindowPlace, stage: str) -> Damage:
    return Damage(stage=stage, part="", path=_marker(place, stage), problem="is missing")


def _problem(told: Mapping[str, int], size: int | None) -> str | None:
    if size is None:
        return f"({told['rows']} rows) is missing"
    if size != told["bytes"]:
        return f"({told['rows']} rows) has {size} of its {told['bytes']} bytes"
    return None
