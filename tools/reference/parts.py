"""Where the generated parts are in pages, and putting new text between their marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

Renderer = Callable[[], Iterable[str]]  # the lines of a part

_PART: Final = re.compile(
    r"(?P<begin>^<!-- generated: (?P<name>.+?) -->\n).*?(?P<end>^<!-- end of generated -->$)",
    re.DOTALL | re.MULTILINE,
)


class UnknownPartError(Exception):
    """A page has a mark for which there is no renderer, or a renderer has no mark in any page."""


def list_parts(page: str) -> list[str]:
    """Return the names of the parts of a page, in their order."""
    return [found["name"] for found in _PART.finditer(page)]


def fill_page(page: str, render: Callable[[str], Iterable[str]]) -> str:
    """Return the page with the lines that `render` gives for the name of each part."""

    def replace(found: re.Match[str]) -> str:
        return "\n".join([found["begin"], *render(found["name"]), "", found["end"]])

    return _PART.sub(replace, page)


def fill_pages(
    root: Path, renderers: Mapping[str, Renderer], command: Callable[[str], Iterable[str]]
) -> dict[str, str]:
    """Return the new text of each page below `docs` that has a part, by its path from the root.

    Args:
        root: the root of the repository.
        renderers: the parts by name; each must have a place in one page.
        command: renders a part whose name begins with `pelops `: a command and what it prints.

    Raises:
        UnknownPartError: a mark has no renderer, or a renderer no mark.
    """
    used: list[str] = []

    def render(name: str) -> Iterable[str]:
        used.append(name)
        if name.startswith("pelops "):
            return command(name)
        if name not in renderers:
            raise UnknownPartError(f"no renderer for the part {name!r}; there are {[*renderers]}")
        return renderers[name]()

    pages = {}
    for path in sorted((root / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if list_parts(text):
            pages[path.relative_to(root).as_posix()] = fill_page(text, render)
    missing = sorted(renderers.keys() - set(used))
    if missing:
        raise UnknownPartError(f"no page has a place for the parts {missing}")
    return pages
