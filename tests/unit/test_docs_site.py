"""The site is made of the pages in docs/, and what leads nowhere is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.docs_site.links import find_problems
from tools.docs_site.navigation import find_navigation_problems
from tools.docs_site.pages import write_pages
from tools.docs_site.versions import add_version

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


TOP = {"CHANGELOG.md": "# Changelog\n", "CONTRIBUTING.md": "# C\n", "SECURITY.md": "# S\n"}


def test_every_page_of_docs_is_in_the_navigation() -> None:
    assert list(find_navigation_problems(ROOT)) == []


def test_a_link_out_of_docs_leads_to_a_page_showing_the_file(tmp_path: Path) -> None:
    page = "[a](../../demo/run.py) [b](../index.md#x) [c](../../SECURITY.md)\n"
    files = {"docs/index.md": "", "docs/guides/a.md": page, "demo/run.py": "print(1)\n"}
    write(tmp_path, {**TOP, **files})
    write_pages(tmp_path, tmp_path / "pages")
    written = (tmp_path / "pages/guides/a.md").read_text()
    assert written == "[a](../files/demo/run.py.md) [b](../index.md#x) [c](../security.md)\n"
    assert "````python\nprint(1)\n````" in (tmp_path / "pages/files/demo/run.py.md").read_text()


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


def test_versions_are_kept_beside_each_other_and_the_alias_moves(tmp_path: Path) -> None:
    site, into = tmp_path / "site", tmp_path / "versions"
    for version in ("0.9", "0.10"):
        write(site, {"index.html": version})
        add_version(site, into, version, "latest")
    assert (into / "0.9/index.html").read_text() == "0.9"
    assert (into / "latest/index.html").read_text() == "0.10"
    assert json.loads((into / "versions.json").read_text()) == [
        {"version": "0.10", "title": "0.10", "aliases": ["latest"]},
        {"version": "0.9", "title": "0.9", "aliases": []},
    ]
    assert 'url=latest/"' in (into / "index.html").read_text()


def test_the_quickstart_shows_the_manifest_that_it_applies() -> None:
    page = (ROOT / "docs/get-started/quickstart.md").read_text("utf-8")
    comment, _, manifest = (ROOT / "examples/quickstart.yaml").read_text("utf-8").partition("\n")
    assert comment.startswith("#") and f"```yaml\n{manifest}```\n" in page
