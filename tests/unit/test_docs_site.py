"""The site is made of the pages in docs/, and what leads nowhere is found."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from tools.docs_site.links import find_problems
from tools.docs_site.navigation import find_navigation_problems, render_settings
from tools.docs_site.pages import outside_code, write_pages
from tools.docs_site.recording import LONGEST_PAUSE_S, Line, render_picture
from tools.docs_site.recording import main as record
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


def test_missing_pages_and_missing_navigation_entries_are_found(tmp_path: Path) -> None:
    nav = "x: 1\nnav:\n  - Home: index.md\n  - Guides:\n    - guides/gone.md\n"
    write(tmp_path, {"mkdocs.yml": nav, "docs/index.md": "", "docs/guides/new.md": ""})
    assert list(find_navigation_problems(tmp_path)) == [
        "mkdocs.yml: guides/new.md is not in the navigation",
        "mkdocs.yml: guides/gone.md does not exist",
    ]


def test_a_directory_in_the_navigation_stands_for_its_pages(tmp_path: Path) -> None:
    nav = "x: 1\nnav:\n  - Home: index.md\n  - First: a/one.md\n  - All: a/\n  - None: b/\n"
    files = {"docs/index.md": "", "docs/a/index.md": "# A\n", "docs/a/one.md": "# One\n"}
    others = {"docs/a/b.md": "# Z: `last`\n", "docs/a/z.md": "# Before\n"}
    write(tmp_path, {"mkdocs.yml": nav, **files, **others})
    assert render_settings(tmp_path) == (
        "x: 1\nnav:\n  - Home: index.md\n  - First: a/one.md\n  - All:\n    - a/index.md\n"
        '    - "Before": a/z.md\n    - "Z: last": a/b.md\n\n'
    )
    assert list(find_navigation_problems(tmp_path)) == []


def test_only_a_site_with_versions_asks_for_their_list() -> None:
    assert "version:" not in render_settings(ROOT)
    assert "\nextra:\n  version: {provider: mike, default: latest}\n" in render_settings(
        ROOT, default_version="latest"
    )


def test_the_address_of_the_site_is_that_of_the_links_in_alerts() -> None:
    (address,) = re.findall(r"^site_url: (.+)$", render_settings(ROOT), re.MULTILINE)
    rules = (ROOT / "manifests/monitoring/rules.yaml").read_text("utf-8")
    linked = re.findall(r"runbook_url: (\S+)", rules)
    assert linked and all(link.startswith(f"{address}runbook/alerts/#") for link in linked)


def test_a_link_out_of_docs_leads_to_a_page_showing_the_file(tmp_path: Path) -> None:
    page = "[a](../../demo/run.py) [b](../index.md#x) [c](../../SECURITY.md)\n"
    files = {"docs/index.md": "", "docs/guides/a.md": page, "demo/run.py": "print(1)\n"}
    write(tmp_path, {**TOP, **files})
    write_pages(tmp_path, tmp_path / "pages")
    written = (tmp_path / "pages/guides/a.md").read_text()
    assert written == "[a](../files/demo/run.py.md) [b](../index.md#x) [c](../security.md)\n"
    assert "````python\nprint(1)\n````" in (tmp_path / "pages/files/demo/run.py.md").read_text()


def test_a_link_to_a_file_that_is_not_there_stops_the_build(tmp_path: Path) -> None:
    write(tmp_path, {**TOP, "docs/index.md": "[a](../demo/gone.py)\n"})
    with pytest.raises(FileNotFoundError, match=r"demo/gone\.py"):
        write_pages(tmp_path, tmp_path / "pages")


def test_what_looks_like_a_link_in_code_stays() -> None:
    text = "a\n```\nb\n```\na\n~~~~\nb\n```\nb\n~~~~\na"
    assert outside_code(text, str.upper).count("A") == 3
    assert outside_code(text, str.upper).count("b") == 3


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


def test_a_recording_shows_commands_and_their_output_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "# two steps\necho first\n@echo unseen\necho '<second>'\n"
    write(tmp_path, {"script.sh": script})
    assert record([str(tmp_path / "script.sh"), str(tmp_path / "picture.svg")]) == 0
    shown = ["# two steps", "$ echo first", "first", "$ echo '<second>'", "<second>"]
    assert capsys.readouterr().out.splitlines() == shown
    texts = re.findall(r">([^<>]*)</text>", (tmp_path / "picture.svg").read_text())
    assert [html.unescape(text) for text in texts] == shown


def test_long_pauses_of_a_recording_are_cut_short() -> None:
    lines = [Line(at_s=0.0, text="a"), Line(at_s=60.0, text="b"), Line(at_s=60.2, text="c")]
    delays = [float(one) for one in re.findall(r"delay:([\d.]+)s", render_picture(lines))]
    assert delays == [0.0, LONGEST_PAUSE_S, round(LONGEST_PAUSE_S + 0.2, 1)]


def test_a_command_that_fails_stops_a_recording(tmp_path: Path) -> None:
    write(tmp_path, {"script.sh": "false\n"})
    with pytest.raises(subprocess.CalledProcessError):
        record([str(tmp_path / "script.sh"), str(tmp_path / "picture.svg")])


def test_the_quickstart_shows_the_manifest_that_it_applies() -> None:
    page = (ROOT / "docs/get-started/quickstart.md").read_text("utf-8")
    comment, _, manifest = (ROOT / "examples/quickstart.yaml").read_text("utf-8").partition("\n")
    assert comment.startswith("#") and f"```yaml\n{manifest}```\n" in page
