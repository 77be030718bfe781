"""What holds for all tests: what the quick ones need, where fixtures are, that each can fail."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
# What the fixtures of control planes, nodes, operators and Spark begin with.
HEAVY: Final = {"plane", "java"}
SERVERS: Final = {"redis_86", "redis_70", "valkey", "any_redis", "run_redis", "redis_tls"}
NEEDLESS: Final = {"unit": HEAVY | SERVERS, "properties": HEAVY, "contract": HEAVY}
FAILING: Final = {"raises", "warns", "fail"}
# Functions that make a test fail without an `assert` in a test helper.
OTHERWISE: Final = {"check_reply", "run_state_machine_as_test", "shown"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_quick_tests_need_no_control_plane_and_unit_tests_no_server(
    request: pytest.FixtureRequest,
) -> None:
    needing = {
        item.nodeid: found
        for item in request.session.items
        if (needless := NEEDLESS.get(item.path.parent.name))
        if (found := needless.intersection(getattr(item, "fixturenames", ())))
    }
    assert needing == {}


@cache
def _modules(folder: str) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / folder).rglob("*.py"))}


def _is_fixture(node: ast.stmt) -> bool:
    return isinstance(node, Function) and any(
        "fixture" in ast.unparse(one) for one in node.decorator_list
    )


@pytest.mark.full
def test_no_fixture_is_imported() -> None:
    modules = _modules("tests")
    fixtures = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), node.name)
        for path, module in modules.items()
        for node in module.body
        if isinstance(node, Function) and _is_fixture(node)
    }
    assert len(fixtures) > 50
    imported = [
        f"{path.relative_to(ROOT)}: {name.name}"
        for path, module in modules.items()
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if (node.module, name.name) in fixtures
    ]
    assert imported == []


def _calls(node: ast.AST) -> set[str]:
    """The last word of everything that is called."""
    called = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return {
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in called
        if isinstance(one, ast.Attribute | ast.Name)
    }


def _asserts(node: ast.AST) -> bool:
    return bool(FAILING & _calls(node)) or any(isinstance(n, ast.Assert) for n in ast.walk(node))


@pytest.mark.full
def test_every_test_asserts_something_by_itself_or_by_a_helper() -> None:
    tests: dict[str, Function] = {}
    helpers: dict[str, list[Function]] = defaultdict(list)
    for path, module in (_modules("tests") | _modules("local_cluster")).items():
        for node in ast.walk(module):
            if isinstance(node, Function):
                if node.name.startswith("test_") and path.name.startswith("test_"):
                    tests[f"{path.relative_to(ROOT)}::{node.name}"] = node
                else:
                    helpers[node.name].append(node)
    # `wait_until` raises when its condition does not come.
    good = {*FAILING, *OTHERWISE, "wait_until"}
    good |= {name for name, found in helpers.items() if any(map(_asserts, found))}
    while more := {
        name
        for name, found in helpers.items()
        if name not in good and any(good & _calls(one) for one in found)
    }:
        good |= more
    assert len(tests) > 2000
    idle = [name for name, node in tests.items() if not _asserts(node) and not good & _calls(node)]
    assert idle == []
