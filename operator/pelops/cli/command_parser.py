"""The parser of command lines: flags and arguments in any order, help as kubectl prints it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from pelops.cli.errors import ExitCode

Load = Callable[["CommandParser"], None]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help in which a flag has its value once: `--output, -o {text,json}`."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class CommandParser(argparse.ArgumentParser):
    """A parser whose arguments are added when a command line reaches it.

    Flags and arguments by position may come in any order. Without any word, a parser of commands
    prints its help, and the exit code is 0.
    """

    def __init__(self, *args: Any, load: Load | None = None, **options: Any) -> None:
        """`load` adds the arguments; None if the creator does."""
        super().__init__(
            *args, **{"allow_abbrev": False, "formatter_class": _HelpFormatter, **options}
        )
        self._positionals.title, self._optionals.title = "arguments", "flags"
        self.shortened: argparse._ArgumentGroup | None = None  # flags that help names only
        self._load = load
        self._is_intermixing = False

    def load(self) -> None:
        """Add the arguments of the command. A second call does nothing."""
        load, self._load = self._load, None
        if load is not None:
            load(self)

    @property
    def commands(self) -> dict[str, CommandParser]:
        """The parsers of the commands within this one, by their names."""
        found: dict[str, CommandParser] = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= action.choices
        return found

    def walk(self) -> Iterator[CommandParser]:
        """Yield this parser and those of the commands within it."""
        yield self
        for parser in self.commands.values():
            yield from parser.walk()

    def format_usage(self) -> str:
        """Return the usage in one line: the arguments, and the flags that are required."""
        if self.usage is not None:
            return f"usage: {self.usage.strip()}\n"
        self.load()
        words = [self.prog]
        words += ["COMMAND"] if self.commands else map(_show_position, self._list_positions())
        words += [_show_flag(one) for one in self._actions if one.required and one.option_strings]
        for group in self._mutually_exclusive_groups:
            if group.required:
                words.append(f"({' | '.join(map(_show_flag, group._group_actions))})")
        return f"usage: {' '.join(words)} [flags]\n"

    def format_help(self) -> str:
        """Return the help, which begins with what the command does."""
        self.load()
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_text(self.format_usage())
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            if group is self.shortened:
                flags = ", ".join(one.option_strings[-1] for one in group._group_actions)
                program = _PLUGIN if self.prog.startswith(_PLUGIN) else "pelops"
                formatter.add_text(f"{flags}: see `{program} --help`")
            else:
                formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def print_usage(self, file: Any = None) -> None:
        """Print the usage; `error` does before its message."""
        self._print_message(self.format_usage(), file)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See ArgumentParser. A command that gets an unknown word ends with its own usage."""
        self.load()
        if self.commands:
            if not args:
                self.print_help()
                self.exit(ExitCode.SUCCESS)
            return super().parse_known_args(args, namespace)
        if self._is_intermixing:  # parse_known_intermixed_args calls this method for each pass
            return super().parse_known_args(args, namespace)
        self._is_intermixing = True
        try:
            parsed_args, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed_args, []

    def error(self, message: str) -> NoReturn:
        """End with the usage, the message and the exit code for a wrong command line."""
        self.print_usage(sys.stderr)
        end = "" if message.endswith("?") else "."
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}{end} See `{self.prog} --help`\n")

    def _list_positions(self) -> list[argparse.Action]:
        return [one for one in self._actions if not one.option_strings]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            import difflib

            similar = difflib.get_close_matches(str(value), action.choices, n=1)
            hint = f", did you mean {similar[0]}?" if similar else ""
            self.error(f"there is no command {value}{hint}")
        super()._check_value(action, value)


def _show_flag(action: argparse.Action) -> str:
    return f"{action.option_strings[0]} {action.metavar or action.dest.upper()}"


def _show_position(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest.upper())
    return f"[{name}]" if action.nargs == "?" else name


def add_examples(parser: argparse.ArgumentParser, *lines: str) -> None:
    """Show examples in `--help`: commands, and comments that say what each is for.

    `pelops` in them is shown as the user calls the program.
    """
    if parser.prog.startswith(_PLUGIN):
        lines = tuple(line.replace("pelops ", f"{_PLUGIN} ", 1) for line in lines)
    parser.epilog = "\n".join(["examples:", *(f"  {line}".rstrip() for line in lines)])


_PLUGIN: Final = "kubectl pelops"


def find_examples(parser: argparse.ArgumentParser) -> Sequence[str]:
    """Return the commands among the examples of a parser."""
    lines = (line.strip() for line in (parser.epilog or "").splitlines()[1:])
    return [line for line in lines if line and not line.startswith("#")]
