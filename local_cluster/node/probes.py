"""Startup, readiness and liveness probes, and the commands of hooks."""

import asyncio
import logging
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import aiohttp

from local_cluster.node.fields import KubeObject
from local_cluster.node.process import ContainerProcess, Launch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """What a probe of one container aims at."""

    container: KubeObject
    pod_ip: str
    launch: Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Streak:
    """How often in a row a probe gave the same answer."""

    healthy: bool | None = None
    length: int = 0

    def extend(self, healthy: bool) -> "Streak":
        if healthy == self.healthy:
            return replace(self, length=self.length + 1)
        return Streak(healthy=healthy, length=1)


def decide_verdict(probe: KubeObject, streak: Streak) -> bool | None:
    """Healthy, unhealthy, or None while the thresholds are not reached."""
    needed = (
        probe.get("successThreshold") or 1 if streak.healthy else probe.get("failureThreshold") or 3
    )
    return streak.healthy if streak.length >= needed else None


async def watch_probe(
    probe: KubeObject, target: ProbeTarget, report: Callable[[bool], None]
) -> None:
    """Run the probe for ever; report each verdict, also when it repeats."""
    await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
    streak = Streak()
    while True:
        streak = streak.extend(await run_probe(probe, target))
        verdict = decide_verdict(probe, streak)
        if verdict is not None:
            report(verdict)
        await asyncio.sleep(probe.get("periodSeconds") or 10)


async def run_probe(probe: KubeObject, target: ProbeTarget) -> bool:
    """One look: whether the container answers as the probe wants it, within its timeout."""
    try:
        async with asyncio.timeout(probe.get("timeoutSeconds") or 1):
            return await _look(probe, target)
    except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
        log.debug("probe of %s failed: %r", target.container["name"], error)
        return False


async def _look(probe: KubeObject, target: ProbeTarget) -> bool:
    if "httpGet" in probe:
        return await _get(probe["httpGet"], target)
    if "tcpSocket" in probe:
        return await _connect(probe["tcpSocket"], target)
    if "exec" in probe:
        return await run_command(probe["exec"]["command"], target.launch) == 0
    raise ValueError("this node has no such probe")


def find_port(container: KubeObject, port: int | str) -> int:
    """The number of a port that is given by number or name; raises ValueError."""
    if str(port).isdigit():
        return int(port)
    for one in container.get("ports") or []:
        if one.get("name") == port:
            return int(one["containerPort"])
    raise ValueError(f"no port is named {port!r}")


async def _get(action: KubeObject, target: ProbeTarget) -> bool:
    port = find_port(target.container, action["port"])
    scheme = (action.get("scheme") or "HTTP").lower()
    host, path = action.get("host") or target.pod_ip, action.get("path") or "/"
    url = f"{scheme}://{host}:{port}/{path.lstrip('/')}"
    headers = {one["name"]: one["value"] for one in action.get("httpHeaders") or []}
    headers = {"User-Agent": "kube-probe/local"} | headers
    # A kubelet opens a connection for each look and checks no certificate.
    connector = aiohttp.TCPConnector(ssl=False, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        return 200 <= response.status < 400


async def _connect(action: KubeObject, target: ProbeTarget) -> bool:
    port = find_port(target.container, action["port"])
    _, writer = await asyncio.open_connection(action.get("host") or target.pod_ip, port)
    writer.close()
    return True


async def run_command(command: list[str], launch: Launch) -> int:
    """The exit code of a command that is run as in the container; killed when cancelled."""
    aside = replace(launch, command=command)
    # Not a ContainerProcess' output: what a probe prints is not the container's log.
    process = ContainerProcess(aside, subprocess.DEVNULL, owns_leftovers=False)
    try:
        return await asyncio.shield(process.exited)
    finally:
        process.signal(signal.SIGKILL)


async def run_hook(hook: KubeObject | None, target: ProbeTarget) -> bool:
    """Run a lifecycle hook to its end; False when it failed."""
    if not hook:
        return True
    if "sleep" in hook:
        await asyncio.sleep(hook["sleep"]["seconds"])
        return True
    with suppress(OSError, aiohttp.ClientError, ValueError):
        if "exec" in hook:
            return await run_command(hook["exec"]["command"], target.launch) == 0
        return await _look(hook, target)
    return False
