"""Outlives a killed node for a moment, to kill what the node's pods had started."""

import os
import signal
import time
from pathlib import Path

from local_cluster.node.process import kill_all_with

_ROUNDS = 20


def start_guardian(sandboxes: Path) -> int:
    """Fork the guardian; it acts when the descriptor that this returns closes, by exit or death.

    Call it before threads or an event loop exist. The kernel kills the containers' own processes
    with the node (PDEATHSIG), but not their children.
    """
    kill_all_with(f"TMPDIR={sandboxes}/")  # what a killed node may have left
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(read_end)
        return write_end
    os.close(write_end)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    os.read(read_end, 1)
    _kill_everything(sandboxes)
    os._exit(0)


def _kill_everything(sandboxes: Path) -> None:
    for _ in range(_ROUNDS):
        if not kill_all_with(f"TMPDIR={sandboxes}/"):
            return
        time.sleep(0.05)
