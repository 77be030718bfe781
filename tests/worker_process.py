"""Workers as processes, with a real server: what they say, what they hold, how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import redis

from pelops.domain.naming import derive_keys

ROOT: Final = Path(__file__).parents[1]
GROUP: Final = "order-processing"
# A handler prints what it does through `say`; `settings` changes what no variable does.
BEGINNING: Final = """
import asyncio, dataclasses, os, signal, sys, threading, time
from pelops.worker import Reject, Retry, Worker
worker = Worker.from_env()
def settings(**changes):
    worker.settings = dataclasses.replace(worker.settings, **changes)
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""
QUICK: Final = """
@worker.handler
async def handle(entry):
    say("handled", entry.id)
worker.run()
"""


class WorkerProcesses:
    """Processes that work on one stream of one server."""

    def __init__(
        self, url: str, stream: str, directory: Path, *, processing_timeout_ms: int = 900
    ) -> None:
        self.server: Any = redis.Redis.from_url(url, decode_responses=True)
        self.keys = derive_keys(stream, GROUP)
        self.stream = stream
        self._url = url
        self._directory = directory
        self._processing_timeout_ms = processing_timeout_ms
        self._stack = ExitStack()
        self.server.xgroup_create(stream, GROUP, "0", mkstream=True)

    def start(self, name: str, script: str, **variables: str) -> subprocess.Popen[bytes]:
        """A worker of this name, which is its consumer's as well; an empty variable is not set."""
        environment = {key: value for key, value in os.environ.items() if "PELOPS" not in key}
        environment |= {
            "PYTHONPATH": f"{ROOT / 'operator'}",
            "PELOPS_REDIS_URL": self._url,
            "PELOPS_STREAM": self.stream,
            "PELOPS_GROUP": GROUP,
            "PELOPS_CONSUMER": name,
            "PELOPS_IDLE_LIMIT_MS": f"{self._processing_timeout_ms}",
            **variables,
        }
        output = self._stack.enter_context(self._path(name).open("ab"))
        process = subprocess.Popen(
            [sys.executable, "-c", BEGINNING + script],
            env={key: value for key, value in environment.items() if value},
            stdout=output,
            stderr=output,
        )
        self._stack.callback(_end, process)
        return process

    def said(self, name: str) -> str:
        """All that a worker printed or logged, in whole lines: the last may be half written."""
        path = self._path(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        return text[: text.rfind("\n") + 1]

    def ids(self, name: str, word: str = "handled") -> list[str]:
        """The IDs for which a worker's handler printed this word, in that order."""
        lines = (line.split() for line in self.said(name).splitlines())
        return [words[1] for words in lines if words[:1] == [word]]

    def add(self, count: int = 1, **fields: str | bytes) -> list[str]:
        """New entries; their IDs."""
        return [self.server.xadd(self.stream, fields or {"n": str(n)}) for n in range(count)]

    def pending(self) -> dict[str, str]:
        """IDs and their owners."""
        found = self.server.xpending_range(self.stream, GROUP, "-", "+", 10_000)
        return {one["message_id"]: one["consumer"] for one in found}

    def deliveries(self) -> dict[str, int]:
        """IDs of what is pending, and how often each was delivered."""
        found = self.server.xpending_range(self.stream, GROUP, "-", "+", 10_000)
        return {one["message_id"]: one["times_delivered"] for one in found}

    def consumers(self) -> list[str]:
        """Those that the group knows."""
        return [one["name"] for one in self.server.xinfo_consumers(self.stream, GROUP)]

    def letters(self) -> list[dict[str, str]]:
        """The dead letters, the oldest first."""
        return [letter for _, letter in self.server.xrange(self.keys.dead_letter)]

    def close(self) -> None:
        """End every process."""
        self._stack.close()
        self.server.close()

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for a condition; fails when it does not come."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.02)


def memory_mb(process: subprocess.Popen[bytes]) -> Mapping[str, float]:
    """What a process occupies, `now` and at its `peak`, in MB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if line.startswith(("VmHWM", "VmRSS")))
    of_name = {name: int(value.split()[0]) / 1024 for name, value in found.items()}
    return {"now": of_name["VmRSS"], "peak": of_name["VmHWM"]}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()
