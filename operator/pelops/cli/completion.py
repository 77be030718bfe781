"""Candidates for a word of a command line, for kubectl and for shells."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from pelops.cli.command_line import COMMANDS, build_parser
from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed
from pelops.cli.kubectl import GROUPS, Kubectl

NO_FILES: Final = ":4"  # the directive of Cobra: complete no names of files
_FILES: Final = ":0"
_TIMEOUT_S: Final = 3.0  # the longest acceptable wait for a completion

Candidate = tuple[str, str]


def main() -> None:
    """Print candidates: the program `kubectl_complete-pelops`, which kubectl calls."""
    sys.exit(print_candidates(sys.argv[1:]))


def print_candidates(words: Sequence[str]) -> int:
    """Print a line for each candidate for the last of the words, and a directive. Returns 0."""
    *before, last = words or [""]
    line = _CommandLine(before)
    for word, description in line.complete(last):
        if word.startswith(last):
            print(f"{word}\t{description}" if description else word)
    print(_FILES if line.wants_file else NO_FILES)
    return 0


class _CommandLine:
    """The words before the one that is completed."""

    def __init__(self, words: Sequence[str]) -> None:
        self._parser = build_parser()
        self._flags: dict[str, str] = {}
        self._flag: argparse.Action | None = None  # it waits for its value
        self._names = 0  # positional arguments so far
        self._is_command = False
        for word in words:
            self._read(word)

    @property
    def wants_file(self) -> bool:
        """Whether the word is the name of a file."""
        flag = self._flag
        return flag is not None and (flag.dest in {"file", "kubeconfig"})

    def complete(self, last: str) -> Iterator[Candidate]:
        """Yield candidates for the last word."""
        if self._flag is not None:
            yield from self._list_values(self._flag)
        elif last.startswith("-"):
            yield from self._list_flags()
        elif not self._is_command:
            yield from ((command.name, command.help) for command in COMMANDS)
        else:
            yield from self._list_arguments()

    def _read(self, word: str) -> None:
        if self._flag is not None:
            self._flags[self._flag.dest], self._flag = word, None
            return
        if word.startswith("-"):
            name, given, value = word.partition("=")
            action = self._parser._option_string_actions.get(name)
            if action is not None and action.nargs != 0:
                if given:
                    self._flags[action.dest] = value
                else:
                    self._flag = action
            return
        commands = self._parser.commands
        if word in commands:
            self._parser = commands[word]
            self._parser.load()
            self._is_command = True
        else:
            self._names += 1

    def _list_values(self, flag: argparse.Action) -> Iterator[Candidate]:
        if flag.choices is not None:
            yield from ((str(choice), "") for choice in flag.choices)
        elif flag.dest == "namespace":
            yield from self._list_names("namespaces")
        elif flag.dest == "context":
            yield from self._print_names("config", "get-contexts", "-o", "name")

    def _list_flags(self) -> Iterator[Candidate]:
        for action in self._parser._actions:
            long = [name for name in action.option_strings if name.startswith("--")]
            if long and action.help != argparse.SUPPRESS:
                yield long[0], action.help or ""

    def _list_arguments(self) -> Iterator[Candidate]:
        commands = self._parser.commands
        for name, parser in commands.items():
            yield name, parser.description or ""
        wanted = [
            action
            for action in self._parser._get_positional_actions()
            if not isinstance(action, argparse._SubParsersAction)
        ]
        if self._names < len(wanted):
            action = wanted[self._names]
            if action.choices is not None:
                yield from ((str(choice), "") for choice in action.choices)
            elif action.dest == "name":
                yield from self._list_names(GROUPS)

    def _list_names(self, kind: str) -> Iterator[Candidate]:
        for name, description in self._print_names("get", kind, "-o", "name"):
            yield name.rpartition("/")[2], description

    def _print_names(self, *words: str) -> Iterator[Candidate]:
        arguments = argparse.Namespace(**self._flags)
        where = [f"--namespace={arguments.namespace}"] if "namespace" in arguments else []
        try:
            kubectl = Kubectl.of(arguments, Console())
            printed = kubectl.run(*words, *where, timeout_s=_TIMEOUT_S)
        except CommandFailed:
            return  # a completion has no place for an error
        yield from ((line, "") for line in printed.splitlines())
