"""What a worker answers to probes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pelops.worker import Entry, Worker, WorkerSettings, WrongWorkerSettings
from pelops.worker.engine.worker_process import HealthServer
from tests.unit.scripted_adapter import ScriptedAdapter, raw


@dataclass
class Patient:
    """Is as well as a test says."""

    is_live: bool = True
    is_ready: bool = True

    def describe(self) -> str:
        return "handlers running: 3; entries in flight: 5"


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.fixture
def health(patient: Patient) -> Iterator[HealthServer]:
    with HealthServer(patient, host="127.0.0.1", port=0) as health:
        yield health


def _ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _say(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_worker_that_is_well_is_green_and_says_what_it_does(health: HealthServer) -> None:
    assert _ask(health.port, "/livez") == (200, b"handlers running: 3; entries in flight: 5\n")
    assert _ask(health.port, "/readyz?verbose") == (
        200,
        b"handlers running: 3; entries in flight: 5\n",
    )


def test_a_worker_that_is_not_ready_is_not_to_be_restarted(
    health: HealthServer, patient: Patient
) -> None:
    patient.is_ready = False
    assert _ask(health.port, "/readyz")[0] == 503
    assert _ask(health.port, "/livez")[0] == 200


def test_a_worker_that_is_not_live_is_not_ready_either(
    health: HealthServer, patient: Patient
) -> None:
    patient.is_live = False
    assert [_ask(health.port, path)[0] for path in ("/livez", "/readyz")] == [503, 503]


def test_metrics_are_reported_as_text(health: HealthServer) -> None:
    status, text = _ask(health.port, "/metrics")
    assert status == 200
    assert b"# TYPE python_info gauge" in text


def test_metrics_are_not_found_without_their_client(
    health: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pelops.worker.metrics.find_spec", lambda name: None)
    assert _ask(health.port, "/metrics")[0] == 404
    assert _ask(health.port, "/livez")[0] == 200


def test_other_questions_are_refused(health: HealthServer) -> None:
    assert _ask(health.port, "/")[0] == 404
    assert _ask(health.port, "/livez", "POST")[0] == 405
    assert _ask(health.port, "/livez", "HEAD") == (200, b"")


@pytest.mark.parametrize("nonsense", [b"", b"\r\n\r\n", b"\xff\xfe \x00\r\n\r\n", b"x" * 100_000])
def test_invalid_requests_do_not_block_other_clients(health: HealthServer, nonsense: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it is not listened to any longer
        _say(health.port, nonsense)
    assert _ask(health.port, "/livez")[0] == 200


def test_a_silent_client_does_not_block_other_clients(health: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", health.port)):
        assert _ask(health.port, "/livez")[0] == 200


def test_a_port_that_is_taken_is_reported_by_the_variables_name(health: HealthServer) -> None:
    second = HealthServer(Patient(), host="127.0.0.1", port=health.port)
    with pytest.raises(WrongWorkerSettings, match="PELOPS_HEALTH_PORT"), second:
        pass


def test_the_port_is_free_afterwards(patient: Patient) -> None:
    with HealthServer(patient, host="127.0.0.1", port=0) as health:
        port = health.port
    with HealthServer(patient, host="127.0.0.1", port=port) as health:
        assert _ask(port, "/livez")[0] == 200


async def test_a_blocked_event_loop_is_reported_while_it_is_blocked() -> None:
    adapter = ScriptedAdapter(fresh=[raw(1)])
    reported: list[tuple[int, bytes]] = []
    worker = Worker(lambda: adapter, WorkerSettings(processing_timeout_ms=100, blocked_s=0.1))
    health = HealthServer(worker, host="127.0.0.1", port=0)

    @worker.handler
    async def handle(entry: Entry) -> None:
        while not reported or reported[-1][0] != 503:  # a blocking client stops the event loop
            reported.append(_ask(health.port, "/livez"))
            time.sleep(0.02)
        worker.stop()

    with health:
        assert await worker.serve() == 0
    assert reported[0][0] == 200
    assert b"is blocked" in reported[-1][1]


async def test_a_worker_is_ready_from_its_first_read_until_stop() -> None:
    worker = Worker(ScriptedAdapter, WorkerSettings(processing_timeout_ms=1000))
    worker.handler(lambda entry: None)
    seen: list[int] = []
    with HealthServer(worker, host="127.0.0.1", port=0) as health:
        seen.append(_ask(health.port, "/readyz")[0])
        serving = asyncio.create_task(worker.serve())
        while (await asyncio.to_thread(_ask, health.port, "/readyz"))[0] != 200:
            await asyncio.sleep(0.01)
        worker.stop()
        seen.append(_ask(health.port, "/readyz")[0])
        await serving
        seen.append(_ask(health.port, "/readyz")[0])
    assert seen == [503, 503, 503]


def test_a_process_answers_probes_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pelops.worker.engine.worker_process.force_exit", lambda code: None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = WorkerSettings(health_port=port, health_host="127.0.0.1", processing_timeout_ms=1000)
    worker = Worker(ScriptedAdapter, settings)
    worker.handler(lambda entry: None)
    reported: list[int] = []

    def ask_and_end() -> None:
        while not reported or reported[-1] != 200:
            try:
                reported.append(_ask(port, "/readyz")[0])
            except OSError:
                time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask_and_end, daemon=True).start()
    with pytest.raises(SystemExit) as ended:
        worker.run()
    assert ended.value.code == 0
