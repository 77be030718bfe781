"""The navigation: mkdocs.yml names pages, and directories whose pages are all listed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools.docs_site.pages import TOP_PAGES

# One record after the other; their index lists them.
_UNLISTED = "architecture/decisions/"
_DIRECTORY = re.compile(r"^( *)- (\S.*): (\S+/)$", re.MULTILINE)


def render_settings(root: Path, *, default_version: str | None = None) -> str:
    """Return mkdocs.yml with the pages of each listed directory that are not listed themselves.

    The directory's index comes first, then the other pages by title. With `default_version` each
    page has a selector of versions, and asks for `versions.json` beside the directory of the site.
    """
    text = (root / "mkdocs.yml").read_text("utf-8")
    head, start, navigation = text.partition("\nnav:\n")
    listed = set(_read_navigation(navigation))

    def expand(match: re.Match[str]) -> str:
        indent, title, directory = match.groups()
        pages = [
            page for page in (root / "docs" / directory).glob("*.md") if page.name != "index.md"
        ]
        lines = [f"{indent}- {title}:"]
        if (root / "docs" / directory / "index.md").exists():
            lines.append(f"{indent}  - {directory}index.md")
        for heading, page in sorted((_read_title(page), page) for page in pages):
            if directory + page.name not in listed:
                lines.append(f"{indent}  - {json.dumps(heading)}: {directory}{page.name}")
        return "\n".join(lines) if len(lines) > 1 else ""

    if default_version is not None:
        selector = f"version: {{provider: mike, default: {default_version}}}"
        head = head.replace("\nextra:\n", f"\nextra:\n  {selector}\n")
    return head + start + _DIRECTORY.sub(expand, navigation)


def find_navigation_problems(root: Path) -> Iterator[str]:
    """Yield a line for each page of docs/ that is not listed, and each entry without a page."""
    listed = set(_read_navigation(render_settings(root).partition("\nnav:\n")[2]))
    docs = root / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    for page in sorted(pages - listed):
        if not page.startswith(_UNLISTED):
            yield f"mkdocs.yml: {page} is not in the navigation"
    for page in sorted(listed - pages - set(TOP_PAGES.values())):
        yield f"mkdocs.yml: {page} does not exist"


def _read_title(page: Path) -> str:
    found = re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)
    # The navigation is plain text: marks of code would be shown.
    return found[1].replace("`", "") if found else page.stem


def _read_navigation(text: str) -> Iterator[str]:
    # The settings before it have a tag of Python that no safe loader reads.
    yield from _list_entries(yaml.safe_load(text) or [])


def _list_entries(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
        return
    for child in node.values() if isinstance(node, dict) else node:
        yield from _list_entries(child)
