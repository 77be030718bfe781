"""One container's life: started, probed, restarted as its policy says, stopped."""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from local_cluster.node.api import ApiError, ApiUnavailable
from local_cluster.node.container_state import (
    BACKOFF_FORGOTTEN_AFTER_S,
    ContainerReport,
    Running,
    Terminated,
    Waiting,
    close_report,
    decide_backoff_s,
    resume_report,
    will_restart,
)
from local_cluster.node.environment import ConfigError
from local_cluster.node.fields import KubeObject
from local_cluster.node.output import ContainerOutput
from local_cluster.node.probes import ProbeTarget, run_hook, watch_probe
from local_cluster.node.process import ContainerProcess, Launch
from local_cluster.node.sandbox import Sandbox

log = logging.getLogger(__name__)

_CONFIG_RETRY_S = 1.0
_NO_COMMAND = "this node runs commands, not images: give the container a command"


class Container:
    """Runs one container of a pod; `report` says what became of it, `changed` hears of news."""

    def __init__(
        self, spec: KubeObject, sandbox: Sandbox, *, policy: str, changed: Callable[[], None]
    ) -> None:
        self.name = str(spec["name"])
        self.report = ContainerReport(
            name=self.name,
            image=spec.get("image", ""),
            state=Waiting(reason="ContainerCreating"),
        )
        self.output = ContainerOutput(sandbox.logs / f"{self.name}.log")
        self.started = asyncio.Event()
        self._spec = spec
        self._sandbox = sandbox
        self._policy = policy
        self._changed = changed
        self._stopping = asyncio.Event()
        self._process: ContainerProcess | None = None
        self._target: ProbeTarget | None = None
        self._quick_ends = 0

    @property
    def launch(self) -> Launch | None:
        """How its process was started; None while it does not run."""
        if self._process is None or self._target is None:
            return None
        return self._target.launch

    def resume(self, report: ContainerReport) -> None:
        """Go on from what an earlier run of this node reported."""
        self.report = resume_report(report)

    def wait_for(self, reason: str, message: str = "") -> None:
        """Show why the container does not start yet, unless it has run before."""
        if isinstance(self.report.state, Waiting) and self.report.last is None:
            self._report(state=Waiting(reason=reason, message=message))

    async def run(self) -> Terminated | None:
        """Run until the container will not run again; None when stopped before it ever ran."""
        ended = self.report.state if isinstance(self.report.state, Terminated) else None
        if ended is not None and not will_restart(self._policy, ended.exit_code):
            return ended
        try:
            while not self._stopping.is_set():
                ended = await self._run_once() or ended
                if ended is None or not will_restart(self._policy, ended.exit_code):
                    break
                await self._back_off(ended)
            return ended
        finally:
            self.kill()

    async def _run_once(self) -> Terminated | None:
        launch = await self._prepare()
        if launch is None:
            return None
        previous = (
            self.report.state if isinstance(self.report.state, Terminated) else self.report.last
        )
        if previous is not None:
            self._report(restart_count=self.report.restart_count + 1, last=previous)
        try:
            with self.output.begin_run() as output:
                process = ContainerProcess(launch, output)
        except OSError as error:
            return self._end_unstarted(error)
        self._process = process
        self._target = ProbeTarget(container=self._spec, pod_ip=self._sandbox.pod_ip, launch=launch)
        self._report(
            state=Running(started_at=process.started_at), container_id=process.container_id
        )
        return await self._attend(process, self._target)

    async def _attend(self, process: ContainerProcess, target: ProbeTarget) -> Terminated:
        attending = asyncio.create_task(self._probe(target))
        try:
            exit_code = await asyncio.shield(process.exited)
        finally:
            attending.cancel()
        self._process = None
        self._count_end(process)
        ended = Terminated(
            exit_code=exit_code,
            reason="Error" if exit_code else "Completed",
            started_at=process.started_at,
            finished_at=process.ended_at,
            container_id=process.container_id,
        )
        self._end(ended)
        return ended

    def _end_unstarted(self, error: OSError) -> Terminated:
        now = datetime.now(UTC)
        missing = isinstance(error, FileNotFoundError)
        ended = Terminated(
            exit_code=127 if missing else 128,
            reason="StartError",
            message=f"cannot start: {error}",
            started_at=datetime.fromtimestamp(0, UTC),  # as containerd: it never started
            finished_at=now,
        )
        self._quick_ends += 1
        self._end(ended)
        return ended

    def _end(self, ended: Terminated) -> None:
        self.output.end_run()
        self._report(state=ended, ready=False, started=False)

    def _count_end(self, process: ContainerProcess) -> None:
        ran_for = (process.ended_at or process.started_at) - process.started_at
        lasted = ran_for.total_seconds() >= BACKOFF_FORGOTTEN_AFTER_S
        self._quick_ends = 1 if lasted else self._quick_ends + 1

    async def _prepare(self) -> Launch | None:
        """How to start; waits until that is known, None when stopped meanwhile."""
        if not self._spec.get("command"):
            self._await_state("ImageHasNoCommand", _NO_COMMAND)
            await self._stopping.wait()
        while not self._stopping.is_set():
            try:
                launch = await self._sandbox.build_launch(self._spec)
            except (ConfigError, ApiError, ApiUnavailable, OSError) as error:
                self._await_state("CreateContainerConfigError", str(error))
                await self._pause(_CONFIG_RETRY_S)
                continue
            return None if self._stopping.is_set() else launch
        return None

    def _await_state(self, reason: str, message: str) -> None:
        before = self.report.state
        last = before if isinstance(before, Terminated) else self.report.last
        self._report(state=Waiting(reason=reason, message=message), last=last)

    async def _back_off(self, ended: Terminated) -> None:
        delay_s = decide_backoff_s(self._quick_ends)
        if not delay_s and ended.reason != "StartError":
            return
        meta = self._sandbox.pod["metadata"]
        pod = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        message = f"back-off {delay_s:g}s restarting failed container={self.name} pod={pod}"
        unstarted = ended.reason == "StartError"
        reason = "RunContainerError" if unstarted else "CrashLoopBackOff"
        self._await_state(reason, ended.message if unstarted else message)
        await self._pause(delay_s)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _probe(self, target: ProbeTarget) -> None:
        """Run the hooks and probes beside the running process. Cancelled at its end."""
        lifecycle = self._spec.get("lifecycle") or {}
        if not await run_hook(lifecycle.get("postStart"), target):
            await self._restart("its postStart hook failed", {})
            return
        await self._pass_startup(target)
        self.started.set()
        self._report(started=True, ready=not self._spec.get("readinessProbe"))
        async with asyncio.TaskGroup() as probing:
            if probe := self._spec.get("readinessProbe"):
                probing.create_task(watch_probe(probe, target, self._set_ready))
            if probe := self._spec.get("livenessProbe"):
                probing.create_task(self._keep_alive("liveness", probe, target))

    async def _pass_startup(self, target: ProbeTarget) -> None:
        probe = self._spec.get("startupProbe")
        if not probe:
            return
        verdict: asyncio.Queue[bool] = asyncio.Queue()
        probing = asyncio.create_task(watch_probe(probe, target, verdict.put_nowait))
        try:
            if not await verdict.get():
                await self._restart("its startup probe failed", probe)
                await asyncio.Event().wait()
        finally:
            probing.cancel()

    async def _keep_alive(self, kind: str, probe: KubeObject, target: ProbeTarget) -> None:
        verdict: asyncio.Queue[bool] = asyncio.Queue()
        probing = asyncio.create_task(watch_probe(probe, target, verdict.put_nowait))
        try:
            while await verdict.get():
                pass
            await self._restart(f"its {kind} probe failed", probe)
        finally:
            probing.cancel()

    def _set_ready(self, ready: bool) -> None:
        if self.report.ready != ready:
            self._report(ready=ready)

    async def _restart(self, why: str, probe: KubeObject) -> None:
        """End the process, so that the policy starts it again; a stop of the pod overrides it."""
        if self._stopping.is_set() or self._process is None:
            return
        log.info("container %s is killed: %s", self.name, why)
        pod_grace_s = self._sandbox.pod["spec"].get("terminationGracePeriodSeconds", 30)
        grace_s = probe.get("terminationGracePeriodSeconds") or pod_grace_s
        process = self._process
        asyncio.get_running_loop().call_later(max(grace_s, 1), process.kill)
        await self._end_process(process)

    async def stop(self) -> None:
        """Ask the process to end and wait without a limit; the caller kills what does not end."""
        self._stopping.set()
        if self._process is not None:
            await self._end_process(self._process)

    async def _end_process(self, process: ContainerProcess) -> None:
        hook = (self._spec.get("lifecycle") or {}).get("preStop")
        if hook and self._target is not None:
            hooking = asyncio.create_task(run_hook(hook, self._target))
            either: set[asyncio.Future[Any]] = {hooking, process.exited}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            hooking.cancel()
        process.signal(signal.SIGTERM)
        await asyncio.shield(process.exited)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Settle the report: nothing runs, nothing will."""
        self.report = close_report(self.report)

    def _report(self, **changes: Any) -> None:
        self.report = replace(self.report, **changes)
        self._changed()
