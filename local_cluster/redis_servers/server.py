"""One server: a process on a port, with a directory and a configuration file that outlive it."""

import os
import shutil
import subprocess
from pathlib import Path

from local_cluster.processes import Process, free_port, start_process, wait_until
from local_cluster.redis_servers.options import Ground

START_TIMEOUT_S = 30.0
CLI_TIMEOUT_S = 120.0


class ServerFailed(RuntimeError):
    """A server did not start; the text ends with its log."""


class CommandFailed(RuntimeError):
    """A server could not be reached, or answered a command with an error."""


class RedisServer:
    """A server that may be ended and started again; it comes back on its port with its data.

    What its data is depends on the options: without an append-only file it comes back empty.
    """

    def __init__(
        self, name: str, ground: Ground, lines: list[str], *, sentinel: bool = False
    ) -> None:
        self.name = name
        self.port = free_port()
        self.directory = ground.state / name
        self.process: Process | None = None
        self._paused = False
        self._ground = ground
        self._sentinel = sentinel
        shutil.rmtree(self.directory, ignore_errors=True)  # servers begin empty
        self.directory.mkdir(parents=True)
        self._write_configuration(lines)

    def __repr__(self) -> str:
        return f"RedisServer({self.name!r}, port={self.port})"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def is_serving(self) -> bool:
        """Whether it runs and was not paused by `pause`, so that asking it does not hang."""
        return self.is_alive() and not self._paused

    def start(self) -> None:
        """Return when it answers and has loaded its data; nothing when it runs already.

        Raises ServerFailed, and leaves no process behind.
        """
        if self.is_alive():
            return
        self._paused = False
        binary, configuration = str(self._ground.binaries.server), self._configuration
        mode = ["--sentinel"] if self._sentinel else []
        self.process = start_process(
            self.name,
            [binary, str(configuration), *mode],
            log=self.log,
            cwd=self.directory,
            detached=self._ground.detached,
        )
        try:
            self._await_readiness(self.process)
        except BaseException:
            self.process.kill()
            raise

    def stop(self) -> None:
        """End it in good order (SIGTERM)."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """End it in good order and start it again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let it hang: connections stay open and nothing is answered."""
        if self.process is not None:
            self._paused = True
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume()
            self._paused = False

    def cli(self, *args: str) -> str:
        """The answer of `redis-cli`, without its last newline.

        Bytes that are no UTF-8 are kept as surrogate escapes, and may be given back as arguments.
        Raises CommandFailed when the server cannot be reached or answers with an error.
        """
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-e"]
        return self.run_cli(*where, *args)

    def run_cli(self, *args: str) -> str:
        """As `cli`, but all arguments are for redis-cli itself, the address included."""
        environment = dict(os.environ)
        environment.pop("REDISCLI_AUTH", None)
        if self._ground.options.password is not None and not self._sentinel:
            environment["REDISCLI_AUTH"] = self._ground.options.password
        command = [str(self._ground.binaries.cli), *self._ground.cli_arguments(), *args]
        try:
            answer = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=CLI_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as hung:
            raise CommandFailed(f"{self.name}: no answer within {CLI_TIMEOUT_S:g} s") from hung
        if answer.returncode != 0:
            raise CommandFailed(f"{self.name}: {(answer.stderr or answer.stdout).strip()}")
        return answer.stdout.removesuffix("\n")

    def info(self, section: str = "default") -> dict[str, str]:
        """INFO as a mapping."""
        pairs = (line.partition(":") for line in self.cli("INFO", section).splitlines())
        return {name: value for name, colon, value in pairs if colon}

    @property
    def _configuration(self) -> Path:
        return self.directory / ("sentinel.conf" if self._sentinel else "redis.conf")

    def _write_configuration(self, lines: list[str]) -> None:
        # A file and not arguments: Sentinel and CONFIG REWRITE note the roles of a failover in it,
        # and a password does not show in the list of processes.
        own = [*self._ground.listening_lines(self.port), f'dir "{self.directory}"']
        self._configuration.touch(mode=0o600)
        self._configuration.write_text("\n".join([*own, *lines, ""]))

    def _await_readiness(self, process: Process) -> None:
        def answers() -> bool:
            if not process.is_alive():
                raise ServerFailed(f"{self.name} ended at its start:\n{process.tail()}")
            try:
                info = self.info()
            except CommandFailed:
                return False
            # The pid: on a port that was taken meanwhile, it is another server that answers.
            is_ours = info.get("process_id") == str(process.pid)
            return is_ours and info.get("loading", "0") == "0"

        try:
            wait_until(
                answers, timeout_s=START_TIMEOUT_S, what=f"{self.name} answers", every_s=0.01
            )
        except TimeoutError as slow:
            raise ServerFailed(f"{slow}\n{process.tail()}") from slow


def data_lines(ground: Ground) -> list[str]:
    """The configuration lines of every server that holds data."""
    options = ground.options
    # Without a delay: a master waits 5 s for more replicas before it lets the first one sync.
    lines = ['save ""', "enable-debug-command local", "repl-diskless-sync-delay 0"]
    lines += ["appendonly yes" if options.append_only else "appendonly no"]
    if options.append_only:
        lines += [f"appendfsync {options.append_only}"]
    if options.password is not None:
        lines += [
            f"requirepass {quoted(options.password)}",
            f"masterauth {quoted(options.password)}",
        ]
    # Redis takes an empty value only when it is quoted; "save" and others take several words.
    return lines + [f"{name} {value or quoted('')}" for name, value in options.config.items()]


def quoted(value: str) -> str:
    """A word for redis.conf, whatever it holds."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
