"""A worker that an environment variable configures to delete what it has acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster.redis_servers import StandaloneServers
from tests.worker_process import QUICK, WorkerProcesses, until


@pytest.mark.parametrize(("message", "left"), [("true", 0), ("false", 5)])
def test_a_variable_has_a_worker_delete_what_it_acknowledged(
    empty_redis_86: StandaloneServers, key_prefix: str, tmp_path: Path, message: str, left: int
) -> None:
    workers = WorkerProcesses(empty_redis_86.url, f"{key_prefix}orders", tmp_path)
    try:
        ids = workers.add(5)
        process = workers.start("one", QUICK, PELOPS_DELETE_ACKNOWLEDGED=message)
        until(lambda: len(workers.ids("one")) == 5)
        process.terminate()
        assert process.wait(60) == 0
        assert sorted(workers.ids("one")) == ids
        assert workers.server.xlen(workers.stream) == left
    finally:
        workers.close()
