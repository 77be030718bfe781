"""Files of the archive that are missing or cut, by what the markers of their stages say.

A marker names each file with its rows and its bytes. One listing of each directory tells which
files are missing or cut: none is opened, however much they hold. A stage is compared when a run
reads it, all windows of a stream when an entry is looked up.

A file that was merged is compared by its rows: the markers do not say how many bytes it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pelops.pipeline.archive.layout import (
    STAGES,
    STATUSES,
    WindowPlace,
    records_path,
    slug,
    window_numbers,
)
from pelops.pipeline.archive.windows import Plan, parse_plan
from pelops.pipeline.errors import FileDamaged

if TYPE_CHECKING:
    from pelops.pipeline.archive.arrow_reader import ArchivedStream, ArchiveFiles


FILES: Final = "files"  # of a marker: {path in the stage: {"rows": ..., "bytes": ...}}


class FileLister(Protocol):
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
    files: FileLister, directory_of: Callable[[str], str], stage: str, marker: Mapping[str, Any]
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


_AT_ONCE: Final = 16  # windows whose records are read: a store takes its time for each
_STAGES: Final = ("entries", "retries", "acts", "evidence")  # and tables of the same names
_PLAN: Final = "plan.json"
_MANIFEST: Final = "manifest.json"
_ALWAYS: Final = ("entries.json", "retries.json", "acts.json")  # of every window that was audited
_MARKERS: Final = (*_ALWAYS, "evidence.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The records of one window, as far as they can be read."""

    place: WindowPlace
    plan: Plan | None
    records: Mapping[str, Mapping[str, Any]]  # by name, also those that are merged
    groups: tuple[str, ...]  # the records of the groups that it was audited for
    unreadable: tuple[str, ...]  # names of records

    @property
    def was_audited(self) -> bool:
        """Whether to its end."""
        return _MANIFEST in (*self.records, *self.unreadable)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The files of the tables that a lookup reads."""

    sizes: dict[str, dict[str, int]] = field(default_factory=dict)  # by directory and name
    merged_rows: dict[str, int] = field(default_factory=dict)  # by directory, as markers tell

    def list_sizes(self, path: str) -> dict[str, int]:
        return self.sizes.get(path, {})


def find_archive_damage(archive: ArchiveFiles, stream: ArchivedStream) -> list[Damage]:
    """What is damaged of all that a lookup reads of a stream. Raises ArchiveUnusable.

    Windows before the first one that was audited are left out: retention is removing them.
    """
    numbers = range(stream.windows[0], stream.windows[-1] + 1)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        windows = list(pool.map(partial(_read_window, archive, stream.name), numbers))
    audited = [one.place.number for one in windows if one.was_audited] or [numbers[0]]
    tables = _list_tables(archive, stream.name)
    found: list[Damage] = []
    for window in windows[audited[0] - numbers[0] :]:
        found += _damaged_records(window, is_past=window.place.number < audited[-1])
        found += _damaged_files(window, tables)
    return [*found, *_damaged_merged_files(archive, tables)]


def find_missing_plans(archive: ArchiveFiles, streams: Iterable[ArchivedStream]) -> list[Damage]:
    """Where the archive has windows, and no plan at all to name their stream.

    `streams` are those that have one. The stage of each is the directory of the stream.
    """
    base = records_path(archive.root)
    known = {f"stream={slug(one.name)}" for one in streams}
    found = []
    for stream in archive.names(base):
        if not stream.startswith("stream=") or stream in known:
            continue
        numbers = window_numbers(archive.names(f"{base}/{stream}"))
        windows = [f"{base}/{stream}/window={number}" for number in numbers]
        # A run that died before its first plan leaves a window without records.
        reported = [one for one in windows if any(map(_is_record, archive.names(one)))]
        if reported:
            path, problem = f"{reported[-1]}/{_PLAN}", "is missing, or cannot be read"
            found.append(Damage(stage=stream, part="", path=path, problem=problem))
    return found


def _is_record(name: str) -> bool:
    return name.endswith(".json")


def _is_marker(name: str) -> bool:
    """Whether it is of a stage that makes something of what a lookup reads."""
    return name in _MARKERS or (name.startswith("group=") and _is_record(name))


def _read_window(archive: ArchiveFiles, stream: str, number: int) -> _Window:
    place = WindowPlace(root=archive.root, stream=stream, number=number)
    records: dict[str, dict[str, Any]] = {}
    unreadable, plan = [], None
    for name in archive.names(place.path):
        if name in (_PLAN, _MANIFEST, STAGES) or _is_marker(name):
            path = place.record(name)
            try:
                reported = archive.read_record(path)
                # A run that merges or removes windows may have taken it since the listing.
                records[name] = reported or {}
                if name == _PLAN and reported is not None:
                    plan = parse_plan(reported, path)
            except FileDamaged:
                unreadable.append(name)
    stages = {f"{stage}.json": reported for stage, reported in records.get(STAGES, {}).items()}
    merged = {name: reported for name, reported in stages.items() if _is_marker(name)}
    return _Window(
        place=place,
        plan=plan,
        records=merged | records,
        groups=tuple(
            f"group={slug(one)}.json" for one in records.get(_MANIFEST, {}).get("groups", ())
        ),
        unreadable=tuple(unreadable),
    )


def _damaged_records(window: _Window, *, is_past: bool) -> Iterator[Damage]:
    """Records that cannot be read, or that are missing; a past window must have its own."""
    yield from (_damaged(window, name, "cannot be read") for name in window.unreadable)
    if window.was_audited or is_past:
        wanted = (_PLAN, *_ALWAYS, _MANIFEST, *window.groups)
        missing = [one for one in wanted if one not in (*window.records, *window.unreadable)]
        # Where the plan is missing, the rest is as a rule: one line says it.
        yield from (_damaged(window, name, "is missing") for name in missing[:1])


def _damaged(window: _Window, record: str, problem: str) -> Damage:
    stage = record.removesuffix(".json")
    return Damage(stage=stage, part="", path=window.place.record(record), problem=problem)


def _list_tables(archive: ArchiveFiles, stream: str) -> _Tables:
    tables = _Tables()
    for table in (*_STAGES, STATUSES):
        for path, size in archive.sizes(table, stream).items():
            directory, _, name = path.rpartition("/")
            tables.sizes.setdefault(directory, {})[name] = size
    return tables


def _damaged_files(window: _Window, tables: _Tables) -> Iterator[Damage]:
    """Files that were not merged; of those that were, `tables` gets the rows."""
    if window.plan is None:
        return
    directory_of = partial(window.place.target, day=window.plan.day)
    for record, reported in window.records.items():
        stage = record.removesuffix(".json")
        own = {}
        for path, file in reported.get(FILES, {}).items():
            if stage.startswith("group=") and not path.startswith(f"{STATUSES}/"):
                continue  # no lookup reads it
            unit = directory_of(f"{stage}/{path}".rpartition("/")[0]).rpartition("/")[0]
            merged = f"{unit}/{window.place.span}"
            if merged in tables.sizes:
                tables.merged_rows[merged] = tables.merged_rows.get(merged, 0) + file["rows"]
            else:
                own[path] = file
        yield from find_damage(tables, directory_of, stage, {FILES: own})


def _damaged_merged_files(archive: ArchiveFiles, tables: _Tables) -> Iterator[Damage]:
    for directory, rows in sorted(tables.merged_rows.items()):
        damage = partial(Damage, stage="merged", part=directory)
        found = 0
        for name in tables.sizes[directory]:
            path = f"{directory}/{name}"
            try:
                found += archive.count_rows(path)
            except FileDamaged:
                yield damage(path=path, problem="cannot be read")
                break
        else:
            # It may have more: of windows whose records retention has removed already.
            if found < rows:
                yield damage(path=directory, problem=f"has {found} of its {rows} rows")
