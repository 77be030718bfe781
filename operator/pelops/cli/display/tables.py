"""Pieces of text with a style, and tables of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class Style(Enum):
    """Meaning of a piece of text, which decides its color."""

    GOOD = "32"
    WARNING = "33"
    BAD = "31"
    FAINT = "2"
    STRONG = "1"


MARKS: Final = {
    Style.GOOD: "√",
    Style.WARNING: "‼",
    Style.BAD: "\N{MULTIPLICATION SIGN}",
}


@dataclass(frozen=True, slots=True)
class Styled:
    """A piece of text that is shown in a color where there are colors."""

    text: str
    style: Style


Text: TypeAlias = str | Styled
Line: TypeAlias = tuple[Text, ...]
# None is shown as `-`; an int gets thousands separators.
Cell: TypeAlias = str | int | Styled | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    right: bool = False  # aligned to the right, as numbers are
    wide: bool = False  # shown with `-o wide` only


_GAP: Final = "  "
_SAME_WIDTH: Final = 0x300  # below it every printable character takes one column


def render_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, wide: bool = False
) -> Iterator[Line]:
    """Yield the header and a line for each row; every row has a cell for each column."""
    shown = [at for at, column in enumerate(columns) if wide or not column.wide]
    header: list[Cell] = [column.name for column in columns]
    texts = [[_text(row[at]) for at in shown] for row in (header, *rows)]
    widths = [max(display_width(_plain(row[at])) for row in texts) for at in range(len(shown))]
    for row in texts:
        cells = [
            _pad(cell, widths[at], right=columns[shown[at]].right) for at, cell in enumerate(row)
        ]
        yield tuple(_join(cells))


def wrap_line(parts: Sequence[Text], width: int, indent: int) -> Iterator[Line]:
    """Yield the lines of a text that has at most `width` columns, split between words.

    The lines after the first begin with `indent` spaces. Nothing is split before that column, and a
    longer word remains whole.

    >>> list(wrap_line(("Redis   cannot be reached",), 18, 8))
    [('Redis   cannot be',), ('        reached',)]
    """
    line: list[Text] = [""]
    used = 0
    for part in parts:
        for word in re.findall(r"\s*\S+|\s+", _plain(part)):
            if used > indent and word[0].isspace() and used + display_width(word) > width:
                yield tuple(line)
                line, used, word = [" " * indent], indent, word.lstrip()  # noqa: PLW2901
            used += display_width(word)
            last = line[-1]
            if isinstance(part, str) and isinstance(last, str):
                line[-1] = last + word
            else:
                line.append(word if isinstance(part, str) else Styled(word, part.style))
    yield tuple(line)


def display_width(text: str) -> int:
    """Return the number of columns that a terminal uses for a printable text."""
    if all(ord(character) < _SAME_WIDTH for character in text):
        return len(text)
    import unicodedata  # half a megabyte that plain names do not need

    return sum(
        0
        if unicodedata.combining(character)
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def make_printable(text: str) -> str:
    """Return the text with every control and formatting character as an escape.

    Names and messages come from Redis and from other users: none may move the cursor of a
    terminal, or change what another line shows.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _text(cell: Cell) -> Text:
    if cell is None:
        return "-"
    if isinstance(cell, bool) or not isinstance(cell, int):
        return cell if isinstance(cell, Styled) else make_printable(str(cell))
    return f"{cell:,}"


def _plain(text: Text) -> str:
    return text if isinstance(text, str) else make_printable(text.text)


def _pad(text: Text, width: int, *, right: bool) -> Line:
    space = " " * (width - display_width(_plain(text)))
    return (space, text) if right else (text, space)


def _join(cells: Sequence[Line]) -> Iterator[Text]:
    """Yield the pieces of a row with gaps between them, without spaces at the end."""
    pieces = [piece for cell in cells for piece in (*cell, _GAP)]
    while pieces and isinstance(pieces[-1], str) and not pieces[-1].strip():
        pieces.pop()
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] = pieces[-1].rstrip()
    yield from (piece for piece in pieces if piece)
