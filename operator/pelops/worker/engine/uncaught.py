"""A wrong setting that nobody catches ends a process with one line and exit code 2.

`from_env` raises an ordinary exception, at the import of the user's module as anywhere else: an
application may catch it. Uncaught it would end with a traceback and exit code 1, as a bug does. So
whoever is about to raise it hangs itself before `sys.excepthook`, which Python asks last, and
leaves every other exception to whom it found there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from pelops.errors import InvalidSpec

WRONG_SETTINGS: Final = 2  # the exit code

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class WrongWorkerSettings(InvalidSpec):
    """A variable or an argument is missing or wrong; the message names it."""


@contextmanager
def ends_with_a_line() -> Iterator[None]:
    """A WrongSettings that leaves this, and then the process, is reported without a traceback."""
    try:
        yield
    except WrongWorkerSettings:
        if not isinstance(sys.excepthook, _Hook):
            sys.excepthook = _Hook(sys.excepthook)
        raise


class _Hook:
    def __init__(self, former: Hook) -> None:
        self._former = former

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        # At a prompt the exit code would end the session.
        if not isinstance(error, WrongWorkerSettings) or hasattr(sys, "ps1"):
            self._former(kind, error, trace)
            return
        print(f"pelops.worker: {error}", file=sys.stderr, flush=True)
        raise SystemExit(WRONG_SETTINGS)
