"""Ctrl-C ends a run of the pipeline, whichever of its threads the system hands the signal to."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator

import pytest

from local_cluster.processes import wait_until
from pelops.pipeline.session import LazySession, run_interruptibly


@pytest.fixture
def main_thread_hears_nothing() -> Iterator[None]:
    """Another thread takes the signals of this process."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        ended.set()
        other.join()


@pytest.mark.usefixtures("main_thread_hears_nothing")
def test_a_signal_that_another_thread_takes_ends_the_run() -> None:
    session = LazySession()
    heard: list[bool] = []

    def work() -> int:
        wait_until(main_thread_waits, timeout_s=60, what="the main thread to wait")
        os.kill(os.getpid(), signal.SIGINT)
        heard.append(session.interrupted.wait(timeout=20))
        return 0

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(session, work)
    assert heard == [True]


def main_thread_waits() -> bool:
    """For the answer, and no more for the other thread to start."""
    stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident or 0])
    return any("concurrent" in frame.filename for frame in stack) and stack[-1].name == "wait"
