"""A proxy between a run and its object store, which can answer in the place of the store.

python -m tests.pipeline.s3_proxy ADDRESS STORE: a proxy of HTTP, in a process of its own, since
deltalake may keep Python waiting while it asks its store. `PUT /-/fault` begins a fault, a DELETE
of it ends the fault, and a GET returns how many requests have met it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from local_cluster.processes import Process, free_port, start_process, wait_until

REPOSITORY: Final = Path(__file__).parents[2]
_CONTROL: Final = "/-/fault"
_BUSY: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
# Of one connection alone: https://www.rfc-editor.org/rfc/rfc9110#field.connection
_HOP_BY_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "expect"}


class Trouble(StrEnum):
    """What becomes of a request."""

    BUSY = "busy"  # 503, and the store hears nothing of it
    MUTE = "mute"  # it is taken, and never answered
    LOST_ANSWER = "lost answer"  # the store does it, and the answer is 503


@dataclass(slots=True, kw_only=True)
class Fault:
    """Trouble from the first request on that has this method, and this in its path."""

    trouble: Trouble
    method: str
    part: str
    times: int | None = None  # of how many such requests; None: of all requests from then on
    met: int = 0  # how many have had it

    def meets(self, method: str, path: str) -> bool:
        """Whether this request has it."""
        is_such = method == self.method and self.part in path
        if self.times is None:
            return is_such or self.met > 0
        return is_such and self.met < self.times


class S3Proxy:
    """What clients connect to in place of the store at `behind`."""

    def __init__(self, behind: str, log: Path) -> None:
        self.behind = behind
        self.address = f"127.0.0.1:{free_port()}"
        self._log = log
        self._process: Process | None = None

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "tests.pipeline.s3_proxy", self.address, self.behind]
        env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        self._process = start_process("s3-proxy", words, log=self._log, cwd=REPOSITORY, env=env)
        wait_until(self._is_there, timeout_s=60, what="the proxy of S3")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()

    @contextmanager
    def troubled(
        self, trouble: Trouble, method: str, part: str, *, times: int | None = None
    ) -> Iterator[None]:
        """For the block: a fault, which some request must meet."""
        self._control("PUT", asdict(Fault(trouble=trouble, method=method, part=part, times=times)))
        try:
            yield
            assert self._control("GET")["met"], f"nothing has asked {method} {part}"
        finally:
            self._control("DELETE")

    def _control(self, method: str, fault: dict[str, Any] | None = None) -> dict[str, Any]:
        asked = urllib.request.Request(
            f"http://{self.address}{_CONTROL}", json.dumps(fault).encode(), method=method
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def _is_there(self) -> bool:
        try:
            return self._control("GET") == {}
        except OSError:
            return False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], behind: str) -> None:
        super().__init__(address, _Handler)
        self.behind = behind
        self.fault: Fault | None = None
        self.healed = threading.Event()
        self._lock = threading.Lock()

    def handle_error(self, *_: Any) -> None:
        """Clients that hang up are part of the tests."""

    def control(self, method: str, body: bytes) -> dict[str, Any]:
        """What the tests ask for."""
        found = self.fault
        if method == "PUT":
            self.healed = threading.Event()
            self.fault = Fault(**json.loads(body))
        elif method == "DELETE":
            self.fault = None
            self.healed.set()
        return {} if found is None else asdict(found)

    def trouble_of(self, method: str, path: str) -> Trouble | None:
        """What becomes of a request; None: the store answers it."""
        with self._lock:
            fault = self.fault
            if fault is None or not fault.meets(method, path):
                return None
            fault.met += 1
            return Trouble(fault.trouble)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(1 << 16)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            body = self._body()
            if self.path == _CONTROL:
                said = json.dumps(self.server.control(self.command, body))
                self._answer(200, [], said.encode())
            else:
                self._pass_on(body)

    def log_message(self, *_: Any) -> None:
        pass

    def _pass_on(self, body: bytes) -> None:
        healed = self.server.healed
        trouble = self.server.trouble_of(self.command, self.path)
        if trouble is Trouble.MUTE:
            healed.wait()
            self.close_connection = True
        elif trouble is Trouble.BUSY:
            self._answer(503, [("Content-Type", "application/xml")], _BUSY)
        else:
            found = self._ask(body)
            lost = (503, [("Content-Type", "application/xml")], _BUSY)
            self._answer(*(found if trouble is None else lost))

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        is_head = self.command == "HEAD"
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP and (is_head or name.lower() != "content-length"):
                self.send_header(name, value)
        if not is_head and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(self.server.behind, timeout=60)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


if __name__ == "__main__":
    host, _, port = sys.argv[1].partition(":")
    _Server((host, int(port)), sys.argv[2]).serve_forever()
