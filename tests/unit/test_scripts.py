"""Each Lua script does what its header declares, as far as its text shows."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import pytest

from pelops.redis_streams.access import Feature, UserRole
from pelops.scripts.answers import Refusal, reader_of
from pelops.scripts.calls import Script
from pelops.scripts.declaration import (
    OPERATOR_SCRIPTS,
    WORKER_SCRIPTS,
    Declaration,
    Many,
    list_scripts,
    read_declaration,
    read_include,
)

ALL = [
    (name, package)
    for package in (OPERATOR_SCRIPTS, WORKER_SCRIPTS)
    for name in list_scripts(package)
]
every_script = pytest.mark.parametrize(("name", "package"), ALL)

_CALL = re.compile(r"redis\.p?call\(\s*'([A-Z]+)'(?:,\s*'([A-Z]+)')?(?:,\s*(\w+)\b(?!\[))?")
_FUNCTION = re.compile(r"^local function (\w+)\b.*?^end$", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)
_CONTAINERS = {"XINFO", "XGROUP"}  # whose second word is a command of its own
_VERDICT = re.compile(r"(?:return| or) \{ '([a-z][a-z-]+)'")


def source_of(name: str, package: str) -> str:
    return files(package).joinpath("lua", f"{name}.lua").read_text("utf-8")


def body_of(name: str, package: str) -> str:
    """The script itself, without header and includes."""
    return re.sub(r"^--.*$", "", source_of(name, package), flags=re.MULTILINE)


@cache
def functions_of_includes(text: str, package: str) -> dict[str, str]:
    """The functions that a text includes, by name."""
    found: dict[str, str] = {}
    for name in _INCLUDE.findall(text):
        included = read_include(name, package)
        found |= functions_of_includes(included, package)
        found |= {one[1]: one[0] for one in _FUNCTION.finditer(included)}
    return found


def reached(name: str, package: str) -> str:
    """The script with every included function that it calls, and that these call."""
    functions = functions_of_includes(source_of(name, package), package)
    text, seen, waiting = "", set[str](), [body_of(name, package)]
    if "find_refusal()" in waiting[0]:
        waiting += [functions["find_wrong_type"]]
    while waiting:
        some = waiting.pop()
        text += some
        called = {one for one in functions if re.search(rf"\b{one}\b", some)} - seen
        seen |= called
        waiting += [functions[one] for one in called]
    return text


def commands_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Each command, as the ACL calls it, with the variable that is its key, if it is one."""
    for word, second, key in _CALL.findall(text):
        yield (f"{word}|{second}" if word in _CONTAINERS else word).lower(), key or None


def single_keys(declared: Declaration) -> set[str]:
    return {key.name for key in declared.keys if key.many is not Many.ANY}


@every_script
def test_the_commands_are_those_that_the_script_runs(name: str, package: str) -> None:
    declared = read_declaration(name, package)
    assert {run.command for run in declared.runs()} == {
        command for command, _ in commands_in(reached(name, package))
    }


@every_script
def test_a_command_on_a_key_is_declared_with_this_key(name: str, package: str) -> None:
    declared = read_declaration(name, package)
    on_keys = {(run.command, key) for run in declared.runs() for key in run.keys}
    seen = {one for one in commands_in(body_of(name, package)) if one[1] in single_keys(declared)}
    assert seen <= on_keys


@every_script
def test_reads_and_writes_are_distinguished(name: str, package: str) -> None:
    declared = read_declaration(name, package)
    writing = {"unlink", "xack", "xackdel", "xadd", "xclaim", "xdel", "xnack", "xtrim"}
    for run in declared.runs():
        writes = run.command in writing or run.command in {"hset", "hdel", "hincrby"}
        writes = writes or run.command.startswith("xgroup|")
        assert writes == (run in declared.writes), run.command


@every_script
def test_keys_and_arguments_are_used_by_their_names_alone(name: str, package: str) -> None:
    declared, body = read_declaration(name, package), body_of(name, package)
    assert not re.search(r"\b(KEYS|ARGV)\b", body)
    names = {key.name for key in declared.keys} | {one.name for one in declared.arguments}
    names |= {declared.tail.name} if declared.tail else set()
    unread = {one for one in names if not re.search(rf"\b{one}\b", body)}
    typed = {one for one in unread if "find_refusal()" in body and one in single_keys(declared)}
    assert unread <= typed
    hidden = names & set(functions_of_includes(source_of(name, package), package))
    assert not hidden, "a function that is included has the same name"


@every_script
def test_verdicts_are_those_that_the_adapter_reads(name: str, package: str) -> None:
    script = loaded(package).get(name)
    if script is None:
        assert name == "find_denied"
        return
    text = reached(name, package)
    if "find_missing_right()" in text or "find_refusal()" in text:
        text += "return { 'no-permission', key }"
    listed = {one.decode(): read for one, read in script.answers.by_verdict.items()}
    assert set(_VERDICT.findall(text)) <= set(listed) or not listed, "not in an answer"
    own = [one for one, read in listed.items() if read is not reader_of(Refusal)]
    assert all(f"'{one}'" in text for one in own), "never answered"


@cache
def loaded(package: str) -> dict[str, Script[Any]]:
    """The scripts of a package by name, from all modules of the package."""
    return {
        one.name: one
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
        for one in vars(import_module(module.name)).values()
        if isinstance(one, Script)
    }


@every_script
def test_users_and_features_are_known(name: str, package: str) -> None:
    declared = read_declaration(name, package)
    assert declared.roles
    assert set(declared.roles) <= set(UserRole)
    features = {*declared.features, *(one for run in declared.runs() for one in run.features)}
    assert features <= set(Feature)


@every_script
def test_a_script_that_writes_asks_for_its_rights_before(name: str, package: str) -> None:
    declared, body = read_declaration(name, package), body_of(name, package)
    if package == OPERATOR_SCRIPTS and declared.writes and name != "release_group":
        assert "find_refusal()" in body or "find_missing_right()" in body


@every_script
def test_a_header_says_what_it_costs_and_whether_it_repeats(name: str, package: str) -> None:
    header = source_of(name, package)
    for word in ("-- Costs ", "-- Repeats safely"):
        assert word in header
    assert "-- include:" not in read_declaration(name, package).text
    assert read_declaration(name, package).summary.endswith(".")
