"""The tables of options in docs/spark/data-source.md, written from what the data source declares.

Each table is between `<!-- options: <section> -->` and `<!-- end of options -->`.

`python -m tools.spark_options --write` writes them; `--check` exits 1 and shows the difference when
the page is not what the declarations say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pelops.api.generated_files import write_or_check
from pyspark_redis_streams.options.option import EVERY_VIEW, READS, Option, Use, View
from pyspark_redis_streams.options.parsed import OPTIONS

PAGE: Final = "docs/spark/data-source.md"
ALIASES: Final = "names of Kafka"
_ROOT: Final = Path(__file__).parents[1]
_TABLE: Final = re.compile(
    r"(?P<begin><!-- options: (?P<section>.+?) -->\n).*?(?P<end><!-- end of options -->\n)",
    re.DOTALL,
)


def render_page(page: str, options: Iterable[Option] = OPTIONS) -> str:
    """Return the page with its tables written again.

    Raises:
        ValueError: the page has no table of a section, or a table that no option belongs to.
    """
    tables = {ALIASES: ["| Kafka's name | Option | Value |", "|---|---|---|"]}
    for option in options:
        if option.section not in tables:
            head = "| Option | Value | Default | For | What it does |"
            tables[option.section] = [head, "|---|---|---|---|---|"]
        tables[option.section].append(_row(option))
        if option.kafka is not None:
            value = _escape(option.kafka.kind.name)
            tables[ALIASES].append(f"| `{option.kafka.name}` | `{option.name}` | {value} |")
    places = [found["section"] for found in _TABLE.finditer(page)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has tables for {places}, and the options are of {[*tables]}")
    return _TABLE.sub(
        lambda found: found["begin"] + "\n".join([*tables[found["section"]], found["end"]]), page
    )


def _row(option: Option) -> str:
    default = "" if option.default is None else f"`{option.default}`"
    cells = (f"`{option.name}`", option.kind.name, default, describe_scope(option), option.meaning)
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def describe_scope(option: Option) -> str:
    """Return what an option holds for: reads, of which views unless of all, and writes."""
    reads = option.uses & READS
    scope = ["writes"] if Use.WRITE in option.uses else []
    if reads == {Use.STREAM}:  # of view `entries`: there is no other
        return ", ".join(["streaming reads", *scope])
    if reads:
        views = ", ".join(f"`{view}`" for view in View if view in option.views)
        kind = "reads" if reads == READS else "batch reads"
        scope.insert(0, kind if option.views == EVERY_VIEW else f"{kind} of {views}")
    return ", ".join(scope)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; return the exit code."""
    page = render_page((_ROOT / PAGE).read_text(encoding="utf-8"))
    return write_or_check({PAGE: page}, "python -m tools.spark_options", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
