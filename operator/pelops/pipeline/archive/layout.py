"""Where each part of the archive lies, and which tables there are: no other module knows paths.

<root>/_pelops/layout.json                        the version of the layout
              /stream=<stream>/window=<k>/        records of a window, all of them JSON
                  plan.json                       made once, before anything else
                  <stage>.json                    the marker that a stage is complete
                  group=<group>/audit.json
                  manifest.json                   made last
                  published.json                  its summaries are recorded in Redis
<root>/<table>/stream=<stream>[/group=<group>]/windows=<a>..<b>/<k>/*.parquet
<root>/statuses/date=<day>/<stream>/<group>/<a>..<b>/<k>/*.parquet
<root>/report/audit.html /audit.json               every group of the archive, by severity
             /<stream>/audit.html /audit.json      the report of one stream
                      /group=<group>/clusters.json /redrive.jsonl

A table is read by its own path. Spark skips names that begin with `_`. `<a>..<b>` is the span of
windows that `<k>` belongs to: their small files are merged together, see `compaction.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pelops.pipeline.errors import ArchiveUnusable

if TYPE_CHECKING:
    from pelops.pipeline.archive.storage import Storage


# Of a file's name, which may have 255 bytes, the rest is for what we put around it.
_LONGEST: Final = 160
_SHOWN: Final = 120
# What stands beside the directory of a stream or of a group.
_OURS: Final = (".json", ".html", ".claim", ".unfinished")
VERSION: Final = 2  # of the layout; the first one had a directory for each stream
STATUSES: Final = "statuses"
REPORT: Final = "report"
STAGES: Final = "stages.json"  # the markers of a window's stages, once they are merged
PAGE: Final = "audit.html"
DOCUMENT: Final = "audit.json"
SPAN: Final = 24  # windows whose small files are merged: a day of hours
_RECORDS: Final = "_pelops"
_EMPTY: Final = "~empty"  # a key of Redis may have no letter at all; no other name begins like this


def slug(name: str) -> str:
    """A name of Redis as the name of a directory: no two are alike, and none is the archive's."""
    if not name:
        return _EMPTY
    reported = quote(name, safe="").replace("~", "%7E")
    if reported.startswith((".", "_")) or reported.endswith(_OURS):
        reported = reported.replace(".", "%2E").replace("_", "%5F")
    if len(reported) <= _LONGEST:
        return reported
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{reported[:_SHOWN]}~{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlace:
    """Where one window of one stream lies."""

    root: str
    stream: str
    number: int

    @property
    def path(self) -> str:
        """The directory of the window's records."""
        return f"{stream_path(self.root, self.stream)}/window={self.number}"

    @property
    def before(self) -> WindowPlace:
        """The place of the window before it; window 0 has none."""
        return replace(self, number=self.number - 1)

    @property
    def span(self) -> str:
        """The windows with which it is merged."""
        first = self.number - self.number % SPAN
        return f"{first}..{first + SPAN - 1}"

    def record(self, name: str) -> str:
        """A file of the window that is no table."""
        return f"{self.path}/{name}"

    def part(self, name: str) -> str:
        """The window's part of a table, by the name that it has in its stage; or a record.

        `snapshot/group=<group>/pending` is the window's part of the table `snapshot_pending`.
        """
        if name.endswith(".json"):
            return self.record(name)
        return f"{table_unit(self, *_split(name))}/{self.number}"

    def target(self, name: str, day: str) -> str:
        """Where a part of a stage, or a file of it, is put in place.

        `day` is that of the window, as in `2026-01-31`: statuses are kept by it.
        """
        group, _, part = name.partition("/")
        return self.statuses(group, day) if part == STATUSES else self.part(name)

    def of_group(self, group: str, name: str) -> str:
        return self.part(f"group={slug(group)}/{name}")

    def statuses(self, group: str, day: str) -> str:
        """The window's part of the table of statuses; `group` is a directory: `group=<group>`.

        No directory below the day is a partition: the rows name their stream and group.
        """
        base = f"{statuses_path(self.root)}/date={day}/{slug(self.stream)}"
        return f"{base}/{group.removeprefix('group=')}/{self.span}/{self.number}"


def records_path(root: str) -> str:
    """What the archive holds beside its tables."""
    return f"{root.rstrip('/')}/{_RECORDS}"


def layout_path(root: str) -> str:
    """The file that names the layout of the archive."""
    return f"{records_path(root)}/layout.json"


def table_unit(place: WindowPlace, table: str, group: str = "") -> str:
    """The directory of a table that holds the window's part, and those it is merged with.

    `group` is a directory: `group=<group>`, or empty for tables of the stream as a whole.
    """
    base = f"{place.root.rstrip('/')}/{table}/stream={slug(place.stream)}"
    return f"{base}{'/' + group if group else ''}/windows={place.span}"


def stream_path(root: str, stream: str) -> str:
    """The directory of the records of a stream's windows."""
    return f"{records_path(root)}/stream={slug(stream)}"


def statuses_path(root: str) -> str:
    return f"{root.rstrip('/')}/{STATUSES}"


def _split(name: str) -> tuple[str, str]:
    """A name in a stage as the name of its table, and the directory of its group, if it has one."""
    parts = name.split("/")
    groups = [part for part in parts if part.startswith("group=")]
    return "_".join(part for part in parts if part not in groups), "".join(groups)


def report_path(root: str, stream: str | None = None) -> str:
    """Where reports lie: those of a stream, or those of all that the archive holds."""
    base = f"{root.rstrip('/')}/{REPORT}"
    return base if stream is None else f"{base}/{slug(stream)}"


def anchor_of(stream: str, group: str) -> str:
    """The place of a group on any page of reports: the same in every run, so that links last."""
    names = f"{stream}\0{group}".encode("utf-8", "surrogatepass")
    return f"group-{blake2b(names, digest_size=6).hexdigest()}"


def page_of(directory: str) -> str:
    """The report in a directory beside the report of all streams, as a link from there."""
    return f"{quote(directory)}/{PAGE}"  # the directory's name holds percent signs of its own


def link_to(stream: str, group: str) -> str:
    """A group in the report of its stream, from the report of all streams."""
    return f"{page_of(slug(stream))}#{anchor_of(stream, group)}"


def window_numbers(names: list[str]) -> list[int]:
    """The numbers of the windows among names of directories, in order."""
    numbers = (name.removeprefix("window=") for name in names if name.startswith("window="))
    return sorted(int(text) for text in numbers if text.isdigit())


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
