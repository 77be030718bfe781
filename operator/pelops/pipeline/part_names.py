"""Names of Parquet files that a repeat gives again."""

from __future__ import annotations

import re
from typing import Final

_OF_SPARK: Final = re.compile(r"part-(\d+)-[0-9a-f-]{36}-c(\d+)\b.*\.parquet$")


def plain_name(path: str) -> str:
    """The path of a file without what Spark's names of files have of the run that made it."""
    directory, slash, name = path.rpartition("/")
    found = _OF_SPARK.fullmatch(name)
    if found is None:
        return path
    more = f"-{found[2]}" if int(found[2]) else ""
    return f"{directory}{slash}part-{found[1]}{more}.parquet"
