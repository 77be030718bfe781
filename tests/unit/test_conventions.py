"""What holds for all tests: what the quick ones need, where fixtures are, that each can fail."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.full

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"
QUICK: Final = ("unit", "properties", "contract")
# What the fixtures of control planes, nodes, operators and Spark begin with.
HEAVY: Final = {"plane", "java"}
FAILING: Final = {"raises", "warns", "fail"}
# Functions that make a test fail without an `assert` in a test helper.
OTHERWISE: Final = {"check_reply", "run_state_machine_as_test", "shown"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_quick_tests_need_no_control_plane_and_no_java(request: pytest.FixtureRequest) -> None:
    folders = {TESTS / name for name in QUICK}
    quick = [item for item in request.session.items if item.path.parent in folders]
    assert request.node in quick
    needing = {
        item.nodeid: found
        for item in quick
        if (found := HEAVY.intersection(getattr(item, "fixturenames", ())))
    }
    assert needing == {}


def test_unit_tests_start_no_server(request: pytest.FixtureRequest) -> None:
    ours = {item for item in request.session.items if item.path.parent == TESTS / "unit"}
    servers = {"redis_86", "redis_70", "valkey", "any_redis", "run_redis", "redis_tls"}
    starting = [
        item.nodeid for item in ours if servers.intersection(getattr(item, "fixturenames", ()))
    ]
    assert starting == []


def _modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def _is_fixture(node: ast.stmt) -> bool:
    return isinstance(node, Function) and any(
        "fixture" in ast.unparse(one) for one in node.decorator_list
    )


def test_no_fixture_is_imported() -> None:
    modules = dict(_modules("tests"))
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


def test_every_test_asserts_something_by_itself_or_by_a_helper() -> None:
    tests: dict[str, Function] = {}
    helpers: dict[str, list[Function]] = defaultdict(list)
    for path, module in _modules("tests", "local_cluster"):
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
