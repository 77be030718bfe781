"""The result of the demo as a table for people."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields

from demo.corpus import Source
from demo.counting import FileCounts, Totals, add_up

EXAMPLES = 3


def render_summary(sources: Sequence[Source], results: Mapping[str, FileCounts]) -> str:
    """Sums for each source and for all, then some of the files that cannot be parsed."""
    header = ["", *(field.name.replace("_", " ") for field in fields(Totals))]
    rows = [
        _row(source.label, add_up(results[str(p)] for p in source.paths if str(p) in results))
        for source in sources
    ]
    rows.append(_row("together", add_up(results.values())))
    return "\n".join([*_align([header, *rows]), *render_unparsable(results)])


def render_unparsable(results: Mapping[str, FileCounts]) -> list[str]:
    """A few of the files that cannot be parsed, spread over all of them; nothing without any."""
    errors = {path: one.error for path, one in sorted(results.items()) if one.error is not None}
    if not errors:
        return []
    chosen = list(errors.items())[:: -(-len(errors) // EXAMPLES)]
    return [f"{len(errors)} cannot be parsed, such as", *(f"  {p}  {e}" for p, e in chosen)]


def _row(label: str, totals: Totals) -> list[str]:
    return [label, *(f"{number:,}" for number in astuple(totals))]


def _align(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]
