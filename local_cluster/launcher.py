"""Become another program that dies with its parent; run as a script, by processes.py alone.

Usage: launcher.py PARENT_PID CWD PROGRAM ARGV0 [ARGV...]; PARENT_PID 0 outlives its parent.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process, whatever it becomes, when its parent ends."""
    import ctypes  # late: half of this script's time, and detached processes need none of it

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(f"the parent {parent} ended before {sys.argv[3]} could start")


def main() -> None:
    """Replace this process; returns never."""
    parent, cwd, program, *argv = sys.argv[1:]
    # An ignored signal stays ignored in the program that follows: Python ignores the first two, and
    # a shell the third for what it starts in the background.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(cwd)
    if parent != "0":
        die_with(int(parent))
    os.execv(program, argv)


if __name__ == "__main__":
    main()
