"""Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_CODE: Final = re.compile(r"(`[^`]*`)")


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _render_row(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _render_row(row)


def _render_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escape, cells))} |".replace("|  |", "| |")


def _escape(cell: str) -> str:
    """A cell must not end early, and outside of code a placeholder must not become a tag."""
    parts = _CODE.split(cell.replace("\n", " ").replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
