"""Files of the archive read by this process itself, so many rows at once.

What asks for no more than IDs is a tenth of the work that it is with Spark. Local files only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.pipeline.archive.footers import list_files
from pelops.pipeline.engine.arrow.frame import Frame
from pelops.pipeline.engine.sql import IDS, DataFrame, on_driver
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.stages import WindowWork

_ROWS_AT_ONCE: Final = 2**17  # some ten MiB as columns of a table
_THREADS: Final = 2  # each with so many rows; pyarrow works while Python does other things


def scan_entries(
    work: WindowWork, columns: Sequence[str], action: Callable[[int, Iterator[DataFrame]], None]
) -> None:
    """Read these columns of the window's entries: `action` gets each file, by its number, in parts.

    It works `on_driver`, on some files at once. Raises ArchiveUnusable, what the action raises, and
    KeyboardInterrupt.
    """
    is_over = Event()

    def act(number: int, file: str) -> None:
        def parts() -> Iterator[DataFrame]:
            for part in _read(work, file, columns):
                if is_over.is_set():
                    return
                yield part

        # In this thread: what is said in another does not count.
        with on_driver():
            action(number, parts())

    files = list_files(work.run.storage, work.place.part("entries"))
    with ThreadPoolExecutor(_THREADS) as pool:
        tasks = [pool.submit(act, number, file) for number, file in enumerate(files)]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            is_over.set()
            pool.shutdown(cancel_futures=True)


def read_ids(
    work: WindowWork,
    paths: Iterable[str],
    choose: Callable[[DataFrame], DataFrame] = lambda ids: ids,
) -> DataFrame:
    """The IDs in directories of the archive, or those chosen of them; within `on_driver`."""
    files = [file for path in paths for file in list_files(work.run.storage, path)]
    tables = [choose(part).toArrow() for file in files for part in _read(work, file, IDS)]
    none = pa.schema([(name, pa.int64()) for name in IDS]).empty_table()
    return cast("DataFrame", Frame.of(pa.concat_tables([none, *tables])))


@contextmanager
def explained(what: str, path: str) -> Iterator[None]:
    """Raise ArchiveUnusable in place of what pyarrow raises for a file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise ArchiveUnusable(f"cannot {what} {path}: {error}") from error


def _read(work: WindowWork, path: str, columns: Sequence[str]) -> Iterator[DataFrame]:
    with explained("read", path), pq.ParquetFile(work.run.storage.parquet_source(path)) as file:
        batches = file.iter_batches(_ROWS_AT_ONCE, columns=list(columns), use_threads=False)
        for batch in batches:
            work.run.storage.check_interrupt()
            frame: Any = Frame.of(pa.Table.from_batches([batch]))
            yield frame
