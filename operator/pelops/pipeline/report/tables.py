"""Tables that can be read by a person, by a screen reader, and copied as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pelops.pipeline.report.markup import Child, Html, make_visible, tag

_MOST_SHOWN: Final = 2000  # characters of a cell in the copy
_NUMBER: Final = re.compile(r"-?[0-9]*(\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell as it is shown, and as it is copied: numbers there have no spaces."""

    shown: Child
    copied: str
    kind: str | None = None  # class: `number`, `bar`


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under headings; the first cell of a row is its heading."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: Sequence[Cell] = ()
    kinds: Sequence[str | None] = ()  # of the headings
    is_compact: bool = False  # no wider than it needs to be


def number_cell(shown: str, copied: object) -> Cell:
    """A number, aligned to the right."""
    return Cell(shown=shown, copied=str(copied), kind="number")


def text_cell(text: str) -> Cell:
    """A text in words of ours."""
    return Cell(shown=text, copied=text, kind="text" if len(text) > 16 else None)


def code_cell(text: str) -> Cell:
    """A text that somebody else wrote, or an ID."""
    return Cell(shown=tag("code", text) if text else "", copied=text, kind="code")


def build_table(table: Table) -> Html:
    """The table, which scrolls on its own where it is too wide, and its copy."""
    kinds = table.kinds or [None] * len(table.headings)
    headings = [
        tag("th", heading, scope="col", class_=kind)
        for heading, kind in zip(table.headings, kinds, strict=True)
    ]
    whole = tag(
        "table",
        tag("caption", table.caption),
        tag("thead", tag("tr", headings)),
        tag("tbody", [_row(cells) for cells in table.rows]),
        tag("tfoot", _row(table.total)) if table.total else None,
    )
    scroll = tag("div", whole, class_="scroll", role="region", tabindex=0, aria_label=table.caption)
    return tag("div", scroll, _copy(table), class_="table compact" if table.is_compact else "table")


def _row(cells: Sequence[Cell]) -> Html:
    first, *others = cells
    return tag(
        "tr",
        tag("th", first.shown, scope="row", class_=first.kind),
        [tag("td", cell.shown, class_=cell.kind) for cell in others],
    )


def _copy(table: Table) -> Html:
    """The same as tab-separated text, of which one click selects all."""
    rows = [*table.rows, *([table.total] if table.total else [])]
    named = [place for place, heading in enumerate(table.headings) if heading]
    lines = ["\t".join(table.headings[place] for place in named)]
    lines += ["\t".join(_flat(cells[place].copied) for place in named) for cells in rows]
    return tag(
        "details",
        tag("summary", "Copy as text"),
        tag("pre", "\n".join(lines), tabindex=0),
        class_="copy",
    )


def _flat(text: str) -> str:
    flat = " ".join(make_visible(text[:_MOST_SHOWN]).split())
    # A spreadsheet would run it.
    is_formula = flat[:1] in {"=", "+", "-", "@"} and not _NUMBER.fullmatch(flat)
    return f"'{flat}" if is_formula else flat
