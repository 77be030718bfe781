"""Exit codes of the commands, and the error that ends a command with one of them."""

from __future__ import annotations

from enum import IntEnum

from pelops.errors import PelopsError


class ExitCode(IntEnum):
    """What the exit code of a command means."""

    SUCCESS = 0
    PROBLEM = 1  # something is wrong: a group is not Ready, a check failed, input is invalid
    USAGE = 2
    NOT_FOUND = 3  # the object does not exist, or the user has no right to it
    TIMEOUT = 124  # --wait or --timeout ended
    INTERRUPTED = 130  # Ctrl-C
    PIPE_CLOSED = 141  # the program that reads the output has ended


class CommandFailed(PelopsError):
    """A command cannot go on. The message is one or two sentences for the user."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.PROBLEM) -> None:
        """`code` becomes the exit code of the program."""
        super().__init__(message)
        self.code = code
