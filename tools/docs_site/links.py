"""Problems of a built site: links that lead nowhere, loads from other hosts, lists in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# An element that loads what it names, and the attribute that names it.
_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
# The rest of <link> only names an address.
_LOADED_LINKS = {"stylesheet", "preconnect", "preload", "icon", "modulepreload"}
# A block that is indented by less than 4 spaces ends its list, and the next step is number 1 too.
_LONE = "a list with the number 1 alone; indent blocks by 4 spaces"


@dataclass
class _Page(HTMLParser):
    """What a page links to, what it loads, its anchors, and its ordered lists."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    lists: list[list[str]] = field(default_factory=list)  # the text of each item
    _open_lists: list[list[str]] = field(default_factory=list)  # of both kinds, the innermost last

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        address = values.get(_LOADS.get(tag, ""))
        if address and (tag != "link" or _LOADED_LINKS & set(values.get("rel", "").split())):
            self.loaded.append(address)
        if tag in {"ol", "ul"}:
            self._open_lists.append([])
            if tag == "ol":
                self.lists.append(self._open_lists[-1])
        elif tag == "li" and self._open_lists:
            self._open_lists[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"ol", "ul"} and self._open_lists:
            self._open_lists.pop()

    def handle_data(self, data: str) -> None:
        if self._open_lists and self._open_lists[-1]:
            self._open_lists[-1][-1] += data


def find_problems(site: Path) -> Iterator[str]:
    """Yield a line for each problem of the pages below `site`, which is not changed."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path in pages:
        name = path.relative_to(site)
        # The page for what is not found uses addresses from the root of the host.
        if name.name == "404.html":
            continue
        yield from (f"{name}: {problem}" for problem in _find_page_problems(path, pages))


def _find_page_problems(path: Path, pages: dict[Path, _Page]) -> Iterator[str]:
    page = pages[path]
    for address in page.loaded:
        if urlsplit(address).netloc:
            yield f"loads {address} from another host"
    for address in [*page.links, *page.loaded]:
        if not _leads_somewhere(path, address, pages):
            yield f"{address} leads nowhere"
    for items in page.lists:
        if len(items) == 1:
            yield f"{_LONE}: {' '.join(items[0].split())[:60]}"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


def _leads_somewhere(path: Path, address: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target not in pages or anchor in pages[target].anchors
