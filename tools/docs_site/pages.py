"""The pages of the site, made from docs/.

Pages in docs/ are also read in the repository, where they link to programs, scripts and manifests
outside docs/. On the site such a link leads to a page that shows the file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

# Pages outside docs/ that are part of the site -> their names there.
TOP_PAGES: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK: Final = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_FENCE: Final = re.compile(r"^ *(```+|~~~+)", re.MULTILINE)
_LANGUAGES: Final = {".mjs": "js", ".lua": "lua", ".py": "python", ".go": "go", ".java": "java"}


def write_pages(root: Path, target: Path) -> None:
    """Replace `target` by the pages of the site. Raises FileNotFoundError for a broken link."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "docs", target)
    shown: set[Path] = set()
    for source, page in _list_pages(root):
        placed = target / page
        placed.parent.mkdir(parents=True, exist_ok=True)
        placed.write_text(_render_page(root, source, page, shown), encoding="utf-8")
    for file in sorted(shown):
        placed = target / _place_file(file)
        placed.parent.mkdir(parents=True, exist_ok=True)
        placed.write_text(_render_file(root, file), encoding="utf-8")


def _list_pages(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each page's path in the repository, and its path on the site."""
    for path in sorted((root / "docs").rglob("*.md")):
        yield path.relative_to(root), path.relative_to(root / "docs")
    for name, page in TOP_PAGES.items():
        yield Path(name), Path(page)


def _render_page(root: Path, source: Path, page: Path, shown: set[Path]) -> str:
    def replace(match: re.Match[str]) -> str:
        linked = Path(os.path.normpath(source.parent / match[2]))
        placed = _place(root, linked, shown)
        return f"{match[1]}{os.path.relpath(placed, page.parent)}{match[3]}"

    return outside_code((root / source).read_text("utf-8"), lambda text: _LINK.sub(replace, text))


def _place(root: Path, linked: Path, shown: set[Path]) -> Path:
    """Return where the site has what a link leads to, and note files that it has to show."""
    if linked.parts[0] == "docs":
        return linked.relative_to("docs")
    if str(linked) in TOP_PAGES:
        return Path(TOP_PAGES[str(linked)])
    if str(linked) == "README.md":
        return Path("index.md")
    if (root / linked).is_dir():
        linked = linked / "README.md"
    if not (root / linked).exists():
        raise FileNotFoundError(f"a page links to {linked}, which does not exist")
    shown.add(linked)
    return _place_file(linked)


def _place_file(file: Path) -> Path:
    return Path("files") / f"{file}.md"


def _render_file(root: Path, file: Path) -> str:
    text = (root / file).read_text("utf-8")
    language = _LANGUAGES.get(file.suffix, file.suffix.lstrip("."))
    header = f"---\nsearch: {{exclude: true}}\n---\n# {file}\n\n"
    return f"{header}````{language}\n{text.rstrip()}\n````\n"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the parts of a page that are not in fenced code blocks."""
    parts: list[str] = []
    position = 0
    fence = ""
    for match in _FENCE.finditer(text):
        if not fence:
            parts.append(change(text[position : match.start()]))
            fence, position = match[1], match.start()
        elif match[1].startswith(fence):
            parts.append(text[position : match.end()])
            fence, position = "", match.end()
    parts.append(text[position:] if fence else change(text[position:]))
    return "".join(parts)
