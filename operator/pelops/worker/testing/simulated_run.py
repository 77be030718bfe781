"""Runs a worker by a clock that moves when all wait, until there is nothing left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pelops.worker.engine.threads import Threads
from pelops.worker.testing.adapter import MemoryAdapter
from pelops.worker.testing.clock import VirtualLoop
from pelops.worker.testing.world import World
from pelops.worker.worker import Worker

_LOOK_S: Final = 1.0
_STEPS: Final = 20  # of the event loop
_END_S: Final = 30.0


class Crashed(BaseException):
    """Ends the handler that asked for a crash. Nothing notices: its process is gone."""


class InLine(Threads):
    """Calls handlers that are not async where they are, so that their order is known."""

    async def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """What `function` answers."""
        return function(argument)


class Process:
    """One run of a worker."""

    def __init__(self, world: World, worker: Worker) -> None:
        self.crashed = False
        self.adapters: list[MemoryAdapter] = []
        self._world = world
        self._worker = worker
        self._loop = VirtualLoop(world.clock)

    def run(self, limit_s: float) -> int:
        """The exit code; raises TimeoutError when there is still work after `limit_s`."""
        loop, worker = self._loop, self._worker
        worker._threads = InLine()
        try:
            main = loop.create_task(self._main(limit_s))
            main.add_done_callback(self._stop)
            loop.run_forever()  # run_until_complete would complain of a crash
            main.remove_done_callback(self._stop)
            if not self.crashed:
                return main.result()
            return 137  # as of SIGKILL
        finally:
            self._end(loop)
            worker._threads = Threads()

    def _stop(self, _: asyncio.Task[int]) -> None:
        self._loop.stop()

    def crash(self) -> None:
        """End the process where it stands: what it says from now on is not heard."""
        if self.crashed:
            raise Crashed
        self.crashed = True
        for adapter in self.adapters:
            adapter.is_dead = True
        self._loop.break_off()
        task = asyncio.current_task(self._loop)
        if task is not None:
            task.cancel()  # or its slot would go on with the next entry
        raise Crashed

    async def _main(self, limit_s: float) -> int:
        serving = asyncio.create_task(self._worker.serve())
        try:
            async with asyncio.timeout(limit_s):
                while not serving.done() and self._has_work():
                    await self._look(serving)
        except TimeoutError:
            message = f"after {limit_s:g} s there is still work: {self._worker.describe()}"
            raise TimeoutError(message) from None
        self._worker.stop()
        return await serving

    async def _look(self, serving: asyncio.Task[int]) -> None:
        changed = asyncio.create_task(self._world.sleep(_LOOK_S))
        await asyncio.wait([serving, changed], return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()

    def _has_work(self) -> bool:
        world = self._world
        begun = [adapter for adapter in self.adapters if adapter.epoch]
        if not begun or world.offers:
            return True
        me, left = begun[0].me, begun[0].left
        now_ms, limit_ms = world.clock.now_ms, world.processing_timeout_ms
        return any(
            stream.undelivered
            or stream.find_idle(limit_ms, now_ms)
            or any(one not in left for one in stream.owned_by(me))
            for stream in world.streams.values()
        )

    def _end(self, loop: VirtualLoop) -> None:
        """Take down what is left; a process that crashed does not notice either."""
        for adapter in self.adapters:
            adapter.is_dead = True
        for _ in range(_STEPS):
            # Slots that end make others: none is to come so far as to begin with a handler.
            for task in asyncio.all_tasks(loop):
                if not task.cancelling():
                    task.cancel()
            loop.resume()
            loop.call_soon(loop.stop)
            loop.run_forever()
        left = asyncio.all_tasks(loop)
        if left:  # what cleans up and takes its time
            loop.run_until_complete(asyncio.wait(left, timeout=_END_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
