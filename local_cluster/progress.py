"""What a person sees while something takes long: lines on standard error."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TTY_EVERY_S = 1.0  # a terminal's line is rewritten
LINE_EVERY_S = 5.0  # elsewhere a line is added


_steps: list["Step"] = []  # under way, the innermost last; that one alone keeps showing


def report(message: str) -> None:
    """Print one line."""
    clear = "\r\033[K" if _steps and sys.stderr.isatty() else ""
    print(f"{clear}{message}", file=sys.stderr, flush=True)


class Step:
    """Something under way; `detail`, when set, says how far it is."""

    def __init__(self, message: str) -> None:
        self.detail = ""
        self.message = message
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._tty = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._keep_showing, name="progress", daemon=True)
        if self._tty and _steps:
            report(_steps[-1].message)
        _steps.append(self)
        self._show("...")
        self._thread.start()

    def end(self, outcome: str) -> None:
        """Stop showing it, and say how it ended and after how long."""
        self._ended.set()
        self._thread.join()
        _steps.remove(self)
        self._show(f"{outcome}{self._elapsed():.1f} s{self._shown_detail()}", final=True)

    def _keep_showing(self) -> None:
        while not self._ended.wait(TTY_EVERY_S if self._tty else LINE_EVERY_S):
            if _steps[-1:] == [self]:
                self._show(f"... {self._elapsed():.0f} s{self._shown_detail()}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _shown_detail(self) -> str:
        return f", {self.detail}" if self.detail else ""

    def _show(self, text: str, *, final: bool = False) -> None:
        if self._tty:
            # Back to the start of the line and clear it: the line is rewritten until it is final.
            print(f"\r\033[K{self.message} {text}", end="\n" if final else "", file=sys.stderr)
            sys.stderr.flush()
        else:
            report(f"{self.message} {text}")


@contextmanager
def step(message: str) -> Iterator[Step]:
    """Show `message` with the seconds that pass while the block runs, and how long it took."""
    shown = Step(message)
    try:
        yield shown
    except BaseException:
        shown.end("failed after ")
        raise
    shown.end("took ")
