"""A first look at option `columns`, so that what Spark's parser would refuse names the option.

Spark parses the whole of it, together with the base columns, and complains of places that the
user never wrote.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from pyspark_redis_streams.errors import OptionError

_TYPES: Final = (
    "STRING", "BINARY", "BOOLEAN", "BYTE", "TINYINT", "SHORT", "SMALLINT", "INT", "INTEGER", "LONG",
    "BIGINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC", "NUMERIC", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRUCT", "ARRAY", "MAP",
)  # fmt: skip
# Spark knows them, and the source says better why they cannot be read.
_OTHER_TYPES: Final = (
    "CHAR", "CHARACTER", "VARCHAR", "INTERVAL", "VARIANT", "VOID", "NULL", "TIME", "OBJECT",
    "GEOMETRY", "GEOGRAPHY",
)  # fmt: skip
_COLUMN: Final = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<bare>\w+))\s*:?\s*(?P<type>\w*)")


def check_columns(text: str, base: tuple[str, ...]) -> None:
    """Raises OptionError for a column without a type, of an unknown one, or declared twice."""
    seen = {name: "a base column" for name in base}
    for part in _parts(text):
        name, kind = _read(part)
        if kind.upper() not in _TYPES + _OTHER_TYPES:
            raise OptionError(
                f"option 'columns' declares '{part.strip()}', but there is no type '{kind}'"
                f"{_nearest(kind)}"
            )
        if name in seen:
            raise OptionError(
                f"option 'columns' declares '{name}', which is {seen[name]} already; to read a"
                " field that is named as a base column, set option 'fieldPrefix'"
            )
        seen[name] = "declared"


def _read(part: str) -> tuple[str, str]:
    found = _COLUMN.match(part)
    if found is None or not found["type"]:
        raise OptionError(
            f"option 'columns' has '{part.strip()}': write each column as `name TYPE`, such as"
            " 'order_id STRING, amount DECIMAL(10, 2)'"
        )
    quoted = found["quoted"]
    return (quoted.replace("``", "`") if quoted else found["bare"]), found["type"]


def _nearest(kind: str) -> str:
    alike = difflib.get_close_matches(kind.upper(), _TYPES, n=1, cutoff=0.6)
    return f": did you mean '{alike[0]}'?" if alike else f"; there are {', '.join(_TYPES)}"


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas that are in no bracket and in no quotation."""
    depth, start, quote = 0, 0, ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]
