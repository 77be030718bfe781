"""Signals that end a command: raised as KeyboardInterrupt, and kept out while it cleans up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_interrupts() -> None:
    """Have each of SIGNALS raise KeyboardInterrupt; one that is ignored, as by nohup, stays so."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def raise_first_interrupt() -> None:
    """As `raise_interrupts`, but once: the clean-up that follows the first is left alone."""
    signals = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]

    def interrupt(number: int, frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    for one in signals:
        signal.signal(one, interrupt)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGNALS within the block: a second Ctrl-C must not cut short what the first began."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread, and only there may they be set
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, signal.SIG_DFL if action is None else action)
