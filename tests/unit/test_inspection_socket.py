"""The socket through which `kubectl exec` asks a replica."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pelops.controller.inspection.inspection_server import InspectionServer, listen_on_socket


def ask(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pelops.cli", "pending", "a", "-n", "shop", "--in-pod"],
        env={"PELOPS_INSPECTION_SOCKET": str(path), "PATH": "/usr/bin:/bin"},
        cwd=Path(__file__).parents[2] / "operator",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("length", [20, 200])
async def test_a_replica_answers_on_its_socket_however_long_the_path(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / ("d" * length) / "8080.sock"
    runner = await listen_on_socket(InspectionServer(lambda: None), path)
    assert runner is not None
    try:
        answer = await asyncio.to_thread(ask, path)
        assert "the operator is starting: repeat it later" in answer.stderr
        another = await listen_on_socket(InspectionServer(lambda: None), path)
        assert another is None, "one process listens already"
    finally:
        await runner.cleanup()


async def test_the_socket_of_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "8080.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    runner = await listen_on_socket(InspectionServer(lambda: None), path)
    assert runner is not None
    await runner.cleanup()
