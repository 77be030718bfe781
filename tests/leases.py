"""Leases as an API server keeps them, and replicas that share them, without either of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pelops.controller.runtime.leases import ANSWER_S, Members, MembershipView
from pelops.errors import Conflict, KubernetesUnavailable
from pelops.kube.client import Address, Kind, KubeApi, Manifest

T = TypeVar("T")


@dataclass
class KnownMembers(Members):
    """The membership of a replica as a test sets it; by default it is the only one."""

    known: frozenset[str] = frozenset({"one"})
    rank_now: int = 0
    is_admitted: bool = True
    is_deciding: bool = True
    keys: list[str] = field(default_factory=list)  # that it was asked for

    @property
    def standing(self) -> MembershipView:
        return MembershipView(joins=1, is_admitted=self.is_admitted, members=self.known)

    def rank(self, key: str) -> int:
        self.keys.append(key)
        return self.rank_now + (0 if self.is_admitted else 1)

    def place(self, key: str) -> int:
        return self.rank_now

    def decides(self, key: str) -> bool:
        self.keys.append(key)
        return self.is_deciding

    def left_s(self) -> float:
        return 1_000.0


class LeaseStore:
    """What is stored, and when it is reached and answered."""

    def __init__(self, delay_s: Callable[[], float] = lambda: 0.0) -> None:
        """`delay_s` is how long the next message is under way, to the server or from it."""
        self.leases: dict[str, Manifest] = {}
        self.is_away = False
        self.delay_s = delay_s
        self._version = 0

    def put(self, name: str, body: Manifest) -> Manifest:
        """A write, at the moment at which it happens."""
        self._version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        self.leases[name] = {**body, "metadata": metadata}
        return self.leases[name]

    def remove(self, name: str, version: str | None) -> None:
        found = self.leases.get(name)
        if version is not None and found and found["metadata"]["resourceVersion"] != version:
            raise Conflict("it is another version")
        self.leases.pop(name, None)


class LeaseApi(KubeApi):
    """One replica's way to the store. A sent request is served even if its caller gave up."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._is_running = asyncio.Event()
        self._is_running.set()

    def pause(self) -> None:
        """From now on nothing is sent, and no answer noticed."""
        self._is_running.clear()

    def resume(self) -> None:
        """Go on, with what was answered meanwhile."""
        self._is_running.set()

    @property
    def is_paused(self) -> bool:
        return not self._is_running.is_set()

    async def apply(self, address: Address, body: Manifest, *, manager: str = "pelops") -> Manifest:
        return await self._exchange(lambda: self._store.put(address.name, body))

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, selector: str = ""
    ) -> list[Manifest]:
        return await self._exchange(lambda: list(self._store.leases.values()))

    async def delete(
        self, address: Address, *, uid: str | None = None, version: str | None = None
    ) -> None:
        await self._exchange(lambda: self._store.remove(address.name, version))

    async def _exchange(self, serve: Callable[[], T]) -> T:
        await self._is_running.wait()
        if self._store.is_away:
            raise KubernetesUnavailable("nobody answers")
        answered = asyncio.create_task(self._serve(serve))
        # Read a failure after the caller gave up, so that asyncio does not log it.
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(answered), ANSWER_S)
        except TimeoutError as error:
            raise KubernetesUnavailable("no answer in time") from error
        finally:
            await self._is_running.wait()

    async def _serve(self, serve: Callable[[], T]) -> T:
        await asyncio.sleep(self._store.delay_s())
        result = serve()
        await asyncio.sleep(self._store.delay_s())
        return result


class RunningReplica:
    """The part of a replica that renews its Lease, with a clock of its own."""

    def __init__(
        self, store: LeaseStore, identity: str, *, rate: float = 1.0, shows: float = 0.0
    ) -> None:
        """Its clock runs at `rate` and `shows` something else than those of others."""
        time = asyncio.get_running_loop().time
        self.api = LeaseApi(store)
        self.members = Members(
            self.api, identity=identity, namespace="ns", clock=lambda: shows + rate * time()
        )
        self.identity = identity
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.members.run())

    async def kill(self) -> None:
        """End at once."""
        if self._task is not None:
            self._task.cancel()
            self.api.resume()
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """End in order."""
        await self.kill()
        await self.members.leave()

    def decides(self, key: str) -> bool:
        """Whether it would write for this key now."""
        return not self.api.is_paused and self.members.decides(key)
