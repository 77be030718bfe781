"""Tables of commands and flags, and what commands print."""

from __future__ import annotations

import argparse
import io
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import Final

from pelops.cli.command_line import build_parser as build_cli_parser
from pelops.cli.command_parser import CommandParser
from pelops.cli.flags import COMMON
from pelops.cli.main import main as run_cli
from pelops.controller.runtime.settings import build_parser as build_operator_parser
from tools.reference.tables import render_table

# Defaults that depend on where the process runs.
_SAID: Final[Mapping[str, str]] = {
    "--kubeconfig": "`KUBECONFIG`, else the ServiceAccount",
    "--identity": "host name and process ID",
    "--namespace": "all namespaces",
}
_SCRIPTED: Final = ("--help", "--version")


def render_cli() -> Iterator[str]:
    """Yield a section with a table for each command of `pelops`."""
    for at, (words, parser) in enumerate(_list_commands(build_cli_parser(), ("pelops",))):
        if at:
            yield ""
        yield f"### {' '.join(words)}"
        yield ""
        yield f"{_sentence(parser.description)}"
        yield ""
        own = [action for action in _list_flags(parser) if action.dest not in COMMON]
        yield from _render_flags(own)


def render_common_flags() -> Iterator[str]:
    """Yield the table of the flags that every command has that asks the cluster."""
    return _render_flags(a for a in _list_flags(build_cli_parser()) if a.dest in COMMON)


def _render_flags(actions: Iterable[argparse.Action]) -> Iterator[str]:
    return render_table(
        ("flag", "value", "default", "what it does"), (_render_flag(action) for action in actions)
    )


def render_operator() -> Iterator[str]:
    """Yield the table of the settings of the operator."""
    return render_table(
        ("flag", "variable", "value", "default", "what it does"),
        (
            (flag, f"`{_variable(action)}`", *rest)
            for action in _list_flags(build_operator_parser({}))
            for flag, *rest in (_render_flag(action),)
        ),
    )


def render_output(command: str) -> Iterator[str]:
    """Yield a command of `pelops` and what it prints, each as a block."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        run_cli(shlex.split(command)[1:])
    text = printed.getvalue().rstrip()
    yield "```sh"
    yield command
    yield "```"
    yield ""
    yield "```yaml" if text.startswith("env:") else "```text"
    yield text
    yield "```"


def _list_commands(
    parser: CommandParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], CommandParser]]:
    parser.load()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _list_commands(child, (*words, name))
            return
    yield words, parser


def _list_flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if _name(action) not in _SCRIPTED and action.help != argparse.SUPPRESS
    ]


def _name(action: argparse.Action) -> str:
    """The long form of a flag, or the word for an argument by position."""
    long = (name for name in action.option_strings if name.startswith("--"))
    return next(long, str(action.metavar or action.dest.upper()))


def _variable(action: argparse.Action) -> str:
    return f"PELOPS_{action.dest.upper()}"


def _render_flag(action: argparse.Action) -> tuple[str, str, str, str]:
    flags = ", ".join(f"`{name}`" for name in action.option_strings or [_name(action)])
    return flags, _render_value(action), _render_default(action), _sentence(action.help)


def _render_value(action: argparse.Action) -> str:
    if action.choices is not None:
        return ", ".join(f"`{choice}`" for choice in action.choices)
    if action.nargs == 0 or not action.option_strings:
        return ""
    named = action.metavar or action.dest.upper()
    return " ".join(named) + " ..." if isinstance(named, tuple) else str(named)


def _render_default(action: argparse.Action) -> str:
    if action.required:
        return "*required*"
    if _name(action) in _SAID and action.default is not argparse.SUPPRESS:
        return _SAID[_name(action)]
    if action.default is False or (action.nargs == 0 and action.default is argparse.SUPPRESS):
        return "`false`"
    if action.default in (None, "", [], argparse.SUPPRESS):
        return "none"
    if action.metavar == "SECONDS":
        return f"{action.default} s"
    return f"`{action.default}`"


def _sentence(text: str | None) -> str:
    if not text:
        return ""
    return text[0].upper() + text[1:].removesuffix(".") + "."
