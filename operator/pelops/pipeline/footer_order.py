"""Parquet footers that two runs write alike.

Parquet's writer lists the encodings of a column in the order of a hash set, which is another one in
each JVM (`ParquetMetadataConverter.addRowGroup`). In order, equal rows give equal bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pelops.pipeline.errors import ArchiveUnusable

_END: Final = b"PAR1"
_SIZE_BYTES: Final = 4  # the footer's size stands before the end, the lowest byte first


def order_footer(jvm: Any, file: Path) -> None:
    """Write a local file's footer again with its lists in order. Raises ArchiveUnusable."""
    try:
        _order(jvm, file)
    except OSError as error:
        raise ArchiveUnusable(f"cannot write {file}: {error.strerror}") from error
    # What Hadoop noted of the bytes as they were. The pages have checksums of their own.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _order(jvm: Any, file: Path) -> None:
    with file.open("r+b") as parquet:
        at = parquet.seek(-_SIZE_BYTES - len(_END), 2)
        size = int.from_bytes(parquet.read(_SIZE_BYTES), "little")
        parquet.seek(at - size)
        footer = _in_order(jvm, parquet.read(size))
        parquet.seek(at - size)
        parquet.write(footer + len(footer).to_bytes(_SIZE_BYTES, "little") + _END)
        parquet.truncate()


def _in_order(jvm: Any, footer: bytes) -> bytes:
    structures = jvm.org.apache.parquet.format.Util
    found = structures.readFileMetaData(jvm.java.io.ByteArrayInputStream(footer))
    for group in found.getRow_groups():
        for column in group.getColumns():
            jvm.java.util.Collections.sort(column.getMeta_data().getEncodings())
    written = jvm.java.io.ByteArrayOutputStream()
    structures.writeFileMetaData(found, written)
    return bytes(written.toByteArray())
