"""A container's process: its own session, killed with this node, its leftovers killed with it."""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from local_cluster.node.container_state import exit_code_of

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that a start needs."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    temporary: Path  # TMPDIR: what inherited it belongs to this container


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ContainerProcess:
    """A started process; `exited` is its exit code once it ended.

    `exited` and `ended_at` come after the end of the process and of everything that it left behind.
    """

    def __init__(
        self,
        launch: Launch,
        output: BinaryIO | int,
        *,
        owns_leftovers: bool = True,
        stdin: int = subprocess.DEVNULL,
        errors: int = subprocess.STDOUT,
    ) -> None:
        # A probe shares its TMPDIR with its container, which must survive the probe.
        self._temporary = launch.temporary if owns_leftovers else None
        # preexec_fn is safe here: it makes one system call, and this program forks from its main
        # thread alone (which PDEATHSIG needs: it fires when the starting *thread* ends).
        self._process = subprocess.Popen(
            list(launch.command),
            env=dict(launch.environment),
            cwd=launch.directory,
            stdin=stdin,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
        self.pid = self._process.pid
        self.started_at = datetime.now(UTC)
        self.ended_at: datetime | None = None
        self.container_id = f"process://{self.pid}-{_start_ticks(self.pid)}"
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()
        self._pidfd = os.pidfd_open(self.pid)
        loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.ended_at = datetime.now(UTC)
        # Before the wait: until then the process is a zombie whose pid (and session) is not reused.
        kill_session(self.pid)
        if self._temporary is not None:
            kill_all_with(f"TMPDIR={self._temporary}")
        self.exited.set_result(exit_code_of(self._process.wait()))

    def signal(self, number: signal.Signals) -> None:
        """Signal the process group; nothing when it has ended."""
        if not self.exited.done():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)


def _start_ticks(pid: int) -> str:
    try:
        return _stat_fields(pid)[19]
    except (OSError, IndexError):
        return "0"


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name, which may hold spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def kill_session(session: int) -> None:
    """Kill every other process of the session."""
    for pid in _processes():
        with suppress(OSError, IndexError, ValueError):
            if pid != session and int(_stat_fields(pid)[3]) == session:
                os.kill(pid, signal.SIGKILL)


def kill_all_with(variable: str) -> int:
    """Kill every process whose environment holds `variable`; return how many there were.

    One that ends in "/" matches all that begin so. This finds those that left their session, too.
    """
    wanted = variable.encode() if variable.endswith("/") else variable.encode() + b"\0"
    found = 0
    for pid in _processes():
        with suppress(OSError):
            environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
            if b"\0" + wanted in environment and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                found += 1
    return found
