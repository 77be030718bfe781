"""A Spark driver of its own that audits, for tests that kill it or leave it no room.

python -m tests.pipeline.auditing_driver BYTES ARGUMENTS...: no file grows beyond so many bytes (0:
any size); the arguments are those of `python -m pelops.pipeline`, and so is the exit code. With
AUDITING_DIES_AFTER it is killed, with all that it has started, right after that step of its run.
With AUDITING_IS_LARGE the rows of a window of any size pass through Spark's tasks. With
AUDITING_LOSES_EXECUTOR one of its executors is killed once every entry has its status. With
AUDITING_LOSES_JAVA Java alone is killed right after that step, and with AUDITING_INTERRUPTED_AFTER
it gets SIGINT there.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import ExitStack

from pelops.pipeline.audit import status_rows
from pelops.pipeline.main import main
from tests.pipeline.executors import list_drivers, list_executors
from tests.pipeline.hardships import amid, large_windows
from tests.pipeline.steps import Step, then


def limit_files(most: int) -> None:
    """As on a file system with no room for more."""
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def die() -> None:
    """At once, with Java and the Python workers."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def interrupt() -> None:
    """As a terminal does: all of its processes hear it."""
    os.killpg(os.getpgid(0), signal.SIGINT)


def lose_java() -> None:
    """As the kernel ends it where memory is short."""
    (java,) = list_drivers(os.getsid(0))
    os.kill(java, signal.SIGKILL)


def lose_executor() -> None:
    """One of those that hold what was found."""
    os.kill(min(list_executors(os.getsid(0))), signal.SIGKILL)


if __name__ == "__main__":
    limit_files(int(sys.argv[1]))
    with ExitStack() as changed:
        if os.environ.get("AUDITING_IS_LARGE"):
            changed.enter_context(large_windows())
        if os.environ.get("AUDITING_DIES_AFTER"):
            changed.enter_context(then(Step(os.environ["AUDITING_DIES_AFTER"]), die))
        if os.environ.get("AUDITING_INTERRUPTED_AFTER"):
            changed.enter_context(then(Step(os.environ["AUDITING_INTERRUPTED_AFTER"]), interrupt))
        if os.environ.get("AUDITING_LOSES_JAVA"):
            changed.enter_context(then(Step(os.environ["AUDITING_LOSES_JAVA"]), lose_java))
        if os.environ.get("AUDITING_LOSES_EXECUTOR"):
            changed.enter_context(amid(status_rows, "status_rows", lose_executor))
        code = main(sys.argv[2:])
    sys.exit(code)
