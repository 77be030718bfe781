"""The fault runner detects a server that serves no client, though no fault was injected."""

from __future__ import annotations

import pytest
import redis

from local_cluster.processes import wait_until
from local_cluster.redis_servers import start_standalone
from tests.faults.proxy import Proxy
from tests.faults.wire_probes import probe_wires

TIMEOUT_S = 4.0  # far longer than a busy machine keeps a probe waiting


@pytest.mark.full
def test_only_an_unresponsive_server_is_recorded_for_each_connection() -> None:
    noted: list[tuple[int, int]] = []
    with start_standalone("8.6") as servers:
        port = servers.master().port
        wires = [Proxy(port), Proxy(port)]
        with (
            redis.Redis(port=port) as client,
            probe_wires(wires, TIMEOUT_S, lambda *one: noted.append(one)),
        ):
            wait_until(
                lambda: client.info("clients")["connected_clients"] > len(wires),
                timeout_s=60, what="the probes", every_s=0.02,
            )  # fmt: skip
            with wires[0].refusing():
                pass  # a fault that is written down by who did it
            assert not noted
            client.execute_command("DEBUG", "SLEEP", TIMEOUT_S)
            wait_until(
                lambda: {wire for wire, _ in noted} == {0, 1},
                timeout_s=60, what="a note for each wire", every_s=0.02,
            )  # fmt: skip
        for wire in wires:
            wire.close()
