"""The threat model names a test for each attack, and the test is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ATTACKS = [*(f"C{n}" for n in range(1, 5)), *(f"H{n}" for n in range(1, 5))]
ATTACKS += [f"M{n}" for n in range(1, 7)]


def named_tests() -> dict[str, list[tuple[str, str]]]:
    """The file and the name of each test, by attack."""
    text = (ROOT / "docs" / "architecture" / "threat-model.md").read_text()
    section = text.partition("## Attacks and their tests")[2].partition("\n## ")[0]
    found: dict[str, list[tuple[str, str]]] = {}
    for row in re.findall(r"^\| [CHM]\d .*$", section, re.MULTILINE):
        attack, file = row.split(" | ")[0].strip("| "), ""
        tests = found.setdefault(attack, [])
        for path, test in re.findall(r"`(tests/[\w/]+\.py)?::(test_\w+)`", row):
            file = path or file
            tests.append((file, test))
    return found


def test_every_attack_has_its_row() -> None:
    assert list(named_tests()) == ATTACKS


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_tests_of_an_attack_exist(attack: str) -> None:
    tests = named_tests()[attack]
    assert tests
    for file, test in tests:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = ast.walk(ast.parse((ROOT / file).read_text()))
        assert test in {node.name for node in nodes if isinstance(node, functions)}, (file, test)
