"""What commands print: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from pelops.cli.display.tables import (
    Cell,
    Column,
    Style,
    Styled,
    Text,
    display_width,
    make_printable,
    render_table,
    wrap_line,
)
from pelops.cli.errors import CommandFailed, ExitCode

COLOR_MODES: Final = ("auto", "always", "never")
_RESET: Final = "\x1b[0m"
_REDRAW: Final = "\x1b[H"  # cursor to the top; each line clears its rest, so nothing flickers
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_NARROWEST: Final = 20  # columns for text that is wrapped


class Console:
    """The output of one command.

    Every text is made printable: bytes of another user's message never reach a terminal as
    control characters. The streams are those of `sys` at the time of the call.
    """

    def __init__(
        self, program: str = "pelops", *, color: str = "auto", output: str = "text"
    ) -> None:
        """`program` is how the user calls it, such as `kubectl pelops`. `output` is the value of
        `-o`: text, wide, json, yaml or name.
        """
        self.program = program
        self.output = output
        self._color = color

    @classmethod
    def of(cls, arguments: Namespace, program: str) -> Console:
        """Return the console that the flags `--color` and `-o` ask for."""
        color = getattr(arguments, "color", None) or "auto"
        return cls(program, color=color, output=getattr(arguments, "output", None) or "text")

    @property
    def is_wide(self) -> bool:
        """Whether `-o wide` was given."""
        return self.output == "wide"

    @property
    def is_text(self) -> bool:
        """Whether people read the output: `-o text` or `-o wide`."""
        return self.output in {"text", "wide"}

    @property
    def is_interactive(self) -> bool:
        """Whether standard output is a terminal that understands control sequences."""
        return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def write(self, text: str) -> None:
        """Print data as it is, on standard output: JSON, YAML, a line for redis-cli."""
        print(text, file=sys.stdout)

    @property
    def width(self) -> int | None:
        """Columns of the terminal, None if standard output is none: then nothing is wrapped."""
        try:
            return (
                os.get_terminal_size(sys.stdout.fileno()).columns if self.is_interactive else None
            )
        except OSError:
            return None

    def line(self, *parts: Text, indent: int | None = None) -> None:
        """Print one line on standard output.

        With `indent`, a line that is longer than the terminal is wrapped between words, and
        continues below this column.
        """
        width, lines = self.width, [parts]
        if indent is not None and width is not None and indent + _NARROWEST <= width:
            lines = list(wrap_line(parts, width, indent))
        for one in lines:
            print(self.render(one, sys.stdout), file=sys.stdout)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table on standard output, with all columns for `-o wide`.

        The last column is wrapped.
        """
        indent: int | None = None
        for line in render_table(columns, rows, wide=self.is_wide):
            if indent is None:  # the header, whose last word begins where the last column does
                indent = display_width("".join(map(str, line)).rpartition("  ")[0]) + 2
            self.line(*line, indent=indent)

    def document(self, value: Mapping[str, Any]) -> None:
        """Print a document in the format that `-o json` or `-o yaml` asks for."""
        if self.output == "yaml":
            from pelops.cli.display.yaml_text import render_yaml

            self.write(render_yaml(value).removesuffix("\n"))
        else:
            self.write(json.dumps(value, indent=2))

    def frame(self, lines: Iterable[Sequence[Text]]) -> None:
        """Replace what the terminal shows by these lines."""
        drawn = "".join(f"{self.render(one, sys.stdout)}{_CLEAR_LINE}\n" for one in lines)
        print(f"{_REDRAW}{drawn}{_CLEAR_BELOW}", end="", file=sys.stdout, flush=True)

    def note(self, *parts: Text) -> None:
        """Print one line on standard error: progress, facts, warnings."""
        print(self.render(parts, sys.stderr), file=sys.stderr, flush=True)

    def error(self, message: str) -> None:
        """Print why the command failed, on standard error."""
        self.note(f"{self.program.split()[-1]}: {message}")

    def next(self, *words: str) -> None:
        """Print the command of `pelops` that helps next."""
        self.line(Styled("next  ", Style.FAINT), self.command(*words))

    def command(self, *words: str) -> str:
        """Return a command of this program as the user would type it."""
        import shlex

        return f"{self.program} {shlex.join(words)}"

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Return whether the user agrees: `yes` is the value of the flag `--yes`.

        Raises:
            CommandFailed: the user cannot be asked, because there is no terminal.
        """
        if yes:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandFailed(
                f"{question} There is no terminal to ask on: add --yes, or --dry-run to see "
                "what would happen",
                code=ExitCode.USAGE,
            )
        print(f"{make_printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def render(self, parts: Sequence[Text], stream: TextIO) -> str:
        """Return the parts as one text for a stream, with colors if it has them."""
        colored = self._has_colors(stream)
        return "".join(_render_part(part, colored=colored) for part in parts)

    def _has_colors(self, stream: TextIO) -> bool:
        if self._color != "auto":
            return self._color == "always"
        if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
            return False
        return stream.isatty()


def _render_part(part: Text, *, colored: bool) -> str:
    if isinstance(part, str):
        return make_printable(part)
    text = make_printable(part.text)
    return f"\x1b[{part.style.value}m{text}{_RESET}" if colored and text else text
