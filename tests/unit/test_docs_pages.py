"""Links lead somewhere, and every block says what it is and whether a test runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
    make_slug,
    read_blocks,
)

PAGES: Final = [path.relative_to(ROOT).as_posix() for path in list_pages()]
RUN: Final = {"sh", "python"}  # run by a test, or marked
NEVER_RUN: Final = {"console"}  # commands between what they print: marked
CHECKED: Final = {"yaml", "json", "toml", "promql", "lua", "sql", "ini"}
SHOWN: Final = {"text", "mermaid", "go", "java", "js", "html", "svg", "diff"}
FENCE: Final = re.compile(r" *(```+)")
ITEM: Final = re.compile(r"(\d+\.|-) ")
INDENTED: Final = re.compile(r" {1,3}\S")
# Pages with blocks that name no language or no reason, by their last folder and name. A page whose
# blocks are all well must leave this list.
TO_MEND: Final[frozenset[str]] = frozenset()


def shorten(page: str) -> str:
    """The last folder and the name of a page."""
    return "/".join(Path(page).parts[-2:])


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
    faults = [fault for block in _blocks_of(page) if (fault := find_fault(block))]
    if shorten(page) in TO_MEND:
        assert faults != [], f"take {shorten(page)} off the list"
    else:
        assert faults == []


@pytest.mark.parametrize("page", PAGES)
def test_the_content_of_a_list_item_stays_in_it_on_the_site(page: str) -> None:
    assert list(find_lost_items(page, (ROOT / page).read_text("utf-8"))) == []


def find_lost_items(page: str, text: str) -> Iterator[str]:
    """Yield what the site does not take for a part of its list, or for the next item.

    That is a block or paragraph that 1 to 3 spaces indent, and an item without an empty line after
    an indented block or paragraph.
    """
    fence: str | None = None
    first = before = ""  # of the lines since the last empty one
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence is None and (found or not before) and INDENTED.match(line):
            yield f"{page}:{number}: indent it by 4 spaces"
        if fence is None and first.startswith("    ") and ITEM.match(line):
            yield f"{page}:{number}: put an empty line before it"
        if found and fence in (None, found[1]):
            fence = found[1] if fence is None else None
        before = line.strip()
        first = (first or line) if before else ""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("1. A:\n\n   ```sh\n   b\n   ```\n", [3]),
        ("1. A:\n   ```sh\n   b\n   ```\n", [2]),
        ("- A:\n\n  more\n", [3]),
        ("1. A:\n\n    more\n2. B\n", [4]),
        ("1. A:\n\n    ```sh\n    b\n    ```\n- B\n", [6]),
        ("1. A:\n\n    more\n\n2. B\n3. C\n", []),
        ("1. A,\n   the same paragraph\n", []),
        ("1. A:\n\n    ```sh\n      b\n    ```\n\n    more\n", []),
        ("```text\n\n  b\n```\n", []),
    ],
)
def test_what_is_not_a_part_of_its_list_is_found(text: str, lines: list[int]) -> None:
    found = [int(one.split(":")[1]) for one in find_lost_items("a.md", text)]
    assert found == lines


def test_the_list_of_exceptions_names_pages_that_exist() -> None:
    assert {shorten(page) for page in PAGES} >= TO_MEND


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


@pytest.mark.parametrize(
    ("language", "marks", "fault"),
    [
        ("", {}, "name the language"),
        ("console", {}, "give the reason"),
        ("sh", {"not_run": "x"}, "give a reason"),
        ("sh", {"run_by": "tests/nothing.py"}, "there is no"),
    ],
)
def test_an_incomplete_block_is_a_fault(language: str, marks: dict[str, str], fault: str) -> None:
    block = Block(page="p.md", line=1, language=language, code="ls\n", **marks)
    assert fault in (find_fault(block) or "")


def test_a_block_that_does_not_end_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"p\.md:1"):
        [*read_blocks("p.md", "```sh\nls\n")]


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("What Redis cannot confine", "what-redis-cannot-confine"),
        ("`pelops_condition` {a}", "pelops_condition-a"),
        ("[Linked](x.md) heading", "linked-heading"),
    ],
)
def test_anchors_are_made_as_the_site_makes_them(heading: str, slug: str) -> None:
    assert make_slug(heading) == slug


def _anchors_of(page: Path) -> set[str]:
    return list_anchors(page.read_text("utf-8"))


def _blocks_of(page: str) -> list[Block]:
    return [*read_blocks(page, (ROOT / page).read_text("utf-8"))]
