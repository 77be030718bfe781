"""Converts pages of entries to Arrow record batches with exactly the schema that Spark expects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from pyspark_redis_streams.batch.pages import Entry
from pyspark_redis_streams.columns.conversion import Converted, converter_for
from pyspark_redis_streams.columns.entry_fields import (
    COMPUTED,
    Flat,
    compute,
    raw_converter,
    raw_pairs,
    trailing_values,
    values_by_field,
)
from pyspark_redis_streams.columns.schemas import ColumnSource, EntriesColumn, entry_columns
from pyspark_redis_streams.errors import BadValue
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.spark_versions import arrow_schema

_NUMBERS = (ColumnSource.MS, ColumnSource.SEQ, ColumnSource.TS)


class BatchBuilder:
    """Collects pages until a batch has enough rows.

    Texts are copied to Arrow arrays page by page, while they are in the processor's cache. They are
    converted to their types batch by batch, to save calls.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._options = options
        self._columns = entry_columns(schema, options)
        self._types = {column.name: column.type.simpleString() for column in self._columns}
        self._arrow = arrow_schema(schema)
        self._converters = [
            self._converter(column, field.type)
            for column, field in zip(self._columns, self._arrow, strict=True)
        ]
        self._trailing = [name.encode() for name in options.trailing_fields]
        self._fields = [
            c.field
            for c in self._columns
            if c.source is ColumnSource.FIELD and c.field not in self._trailing
        ]
        sources = {column.source for column in self._columns}
        self._computed = sources & COMPUTED
        self._wants_ids = bool(sources.intersection((ColumnSource.ID, *_NUMBERS)))
        # Keeping the entries of a whole batch costs cache; only corrupt records need them.
        self._keeps_flats = ColumnSource.CORRUPT in sources
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.bytes = 0  # approximate size of the columns so far
        self._streams: list[tuple[str, int]] = []
        self._ids: list[bytes] = []
        self._id_arrays: list[pa.Array] = []
        self._parts: list[list[pa.Array]] = [[] for _ in self._columns]
        self._flats: list[Flat] = []

    def add(self, stream: str, page: Sequence[Entry]) -> None:
        """Add the entries of a page of one stream."""
        ids = [entry[0] for entry in page]
        flats = [entry[1] for entry in page]
        self._streams.append((stream, len(ids)))
        self.rows += len(ids)
        self._ids += ids
        if self._wants_ids:
            self._id_arrays.append(pa.array(ids, pa.binary()))
        if self._keeps_flats:
            self._flats += flats
        self._add_fields(flats)

    def _add_fields(self, flats: Sequence[Flat]) -> None:
        fields = iter(self._values(flats))
        computed = compute(flats, self._computed)
        for column, parts in zip(self._columns, self._parts, strict=True):
            if column.source is ColumnSource.FIELD:
                if column.field in self._trailing:
                    values = trailing_values(flats, self._trailing, column.field)
                else:
                    values = next(fields)
                parts.append(pa.array(values, pa.binary()))
            elif column.source is ColumnSource.FIELDS:
                parts.append(raw_pairs(flats, column.type, self._options.duplicate_fields))
            elif column.source in computed:
                parts.append(computed[column.source])
        self.bytes += sum(parts[-1].nbytes for parts in self._parts if parts)

    def _values(self, flats: Sequence[Flat]) -> list[Sequence[bytes | None]]:
        if not self._fields:
            return []
        keeps_first = self._options.duplicate_fields == "first"
        return values_by_field(flats, self._fields, keeps_first=keeps_first)

    def finish(self) -> pa.RecordBatch:
        """All rows so far as one batch; the builder is empty again. Raises BadValue."""
        base = self._base_columns()
        arrays: list[pa.Array] = []
        bad: dict[int, str] = {}
        for column, convert, raw in zip(self._columns, self._converters, self._parts, strict=True):
            array, rows = convert(pa.concat_arrays(raw)) if raw else (base[column.source], [])
            arrays.append(array)
            for row in rows:
                bad.setdefault(row, column.name)
        batch = self._finish(arrays, bad)
        self._clear()
        return batch

    def _base_columns(self) -> dict[ColumnSource, pa.Array]:
        wanted = {c.source: c for c in self._columns}
        base: dict[ColumnSource, pa.Array] = {}
        if ColumnSource.STREAM in wanted:
            base[ColumnSource.STREAM] = pa.concat_arrays(
                [pa.repeat(pa.scalar(name, pa.string()), rows) for name, rows in self._streams]
            )
        if ColumnSource.CORRUPT in wanted:
            base[ColumnSource.CORRUPT] = pa.nulls(self.rows, pa.string())
        if self._wants_ids:
            ids = pa.concat_arrays(self._id_arrays).cast(pa.string())
            base[ColumnSource.ID] = ids
            numbers = [wanted[source] for source in _NUMBERS if source in wanted]
            parts = id_parts(ids) if numbers else ()
            base |= {column.source: self._number(column, *parts) for column in numbers}
        return base

    def _number(self, column: EntriesColumn, ms: pa.Array, seq: pa.Array) -> pa.Array:
        wanted = self._arrow.field(column.name).type
        if column.source is ColumnSource.TS:
            return _times(ms).cast(wanted)
        numbers = ms if column.source is ColumnSource.MS else seq
        try:
            return numbers.cast(wanted)
        except pa.ArrowInvalid as error:
            if self._arrow.field(column.name).nullable:
                return pc.if_else(pc.less(numbers, _TOO_LARGE), numbers, None).cast(wanted)
            row = pc.index(pc.greater_equal(numbers, _TOO_LARGE), True).as_py()
            raise BadValue(
                f"column '{column.name}' is too narrow: stream '{self._stream_of(row)}' has IDs"
                f" whose {column.name} is 2^63 or more; declare it as DECIMAL(20, 0), or leave"
                " NOT NULL out to have null there"
            ) from error

    def _converter(
        self, column: EntriesColumn, arrow: pa.DataType
    ) -> Callable[[pa.Array], Converted]:
        if column.source is ColumnSource.FIELD:
            return converter_for(column.name, column.type, arrow, self._options.timestamp_unit)
        if column.source is ColumnSource.FIELDS:
            return raw_converter(arrow)
        return lambda raw: (raw.cast(arrow), [])

    def _finish(self, arrays: list[pa.Array], bad: dict[int, str]) -> pa.RecordBatch:
        if bad and self._options.mode == "FAILFAST":
            row = min(bad)
            raise BadValue(
                f"entry {self._ids[row].decode()} of stream '{self._stream_of(row)}' does not fit"
                f" column '{bad[row]}' ({self._types[bad[row]]}); option 'mode' is FAILFAST"
            )
        if bad and self._options.mode == "PERMISSIVE":
            arrays = [
                self._corrupt_records(bad) if column.source is ColumnSource.CORRUPT else array
                for column, array in zip(self._columns, arrays, strict=True)
            ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        if bad and self._options.mode == "DROPMALFORMED":
            return batch.filter(pa.array([row not in bad for row in range(len(batch))]))
        return batch

    def _stream_of(self, row: int) -> str:
        return next(name for name, end in self._ends() if row < end)

    def _ends(self) -> Iterator[tuple[str, int]]:
        ends = accumulate(rows for _, rows in self._streams)
        return zip((name for name, _ in self._streams), ends, strict=True)

    def _corrupt_records(self, bad: dict[int, str]) -> pa.Array:
        shown = [_as_json(self._flats[row]) if row in bad else None for row in range(self.rows)]
        return pa.array(shown, pa.string())


def id_parts(ids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The milliseconds and the sequence numbers of IDs, unsigned."""
    numbers = pc.list_flatten(pc.split_pattern(ids, "-")).cast(pa.uint64())
    pairs = pa.FixedSizeListArray.from_arrays(numbers, 2)
    return pc.list_element(pairs, 0), pc.list_element(pairs, 1)


def _times(ms: pa.Array) -> pa.Array:
    # An ID may have any number; one beyond Spark's calendar has no time.
    reachable = pc.if_else(pc.less_equal(ms, _LATEST_MS), ms, None)
    return reachable.cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))


_TOO_LARGE = pa.scalar(2**63, pa.uint64())
_LATEST_MS = pa.scalar(2**63 // 1000 - 1, pa.uint64())


def _as_json(flat: Flat) -> str:
    texts = [part.decode("utf-8", "backslashreplace") for part in flat]
    return json.dumps(dict(zip(texts[::2], texts[1::2], strict=True)), ensure_ascii=False)
