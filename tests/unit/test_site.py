"""Links that users see lead to pages that exist, on the project's site."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pelops.domain.site import SITE, page_url
from tools.supply_chain.plugin import RELEASES

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "operator").rglob("*.py"))
DOCS = f"{SITE}/docs/latest/"


def list_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the text of every string of a module except its docstrings."""
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
            yield node.lineno, node.value


def test_no_message_names_a_file_of_the_repository() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in SOURCES
        for line, text in list_texts(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"\bdocs/[\w/-]+\.md", text)
    ]
    assert not found


def list_pages() -> Iterator[tuple[str, str]]:
    """The page and the section of each call of page_url."""
    call = re.compile(r"""page_url\(\s*["']([\w/-]+)["'](?:, section=["']([\w-]+)["'])?""")
    for path in SOURCES:
        if path.name != "site.py":
            yield from call.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("page", "section"), sorted(set(list_pages())))
def test_a_link_leads_to_a_page_and_a_section(page: str, section: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert not section or section in {one.lower().replace(" ", "-") for one in titles}


def test_alerts_and_releases_are_on_the_same_site() -> None:
    assert RELEASES.startswith(f"{SITE}/")
    rules = (ROOT / "manifests").rglob("*.yaml")
    links = re.findall(r"runbook_url: (\S+)", "\n".join(path.read_text() for path in rules))
    alerts = page_url("runbook/alerts", section="")
    assert links and all(link.startswith(f"{alerts}#") for link in links)
