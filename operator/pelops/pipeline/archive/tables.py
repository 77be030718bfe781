"""The tables of an archive: which there are, and what of each belongs to one window."""

from __future__ import annotations

from collections.abc import Iterator

from pelops.pipeline.archive.layout import (
    REPORT,
    STATUSES,
    VERSION,
    WindowPlace,
    layout_path,
    slug,
    statuses_path,
    table_unit,
)
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.errors import ArchiveUnusable


def check_layout(storage: Storage, root: str) -> None:
    """Refuse an archive of another layout, and a path that is no directory.

    Raises ArchiveUnusable, which says what to do.
    """
    obstacle = storage.find_obstacle(root)
    if obstacle is not None:
        raise ArchiveUnusable(
            f"the archive path {root} cannot be used: {obstacle}. Give --archive "
            "(PELOPS_AUDIT_ARCHIVE) the path of a directory; one that does not exist is created"
        )
    reported = storage.read_json(layout_path(root))
    if reported is None:
        found = _is_first_layout(storage, root)
        version = 1 if found else VERSION
    else:
        version = reported.get("version", 0)
    if version != VERSION:
        raise ArchiveUnusable(
            f"{root} has version {version} of the archive's layout; this release reads and writes "
            f"version {VERSION}. Give an empty directory to --archive, and read this one with the "
            "release that made it"
        )


def mark_layout(storage: Storage, root: str) -> None:
    """Write down which layout the archive has. Safe to repeat."""
    storage.create_json(layout_path(root), {"version": VERSION})


def table_names(storage: Storage, root: str) -> list[str]:
    """The tables of the archive."""
    names = storage.list_names(root.rstrip("/") or "/")
    return [name for name in names if name[0] not in "._" and name != REPORT]


def find_units(storage: Storage, place: WindowPlace) -> Iterator[str]:
    """The directories that hold the window's parts of tables, and those they are merged with."""
    for table in table_names(storage, place.root):
        if table == STATUSES:
            yield from _find_statuses(storage, place)
            continue
        units = [table_unit(place, table)]
        base = units[0].rpartition("/")[0]
        groups = [name for name in storage.list_names(base) if name.startswith("group=")]
        units += [table_unit(place, table, group) for group in groups]
        yield from (unit for unit in units if storage.exists(unit))


def _find_statuses(storage: Storage, place: WindowPlace) -> Iterator[str]:
    base = statuses_path(place.root)
    for day in storage.list_names(base):
        if day.startswith("date="):
            of_stream = f"{base}/{day}/{slug(place.stream)}"
            for group in storage.list_names(of_stream):
                unit = f"{of_stream}/{group}/{place.span}"
                if storage.exists(unit):
                    yield unit


def _is_first_layout(storage: Storage, root: str) -> bool:
    """Version 1 had a directory for each stream, and in it one for each window."""
    return any(
        name.startswith("window=")
        for directory in storage.list_names(root)
        if not directory.startswith("_")
        for name in storage.list_names(f"{root.rstrip('/')}/{directory}")
    )
