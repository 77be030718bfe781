"""A Spark driver that does to an object store what a run does to its archive, and what can befall.

python -m tests.pipeline.s3_driver PATH: what it finds is a line of JSON.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.engine.spark_session import open_session
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.settings import PipelineSettings, read_place
from tests.pipeline.s3_store import endpoint

AT_ONCE = 8


def create_at_once(storage: Storage, path: str) -> dict[str, Any]:
    """Many make one file; each tells what it would have it hold."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reported = list(pool.map(lambda by: storage.create_json(path, {"by": by}), range(AT_ONCE)))
    return {
        "made": [by for by, is_ours in enumerate(reported) if is_ours],
        "found": storage.read_json(path),
        "same": storage.create_json(path, storage.read_json(path) or {}),
    }


def put_half(storage: Storage, path: str) -> list[str]:
    """A run dies in the middle of putting a directory in place; two others finish it at once."""
    names = [f"part-{number:05d}-{'0' * 36}-c000.zstd.parquet" for number in range(6)]
    storage.write_text(f"{path}.unfinished/audit.json", "{}")
    for name in names:
        storage.write_text(f"{path}.unfinished/rows/{name}", name)
    storage.rename(f"{path}.unfinished/rows/{names[0]}", f"{path}/rows/part-00000.parquet")
    storage.write_text(f"{path}/rows/part-00001.parquet", names[1])  # copied, and not yet removed
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: storage.put_in_place(f"{path}.unfinished", path), range(2)))
    storage.put_in_place(f"{path}.unfinished", path)
    left = storage.list_names(f"{path}.unfinished")
    found = storage.list_names(path) + storage.list_names(f"{path}/rows")
    texts = {storage.read_text(f"{path}/rows/part-{number:05d}.parquet") for number in range(6)}
    return [*left, *found, *(name for name in names if name not in texts)]


def put_nothing(storage: Storage, path: str) -> str:
    """Somebody has removed all of it."""
    try:
        storage.put_in_place(f"{path}.unfinished", path)
    except ArchiveUnusable as error:
        return str(error)
    return "no error"


def main(path: str) -> None:
    settings = PipelineSettings(
        place=read_place({}, "redis://127.0.0.1:1/0"),
        archive=path,
        master="local[2]",
        s3_endpoint=endpoint(),
    )
    session = open_session(settings)
    try:
        storage = Storage(session)
        found = {
            "created": create_at_once(storage, f"{path}/one.json"),
            "put": put_half(storage, f"{path}/stage"),
            "nothing": put_nothing(storage, f"{path}/gone"),
        }
    finally:
        session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
