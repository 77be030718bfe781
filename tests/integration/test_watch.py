"""The watch against API servers that misbehave: it is deaf no longer than the trouble lasts."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kubernetes.aio import client as aio_client
from prometheus_client import REGISTRY

from pelops.controller.handlers import run_operator
from pelops.controller.runtime.cache import Name, Resync
from pelops.controller.runtime.watch import (
    SILENCE_LIMIT_S,
    Operator,
    Subscription,
    Watch,
    WatchPace,
)
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import POD, STREAM_CONSUMER_GROUP, Kind, KubeApi, Manifest
from tests.integration.hostile_api import FAULTS, PREFIX, HostileApi, Object

KINDS = (STREAM_CONSUMER_GROUP, POD)
FAST = WatchPace(
    stream_s=2.0,
    late_s=0.5,
    answer_s=0.5,
    longest_answer_s=1.0,
    list_s=5.0,
    first_pause_s=0.02,
    longest_pause_s=0.2,
    longest_silence_s=5.0,
    check_s=0.05,
    longest_start_s=0.2,
    ending_s=0.2,
)
WAIT_S = 60.0
# For what is counted: nothing is late on a busy machine.
PATIENT = replace(FAST, late_s=WAIT_S, answer_s=WAIT_S, longest_answer_s=WAIT_S, list_s=WAIT_S)
GROUP = STREAM_CONSUMER_GROUP


@dataclass
class Followed:
    """A cache that a watch keeps in step, and the resources that changes concerned."""

    cache: WorkloadCache = field(default_factory=WorkloadCache)
    concerned: list[tuple[Kind, Name]] = field(default_factory=list)
    ahead_s: float = 0.0  # of the watch's clock
    breaks: str = ""  # the name of an object that cannot be taken in
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.cache.objects.listen(GROUP, self.concern)

    def clock(self) -> float:
        return time.monotonic() + self.ahead_s

    def hear(self, kind: Kind, manifest: Manifest, is_gone: bool) -> None:
        if manifest["metadata"]["name"] == self.breaks:
            raise ValueError("cannot be read")
        self.cache.objects.handle_event(kind, manifest, is_gone)

    def concern(self, kind: Kind, names: set[Name]) -> None:
        self.concerned += [(kind, name) for name in names]

    def known(self) -> set[str]:
        return {name for _, name in self.cache.resources}

    @asynccontextmanager
    async def following(
        self,
        api: KubeApi,
        pace: WatchPace,
        *,
        kinds: Collection[Kind] = (GROUP,),
        resync: Resync | None = None,
        operator: Operator = run_operator,
    ) -> AsyncIterator[None]:
        """Run the watch meanwhile."""
        resync = resync or Resync(api, self.cache.objects, ())
        self.watch = Watch(
            api,
            resync,
            self.hear,
            self.clock,
            operator,
            pace=pace,
        )
        self.watch.follow(kinds)
        task = asyncio.create_task(self.watch.run())
        yield
        assert not task.done(), "the watch ended by itself"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, WAIT_S)


@pytest.fixture
async def server() -> AsyncIterator[HostileApi]:
    async with HostileApi() as started:
        await started.put(GROUP, "kept")
        await started.put(GROUP, "removed")
        yield started


@pytest.fixture
async def api(server: HostileApi) -> AsyncIterator[KubeApi]:
    made = _client(server)
    yield made
    await made.close()


@pytest.fixture
async def followed(api: KubeApi) -> AsyncIterator[Followed]:
    made = Followed()
    async with made.following(api, FAST, kinds=KINDS):
        await _until(lambda: made.known() == {"kept", "removed"})
        yield made


@pytest.fixture
async def patient(api: KubeApi) -> AsyncIterator[Followed]:
    """For what is about answers, and not about how long they take."""
    made = Followed()
    async with made.following(api, PATIENT, kinds=KINDS):
        await _until(lambda: made.known() == {"kept", "removed"})
        yield made


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_happened_during_a_fault_is_known_after_it(
    server: HostileApi, followed: Followed, fault: str
) -> None:
    await server.set_fault(fault)
    await server.put(GROUP, "added")
    await server.delete(GROUP, "removed")
    await asyncio.sleep(0.6)
    await server.set_fault("")
    await _until(lambda: followed.known() == {"kept", "added"})
    await server.put(GROUP, "later")
    await _until(lambda: "later" in followed.known())
    assert (GROUP, ("shop", "removed")) in followed.concerned


async def test_a_watch_stream_that_ends_is_resumed_without_a_list(
    server: HostileApi, api: KubeApi
) -> None:
    made = Followed()
    async with made.following(api, PATIENT):
        await _until(lambda: server.requests["WATCH"] >= 3)
        await server.put(GROUP, "added")
        await _until(lambda: "added" in made.known())
        assert server.requests["LIST"] == 1


async def test_an_expired_resource_version_is_followed_by_an_immediate_list(
    server: HostileApi, api: KubeApi
) -> None:
    made = Followed()
    without_pauses = replace(PATIENT, stream_s=1.0, first_pause_s=600.0, longest_pause_s=600.0)
    async with made.following(api, without_pauses):
        await _until(lambda: server.requests["WATCH"] == 2)
        await server.set_fault("says 410 in the stream")
        await _until(lambda: server.requests["LIST"] == 2)


async def test_an_object_that_is_nested_deeply_is_heard_and_ends_no_watch(
    server: HostileApi, patient: Followed
) -> None:
    restarts = _metric("pelops_watch_restarts_total")
    nested: Object = {}
    for _ in range(3000):
        nested = {"a": nested}
    await server.put(GROUP, "deep", spec={"template": nested})
    await _until(lambda: "deep" in patient.known())
    assert "deeper than 64 levels" in str(patient.cache.resources["shop", "deep"])
    assert _metric("pelops_watch_restarts_total") == restarts


async def test_kinds_are_followed_behind_a_proxy_for_many_clusters(server: HostileApi) -> None:
    place = f"http://127.0.0.1:{server.port}{PREFIX}"
    api = KubeApi(aio_client.Configuration(host=place))
    made = Followed()
    async with made.following(api, PATIENT):
        await _until(lambda: made.known() == {"kept", "removed"})
        await made.watch.await_lists(WAIT_S)
    await api.close()


async def test_what_changes_while_the_cache_is_listed_is_known(
    server: HostileApi, api: KubeApi
) -> None:
    made = Followed()

    class Meanwhile(Resync):
        async def list_feed(self, *args: Any, **more: Any) -> None:
            await server.put(GROUP, "before")
            await super().list_feed(*args, **more)
            await server.put(GROUP, "after")
            await server.delete(GROUP, "removed")

    async with made.following(api, PATIENT, resync=Meanwhile(api, made.cache.objects, ())):
        await _until(lambda: made.known() == {"kept", "before", "after"})


async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    server: HostileApi, patient: Followed
) -> None:
    await server.set_fault("cuts streams")
    server.retry_after = "2"
    await server.set_fault("answers 429")
    server.asked_s.clear()
    await _until(lambda: all(len(server.asked_s[kind.plural]) >= 2 for kind in KINDS))
    for first_s, second_s, *_ in server.asked_s.values():
        assert second_s - first_s >= 2
    await server.set_fault("")
    await server.put(GROUP, "added")
    await _until(lambda: "added" in patient.known())


async def test_a_silent_watch_is_reported_by_kind_until_it_recovers(
    server: HostileApi, patient: Followed
) -> None:
    assert patient.watch.problem() == ""
    restarts = _metric("pelops_watch_restarts_total")
    await server.set_fault("answers 403")
    await _until(lambda: _metric("pelops_watch_restarts_total") > restarts)
    patient.ahead_s = SILENCE_LIMIT_S + 5
    problem = patient.watch.problem()
    silent = re.search(r"the watch of streamconsumergroups has received nothing for (\d+)", problem)
    assert silent is not None and int(silent[1]) >= SILENCE_LIMIT_S
    assert "the watch of pods" in problem
    # A refused list has other words; the watch that is tried after it has these.
    reported = "returned HTTP status 403: it is a 403"
    await _until(lambda: reported in patient.watch.problem())
    assert time.time() - _metric("pelops_watch_last_activity_timestamp_seconds") > SILENCE_LIMIT_S
    await server.set_fault("")
    await _until(lambda: patient.watch.problem() == "")
    assert time.time() - _metric("pelops_watch_last_activity_timestamp_seconds") < SILENCE_LIMIT_S


async def test_an_object_that_cannot_be_read_hides_no_other(
    server: HostileApi, followed: Followed
) -> None:
    followed.breaks = "broken"
    await server.put(GROUP, "broken")
    await server.put(GROUP, "added")
    await _until(lambda: "added" in followed.known())


async def test_a_replaced_token_is_read_again(server: HostileApi) -> None:
    token = ["old"]

    async def load() -> aio_client.Configuration:
        configuration = aio_client.Configuration(host=f"http://127.0.0.1:{server.port}")
        # As a pod's ServiceAccount has it, with a small letter.
        configuration.api_key["BearerToken"] = f"bearer {token[0]}"
        return configuration

    server.token = "old"
    api = KubeApi(await load(), load=load)
    made = Followed()
    async with made.following(api, FAST):
        await _until(lambda: made.known() == {"kept", "removed"})
        assert made.watch.problem() == ""
        token[0] = server.token = "new"
        await server.put(GROUP, "added")
        await server.set_fault("cuts streams")
        await server.set_fault("")
        await server.put(GROUP, "later")
        await _until(lambda: {"added", "later"} <= made.known())
    await api.close()


class Breaking(Resync):
    """LISTs that break once, in a way of their own."""

    trouble: BaseException | None = None
    clings = False

    async def list_feed(self, *args: Any, **more: Any) -> None:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        while self.clings:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        await super().list_feed(*args, **more)


TROUBLES = {
    "an assertion": AssertionError(),
    "a group": BaseExceptionGroup("all", [AssertionError(), ValueError("x")]),
    "a cancellation by somebody else": asyncio.CancelledError(),
    "a time-out": TimeoutError(),
    "memory": MemoryError(),
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_watch_restarts_after_any_error(
    server: HostileApi, api: KubeApi, trouble: str
) -> None:
    made = Followed()
    resync = Breaking(api, made.cache.objects, ())
    resync.trouble = TROUBLES[trouble]
    async with made.following(api, FAST, resync=resync):
        await _until(lambda: made.known() == {"kept", "removed"})


async def test_a_list_that_ignores_its_cancellation_is_abandoned(
    server: HostileApi, api: KubeApi
) -> None:
    made = Followed()
    resync = Breaking(api, made.cache.objects, ())
    resync.clings = True
    async with made.following(api, replace(FAST, list_s=0.2), resync=resync):
        restarts = _metric("pelops_watch_restarts_total")
        await _until(lambda: _metric("pelops_watch_restarts_total") > restarts)
        resync.clings = False
        await _until(lambda: made.known() == {"kept", "removed"})


async def _ask_for_nothing(subscription: Subscription) -> None:
    await asyncio.to_thread(subscription.stop.wait)


async def _cling(_: Subscription) -> None:
    await asyncio.Event().wait()


async def _end_at_once(_: Subscription) -> None:
    raise RuntimeError("for a reason of its own")


@pytest.mark.parametrize("first", [_ask_for_nothing, _cling, _end_at_once])
async def test_kopf_is_started_again_when_it_does_not_follow(
    server: HostileApi, api: KubeApi, first: Operator
) -> None:
    made = Followed()
    operators = iter([first, first])

    def operator(subscription: Subscription) -> Coroutine[Any, Any, None]:
        return next(operators, run_operator)(subscription)

    async with made.following(api, replace(FAST, longest_silence_s=0.2), operator=operator):
        await _until(lambda: made.known() == {"kept", "removed"})


async def test_another_choice_of_kinds_is_followed(server: HostileApi, api: KubeApi) -> None:
    made = Followed()
    async with made.following(api, PATIENT, kinds=(POD,)):
        await _until(lambda: server.requests["WATCH"] == 1)
        made.watch.follow(KINDS)
        await _until(lambda: made.known() == {"kept", "removed"})


def _client(server: HostileApi) -> KubeApi:
    return KubeApi(aio_client.Configuration(host=f"http://127.0.0.1:{server.port}"))


def _metric(name: str) -> float:
    value = REGISTRY.get_sample_value(name, {"kind": GROUP.plural})
    assert value is not None
    return value


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)
