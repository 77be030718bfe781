"""The check of the site finds what leads nowhere, and all pages are on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs_site.links import find_problems
from tools.docs_site.navigation import find_navigation_problems

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_every_page_of_docs_is_in_the_navigation() -> None:
    assert list(find_navigation_problems(ROOT)) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b/">b</a>', None),
        ('<a href="b/#there">b</a>', None),
        ('<a href="https://example.com/x">b</a>', None),
        ('<link rel="canonical" href="https://example.com/x">', None),
        ('<a href="c/">c</a>', "index.html: c/ leads nowhere"),
        ('<a href="b/#gone">b</a>', "index.html: b/#gone leads nowhere"),
        ('<a href="#gone">b</a>', "index.html: #gone leads nowhere"),
        ('<img src="gone.svg">', "index.html: gone.svg leads nowhere"),
        (
            '<script src="https://example.com/x.js"></script>',
            "index.html: loads https://example.com/x.js from another host",
        ),
        ("<ol><li>one<ul><li>a</li></ul></li><li>two</li></ol>", None),
        ("<ul><li>a</li></ul>", None),
        (
            # What "1. one:", a block that is indented by 3 spaces, and "2. two" become.
            "<ol><li>one:</li></ol><pre>make</pre><ol><li>two</li><li>three</li></ol>",
            "index.html: a list with the number 1 alone; indent blocks by 4 spaces: one:",
        ),
    ],
)
def test_problems_of_a_page_are_found(tmp_path: Path, body: str, problem: str | None) -> None:
    write(tmp_path, {"index.html": body, "b/index.html": '<h2 id="there">B</h2>'})
    assert list(find_problems(tmp_path)) == ([problem] if problem else [])


def test_the_quickstart_shows_the_manifest_that_it_applies() -> None:
    page = (ROOT / "docs/get-started/quickstart.md").read_text("utf-8")
    comment, _, manifest = (ROOT / "examples/quickstart.yaml").read_text("utf-8").partition("\n")
    assert comment.startswith("#") and f"```yaml\n{manifest}```\n" in page
