"""The blocks, links and headings of the documentation, for the tests that hold it to its word.

A comment on the line before a block says why no test runs it, or which test does:

    <!-- not run: needs a cloud account -->
    <!-- run by: tests/integration/test_worker_page.py -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TOP_PAGES: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<language>\w*)[^\n`]*$")
_MARK: Final = re.compile(r"^ *<!-- (?P<kind>not run|run by): (?P<text>.+?) -->$")
_HEADING: Final = re.compile(r"^#{1,6} +(?P<text>.+?)\s*$")
_LINK: Final = re.compile(r"!?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_CODE: Final = re.compile(r"`[^`\n]*`")
_ANCHOR: Final = re.compile(
    r"""<a (?:id|name)=["'](?P<name>[^"']+)["']|\{ *#(?P<named>[\w-]+) *\}"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str  # from the root of the repository
    line: int  # of its first line of code
    language: str  # empty when the fence names none
    code: str  # without the indentation of the fence
    not_run: str | None = None  # the reason
    run_by: str | None = None  # the file of the test

    @property
    def is_marked(self) -> bool:
        """Whether a comment says why it is not run here."""
        return self.not_run is not None or self.run_by is not None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def list_pages() -> list[Path]:
    """Return every page: those of docs/ and those at the root of the repository."""
    top = [ROOT / name for name in TOP_PAGES]
    return [*(path for path in top if path.exists()), *sorted((ROOT / "docs").rglob("*.md"))]


def list_blocks(*languages: str) -> list[Block]:
    """Return the blocks in these languages, or all of them, of every page."""
    return [
        block
        for page in list_pages()
        for block in read_blocks(page.relative_to(ROOT).as_posix(), page.read_text("utf-8"))
        if not languages or block.language in languages
    ]


def read_blocks(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a page. Raises ValueError for a fence that does not end."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            at += 1
            continue
        end = next(
            (n for n in range(at + 1, len(lines)) if lines[n].strip() == opened["fence"]), None
        )
        if end is None:
            raise ValueError(f"{page}:{at + 1}: the block does not end")
        indent = len(opened["indent"])
        code = "".join(f"{line[indent:]}\n" for line in lines[at + 1 : end])
        mark = _MARK.match(lines[at - 1]) if at else None
        marks = {mark["kind"].replace(" ", "_"): mark["text"]} if mark else {}
        yield Block(page=page, line=at + 2, language=opened["language"], code=code, **marks)
        at = end + 1


def strip_blocks(text: str) -> str:
    """Return a page without what its blocks hold; the number of lines stays."""
    kept: list[str] = []
    fence: str | None = None
    for line in text.splitlines():
        found = _FENCE.match(line)
        if fence is None and found is not None:
            fence = found["fence"]
        elif fence is not None and line.strip() == fence:
            fence = None
        kept.append(line if fence is None and found is None else "")
    return "\n".join(kept)


def list_anchors(text: str) -> set[str]:
    """Return the anchors of a page, as GitHub and the site make them from headings."""
    anchors: dict[str, int] = {}
    names: set[str] = set()
    for line in strip_blocks(text).splitlines():
        names |= {found["name"] or found["named"] for found in _ANCHOR.finditer(line)}
        heading = _HEADING.match(line)
        if heading is None:
            continue
        slug = make_slug(heading["text"])
        count = anchors.get(slug, 0)
        anchors[slug] = count + 1
        names.add(f"{slug}-{count}" if count else slug)
    return names


def make_slug(heading: str) -> str:
    """Return the anchor of a heading."""
    text = _LINK.sub(lambda found: found["text"], heading)
    text = re.sub(r"\{ *#[\w-]+ *\}", "", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def list_links(text: str) -> list[tuple[int, str]]:
    """Return the links of a page that lead into the repository: the line and the target."""
    found = []
    for number, line in enumerate(strip_blocks(text).splitlines(), 1):
        for link in _LINK.finditer(_CODE.sub("``", line)):
            if "://" not in link["target"] and not link["target"].startswith("mailto:"):
                found.append((number, link["target"]))
    return found
