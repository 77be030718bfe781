"""Servers that answer what no Redis answers are reported on the resource that asked alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.e2e.declaring import NAME, WAIT_S, a_spec, await_absence
from tests.fuzz.hostile_server import HostileServer, hostile_thread
from tests.fuzz.mutations import Sent
from tests.operators import Operators, Resources

MIB: Final = 1024 * 1024
_ENDLESS: Final = Sent(b"$500000000\r\nx", is_endless=True)
_EXPIRIES: Final = {"locks": {}, "tuning": {"keyspaceNotifications": True}}
# What is answered to which command; the reason that follows, if there is one.
ATTACKS: Final = {
    "slots-of-a-number": ("CLUSTER SLOTS", Sent(b"*1\r\n:5\r\n"), "InvalidRedisReply"),
    "slot-of-nine-digits": (
        "CLUSTER SLOTS",
        Sent(b"*1\r\n*3\r\n:0\r\n:100000000\r\n*2\r\n$1\r\nh\r\n:1\r\n"),
        "InvalidRedisReply",
    ),
    "endless-text": ("EVALSHA", _ENDLESS, "InvalidRedisReply"),
    "endless-list": ("EVALSHA", Sent(b"*90000\r\n*0\r\n", is_endless=True), "InvalidRedisReply"),
    "large-array": ("EVALSHA", Sent(b"*1000000000\r\n"), "InvalidRedisReply"),
    "deep-list": ("EVALSHA", Sent(b"*1\r\n" * 1000 + b":1\r\n"), "InvalidRedisReply"),
    "moved-nowhere": ("EVALSHA", Sent(b"-MOVED x y\r\n"), "InvalidRedisReply"),
    "another-shape": ("EVALSHA", Sent(b"*2\r\n:1\r\n:2\r\n"), "InvalidRedisReply"),
    "no-redis": ("INFO", Sent(b"SSH-2.0-secret\r\n"), "InvalidRedisReply"),
    "sentinel-without-a-port": (
        "SENTINEL GET-MASTER-ADDR-BY-NAME",
        Sent(b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\nx\r\n"),
        "InvalidRedisReply",
    ),
    "config-is-a-number": ("CONFIG GET", Sent(b"*2\r\n$1\r\na\r\n:5\r\n"), None),
}


@pytest.fixture(params=sorted(ATTACKS))
def attack(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_hostile_server_is_reported_and_does_not_affect_other_resources(
    resources: Resources, operator: Operators, redis_86: StandaloneServers, stream: str, attack: str
) -> None:
    command, sent, reason = ATTACKS[attack]
    pids = [process.pid for process in operator.processes]
    before = list(map(_resident_bytes, pids))
    with hostile_thread(redis_86.master().port, 1) as host:
        host.instead = {command: sent}
        resources.apply("hostile", _spec(host, f"{stream}-hostile", command))
        if reason is not None:
            condition = resources.await_condition("hostile", reason=reason)
            assert "secret" not in condition["message"]
        wait_until(lambda: host.sent[command] >= 2, timeout_s=WAIT_S, what="two spoilt replies")
        resources.apply(NAME, a_spec(redis_86.url, stream))
        resources.await_condition(NAME, reason="Ready")
        assert all(process.is_alive() for process in operator.processes)
        assert [process.pid for process in operator.processes] == pids
        after = list(map(_resident_bytes, pids))
        resources.delete("hostile")
        await_absence(resources, "scg", "hostile")
    assert all(new - old < 150 * MIB for new, old in zip(after, before, strict=True))


def _spec(host: HostileServer, stream: str, command: str) -> dict[str, object]:
    node = f"127.0.0.1:{host.port}"
    if command.startswith("SENTINEL"):
        return a_spec("", stream, redis={"sentinel": {"masterName": "m", "nodes": [node]}})
    more = {"recovery": _EXPIRIES} if command == "CONFIG GET" else {}
    return a_spec(f"redis://{node}", stream, **more)


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096
