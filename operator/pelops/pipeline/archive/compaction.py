"""Small files of a closed span of windows, merged: one file of each table, group and day.

The files of a span lie in one directory of each table, its unit. What is merged is made beside the
tables and put in place by exchanging both directories, one call of a local file system: a reader
sees the files of the windows, or the merged file. Elsewhere the merged file comes first, and then
the others go: a reader may see rows twice, with the same `as_of`, and never misses one.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.errors import PelopsError
from pelops.pipeline.archive.layout import (
    SPAN,
    STAGES,
    WindowPlace,
    find_units,
    stream_path,
    window_numbers,
)
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.stages import UNFINISHED, PipelineRun

log: Final = logging.getLogger(__name__)
_KEPT: Final = frozenset({"plan.json", "manifest.json", "published.json", "table.json", STAGES})
_NEWER: Final = 2  # complete windows after a span that is closed: these read the one before
_MOST_BYTES: Final = 64 * 1024 * 1024  # of what is merged; larger files are not small
_MERGING: Final = "merging-"


def merge_closed_spans(run: PipelineRun, stream: str) -> list[str]:
    """Merge the small files of every span that no run will write to; answers these spans.

    Safe to repeat after a run that died in it. What cannot be merged now stays as it is.
    """
    storage, base = run.storage, stream_path(run.settings.archive, stream)
    names = storage.list_names(base)
    merged = []
    for place in _closed_spans(run, stream, names):
        try:
            merge_span(storage, place, window_numbers(names))
        except PelopsError as error:
            log.warning("small files of %s were not merged: %s", stream, error)
            break
        merged.append(place.span)
    return merged


def merge_span(storage: Storage, place: WindowPlace, numbers: list[int]) -> None:
    """Merge the files of one span, which `place` begins."""
    base = stream_path(place.root, place.stream)
    for name in storage.list_names(base):
        if name.endswith(UNFINISHED):  # of a run that died
            storage.remove(f"{base}/{name}")
    for unit in find_units(storage, place):
        merge_unit(storage, unit, f"{base}/{_MERGING}{uuid4().hex}{UNFINISHED}")
    for number in numbers:
        if place.number <= number < place.number + SPAN:
            _fold_markers(storage, replace(place, number=number))
    storage.create_json(f"{base}/{_marker(place)}", {"span": place.span})


def read_marker(storage: Storage, place: WindowPlace, stage: str) -> dict[str, Any]:
    """What the marker of a stage says, also of a window whose markers are merged."""
    reported = storage.read_json(place.part(f"{stage}.json"))
    if reported is None:
        reported = (storage.read_json(place.part(STAGES)) or {}).get(stage)
    return reported or {}


def merge_unit(storage: Storage, unit: str, beside: str) -> None:
    """Merge the files of a unit, made in the directory `beside`, which is removed."""
    span = unit.rpartition("/")[2].removeprefix("windows=")
    parts = storage.list_names(unit)
    if parts in ([], [span]):
        return
    if span not in parts:
        data = _merge(storage, unit)
        if data is None:
            return
        storage.write_bytes(f"{beside}/{span}/part-00000.parquet", data)
        if storage.exchange(beside, unit):
            storage.remove(beside)
            return
        storage.put_in_place(f"{beside}/{span}", f"{unit}/{span}")
        storage.remove(beside)
    for part in parts:
        if part != span:
            storage.remove(f"{unit}/{part}")


def _merge(storage: Storage, unit: str) -> bytes | None:
    """The rows of all windows in one file, in order; None where the files are to stay."""
    files = [name for name in storage.list_files(unit) if name.endswith(".parquet")]
    if len(files) < 2 or storage.size(unit) > _MOST_BYTES:
        return None
    files.sort(key=_in_order)
    tables = [_read(storage, f"{unit}/{name}") for name in files]
    if any(one.schema != tables[0].schema for one in tables):
        return None  # as after a change of what is archived of payloads
    made = io.BytesIO()
    # With Spark's own schema, which stands in the metadata of each.
    pq.write_table(
        pa.concat_tables(tables), made, compression="zstd", store_schema=False, version="2.6"
    )
    return made.getvalue()


def _read(storage: Storage, path: str) -> pa.Table:
    try:
        return pq.read_table(io.BytesIO(storage.read_bytes(path)))
    except (pa.ArrowException, OSError) as error:
        raise ArchiveUnusable(f"{path} is damaged: {error}") from error


def _in_order(file: str) -> tuple[int, str]:
    number, _, name = file.partition("/")
    return int(number), name


def _closed_spans(run: PipelineRun, stream: str, names: list[str]) -> Iterator[WindowPlace]:
    """The first window of each span that is not merged yet, and that no run reads or writes."""
    numbers, known = window_numbers(names), set(names)
    for first in sorted({number - number % SPAN for number in numbers}):
        place = WindowPlace(root=run.settings.archive, stream=stream, number=first)
        end = first + SPAN + _NEWER
        if _marker(place) in known or end > numbers[-1] + 1:
            continue
        asked = [replace(place, number=number) for number in numbers if first <= number < end]
        if all(run.storage.exists(one.part("manifest.json")) for one in asked):
            yield place


def _fold_markers(storage: Storage, place: WindowPlace) -> None:
    """The markers of a window's stages into one file: nobody waits for them any more."""
    found = storage.list_names(place.path)
    for name in found:
        if name.endswith(UNFINISHED):  # of a run that died
            storage.remove(place.record(name))
    names = [name for name in found if name.endswith(".json") and name not in _KEPT]
    if not names:
        return
    contents = {name.removesuffix(".json"): storage.read_json(place.part(name)) for name in names}
    storage.create_json(place.part(STAGES), contents)
    for name in names:
        storage.remove(place.part(name))


def _marker(place: WindowPlace) -> str:
    return f"merged={place.span}.json"
