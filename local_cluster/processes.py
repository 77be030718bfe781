"""Child processes, each in a session of its own, which end with their parent unless detached.

A process is its leader: when the leader has ended, the rest of its group is killed with it.
"""

import os
import queue
import random
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

LAUNCHER = Path(__file__).with_name("launcher.py")
# Below the range that the kernel hands to outgoing connections, so that a server which restarts
# finds its port free; and narrow, so that Redis Cluster's port + 10000 hits none of these.
PORTS = range(10_000, 20_000)
SIGKILL_WAIT_S = 10.0


class Process:
    """One process and its group, known by pid and start time, so that a reused pid is never hit."""

    def __init__(self, name: str, pid: int, log: Path, *, started: int | None) -> None:
        self.name = name
        self.pid = pid
        self.log = log
        self.started = started  # clock ticks since boot, from the kernel; None: ended already
        self._exit_code: int | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Process({self.name!r}, pid={self.pid})"

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs, and unless it is a child."""
        self.is_alive()
        return self._exit_code

    def is_alive(self) -> bool:
        """Whether the leader runs (or is paused); an ended leader is reaped."""
        with self._lock:
            state = self._state()
            return not self._bury() if state == "Z" else state not in {None, "X"}

    def stop(self, grace_s: float = 5.0) -> None:
        """End the group by SIGTERM, after `grace_s` by SIGKILL; nothing when it has ended."""
        self.send(signal.SIGTERM)
        self.resume()  # a paused process would never see the SIGTERM
        if not self.ends_within(grace_s):
            self.kill()

    def kill(self) -> None:
        """End the group by SIGKILL and reap it."""
        self.send(signal.SIGKILL)
        self.ends_within(SIGKILL_WAIT_S)

    def pause(self) -> None:
        """Stop the group where it stands, as a hang would."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused group go on."""
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the group; nothing when the process has ended."""
        with self._lock:
            if self._state() is not None:
                _signal_group(self.pid, number)

    def send_to_leader(self, number: signal.Signals) -> None:
        """Send a signal to the leader alone; nothing when the process has ended."""
        with self._lock:
            if self._state() is not None:
                os.kill(self.pid, number)

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for the end; False when it still runs after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def tail(self, lines: int = 20) -> str:
        """The last lines of its log; empty when there is none."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 400 * lines))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _state(self) -> str | None:
        state, started = read_stat(self.pid)
        return state if started is not None and started == self.started else None

    def _bury(self) -> bool:
        """Reap a zombie; False while threads of it are still ending."""
        try:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
            # As long as the zombie is not reaped its number names this group and no other.
            _signal_group(self.pid, signal.SIGKILL)
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            pass  # not a child of this process: its parent, or init, reaps it
        return True


def read_stat(pid: int) -> tuple[str | None, int | None]:
    """State code and start time (clock ticks since boot) of a process; None, None without it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None, None
    # The second field is the program's name in parentheses, and may hold spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


class _Spawner:
    """The one thread that forks.

    The kernel's parent-death signal comes when the *thread* that forked ends. A worker thread that
    started a server and returned would take the server with it; this one ends with the process.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._requests: queue.SimpleQueue[tuple[Callable[[], Process], Future[Process]]]
        self._requests = queue.SimpleQueue()
        threading.Thread(target=self._run, name="spawner", daemon=True).start()

    def run(self, spawn: Callable[[], Process]) -> Process:
        answer: Future[Process] = Future()
        self._requests.put((spawn, answer))
        return answer.result()

    def _run(self) -> None:
        while True:
            spawn, answer = self._requests.get()
            try:
                answer.set_result(spawn())
            except Exception as error:
                answer.set_exception(error)


_spawner: _Spawner | None = None
_spawner_lock = threading.Lock()
_on_detached: Callable[[Process], None] | None = None


def report_detached(to: Callable[[Process], None] | None) -> None:
    """From now on pass every detached process to `to`, before its start returns or is interrupted.

    `to` runs in the thread that starts processes, where no KeyboardInterrupt can come between.
    """
    global _on_detached  # noqa: PLW0603 - one process has one command line and one record
    _on_detached = to


def settle() -> None:
    """Wait until every start that was asked for, also by an interrupted caller, has been made."""
    if _spawner is not None and _spawner.owner == os.getpid():
        _spawner.run(lambda: Process("nothing", 0, Path(os.devnull), started=None))


def start_process(
    name: str,
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    detached: bool = False,
) -> Process:
    """Start a program; its output is appended to `log`, its input is empty.

    It dies (SIGKILL) with this process, however this one ends, and may be started from any thread;
    `detached`, it lives on. `env` replaces the environment.
    Raises FileNotFoundError when there is no such program or directory.
    """
    full_env = dict(os.environ if env is None else env)
    directory = Path.cwd() if cwd is None else cwd.absolute()
    program = _find_program(argv[0], directory, full_env.get("PATH", os.defpath))
    if program is None or not directory.is_dir():
        missing = f"program {argv[0]!r}" if program is None else f"directory {directory}"
        raise FileNotFoundError(f"cannot start {name}: no {missing}")
    log.parent.mkdir(parents=True, exist_ok=True)
    parent = 0 if detached else os.getpid()
    command = [sys.executable, "-I", "-S", str(LAUNCHER), str(parent), str(directory), program]

    def spawn() -> Process:
        process = _spawn(name, [*command, *argv], log, full_env)
        if detached and _on_detached is not None:
            _on_detached(process)
        return process

    return _the_spawner().run(spawn)


def _the_spawner() -> _Spawner:
    global _spawner  # noqa: PLW0603 - threads are not inherited by a fork: one spawner per process
    with _spawner_lock:
        if _spawner is None or _spawner.owner != os.getpid():
            _spawner = _Spawner()
        return _spawner


def _find_program(program: str, directory: Path, path: str) -> str | None:
    return shutil.which(str(directory / program) if "/" in program else program, path=path)


def _spawn(name: str, argv: list[str], log: Path, env: dict[str, str]) -> Process:
    # posix_spawn and not subprocess: a preexec_fn may deadlock in a process with threads.
    pid = os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
    )
    return Process(name, pid, log, started=read_stat(pid)[1])


_handed_ports: set[int] = set()
_ports_lock = threading.Lock()


def free_port() -> int:
    """A loopback port that nothing listens on; never the same twice within this process."""
    with _ports_lock:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            if port not in _handed_ports and _is_free(port):
                _handed_ports.add(port)
                return port
    raise OSError(f"no free loopback port in {PORTS.start}-{PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until(
    condition: Callable[[], T], *, timeout_s: float, what: str, every_s: float = 0.05
) -> T:
    """The first truthy answer of `condition`, asked every `every_s`.

    Raises TimeoutError naming `what`; what `condition` raises passes through.
    """
    until = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() >= until:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)
    return answer
