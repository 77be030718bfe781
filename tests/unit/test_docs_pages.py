"""Links lead somewhere, and every block says what it is and whether a test runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.docs_pages import (
    ROOT,
    Block,
    list_anchors,
    list_blocks,
    list_links,
    list_pages,
    read_blocks,
)

PAGES: Final = [path.relative_to(ROOT).as_posix() for path in list_pages()]
RUN: Final = {"sh", "python"}  # run by a test, or marked
NEVER_RUN: Final = {"console"}  # commands between what they print: marked
CHECKED: Final = {"yaml", "json", "toml", "promql", "lua", "sql", "ini"}
SHOWN: Final = {"text", "mermaid", "go", "java", "js", "html", "svg", "diff"}


def find_fault(block: Block) -> str | None:
    """Return what is wrong with a block; None if nothing is."""
    if block.language not in RUN | NEVER_RUN | CHECKED | SHOWN:
        return f"{block}: name the language"
    if block.language in NEVER_RUN and not block.is_marked:
        return f"{block}: give the reason why no test runs it, or make it an `sh` block"
    if block.not_run is not None and len(block.not_run) <= 8:
        return f"{block}: give a reason"
    if block.run_by is not None and not (ROOT / block.run_by).is_file():
        return f"{block}: there is no {block.run_by}"
    return None


@pytest.mark.parametrize("page", PAGES)
def test_each_link_and_anchor_of_a_page_leads_somewhere(page: str) -> None:
    path = ROOT / page
    lost = []
    for line, target in list_links(path.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        if not linked.exists():
            lost.append(f"{page}:{line}: {target}: there is no such file")
        elif anchor and linked.suffix == ".md" and anchor not in _anchors_of(linked):
            lost.append(f"{page}:{line}: {target}: there is no such heading")
    assert lost == []


@pytest.mark.parametrize("page", PAGES)
def test_each_code_block_names_its_language_and_why_it_is_not_tested(page: str) -> None:
    blocks = read_blocks(page, (ROOT / page).read_text("utf-8"))
    assert [fault for block in blocks if (fault := find_fault(block))] == []


@pytest.mark.parametrize("block", list_blocks("yaml", "json"), ids=str)
def test_a_block_of_data_can_be_read(block: Block) -> None:
    if block.language == "json":
        json.loads(block.code)
    else:
        assert [*yaml.safe_load_all(block.code)] != []


PAGE = """# First `code` & more: here

<!-- not run: takes an hour -->
```sh
make test-full
# not a heading
```

## Twice
## Twice

1. A step

   ```yaml
   a: 1
   ```
[a](#twice-1) `[b](c.md)` [d](e.md#f)
"""


def test_blocks_are_found_with_their_marks() -> None:
    first, second = read_blocks("page.md", PAGE)
    assert (first.language, first.line, first.not_run) == ("sh", 5, "takes an hour")
    assert (second.code, second.is_marked) == ("a: 1\n", False)


def test_links_and_anchors_are_found_outside_of_code() -> None:
    assert list_links(PAGE) == [(17, "#twice-1"), (17, "e.md#f")]
    assert list_anchors(PAGE) == {"first-code--more-here", "twice", "twice-1"}


def _anchors_of(page: Path) -> set[str]:
    return list_anchors(page.read_text("utf-8"))
