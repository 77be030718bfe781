"""The runtime runs a kind that it has never heard of, on a real API server.

`third_kind.py` is all that the kind consists of. No module of the runtime knows it, and a contract
of the imports (pyproject.toml) makes sure that none knows the other two.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import pytest

from local_cluster.plane import ControlPlane
from pelops.api.schema.base import ObjectMeta
from pelops.controller.handlers import run_operator
from pelops.controller.replica import Replica, build_kinds, cancel_all
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.controller.runtime.kind import Services
from pelops.controller.runtime.leases import Members
from pelops.controller.runtime.runtime import Runtime
from pelops.controller.runtime.settings import parse_settings
from pelops.controller.runtime.watch import SILENCE_LIMIT_S
from pelops.errors import InvalidSpec, KubernetesUnavailable
from pelops.kube.client import STREAM_CONSUMER_GROUP, Address, Kind, KubeApi, Manifest
from pelops.policy.membership import rank_of
from pelops.redis_core.pool import ServerPool
from tests.control_plane.third_kind import (
    CONFIG_MAP,
    MISTAKE,
    OUTAGE,
    Book,
    GreetingKind,
    build_definition,
    build_kind,
)
from tests.operators import Resources

pytestmark = pytest.mark.full

GREETING = build_kind()
LATE = build_kind("belatedgreetings")
HELD = "example.com/held"
UNREACHABLE = {"stream": "orders", "redis": {"url": "redis://127.0.0.1:1"}}
WAIT_S = 60.0
OBSERVE_S = 0.1


class CountingApi(KubeApi):
    """Counts what a replica applies, by resource and name."""

    applied: Counter[tuple[str, str]]

    async def apply(self, address: Address, body: Manifest, *, manager: str = "pelops") -> Manifest:
        self.applied[address.resource, address.name] += 1
        return await super().apply(address, body, manager=manager)


@dataclass
class RunningKind:
    """A replica that runs the kind, within this process."""

    identity: str
    api: CountingApi
    members: Members
    kind: GreetingKind
    runtime: Runtime
    ahead_s: list[float]  # of its clock


@dataclass
class Scene:
    """A namespace with replicas, and what a user does there."""

    plane: ControlPlane
    resources: Resources
    book: Book
    stack: AsyncExitStack

    async def start(
        self,
        identity: str,
        *,
        api: Kind = GREETING,
        is_required: bool = True,
        has_others: bool = False,
    ) -> RunningKind:
        return await self.stack.enter_async_context(
            _running(self, identity, api=api, is_required=is_required, has_others=has_others)
        )

    async def apply(self, name: str, text: object, *, kind: Kind = GREETING) -> None:
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": {"text": text},
        }
        await asyncio.to_thread(self.resources.apply_raw, manifest)

    async def get(self, name: str, *, kind: str = GREETING.plural) -> Manifest:
        return await asyncio.to_thread(self.resources.get, kind, name) or {}

    async def ready(self, name: str, *, kind: str = GREETING.plural) -> Manifest:
        status = (await self.get(name, kind=kind)).get("status") or {}
        return next(iter(status.get("conditions") or ()), {})

    async def await_reason(self, name: str, reason: str, *, kind: str = GREETING.plural) -> None:
        async def found() -> bool:
            return (await self.ready(name, kind=kind)).get("reason") == reason

        await _until(found, f"{name} to be {reason}")

    async def kubectl(self, *arguments: str) -> str:
        where = ("-n", self.resources.namespace)
        answer = await asyncio.to_thread(self.plane.kubectl, *arguments, *where)
        return str(answer.stdout)

    async def events(self, name: str) -> list[str]:
        """The reasons of the Events about a greeting, the oldest first."""
        answer = await self.kubectl("get", "events.events.k8s.io", "-o", "json")
        found = [
            one
            for one in json.loads(answer)["items"]
            if (one["regarding"]["kind"], one["regarding"]["name"]) == (GREETING.kind, name)
        ]
        return [str(one["reason"]) for one in sorted(found, key=lambda one: str(one["eventTime"]))]


@asynccontextmanager
async def _running(
    scene: Scene, identity: str, *, api: Kind, is_required: bool, has_others: bool = False
) -> AsyncIterator[RunningKind]:
    namespace, kubeconfig = scene.resources.namespace, str(scene.plane.kubeconfig)
    flags = {"namespace": namespace, "member-namespace": namespace, "identity": identity}
    often = {"observe-interval": OBSERVE_S, "resync-interval": 3600 if is_required else 0.5}
    settings = parse_settings([f"--{key}={value}" for key, value in (flags | often).items()], {})
    loop_clock, ahead_s = asyncio.get_running_loop().time, [0.0]

    def clock() -> float:
        return loop_clock() + ahead_s[0]

    connected = await CountingApi.connect(kubeconfig)
    assert isinstance(connected, CountingApi)
    connected.applied = Counter()
    member_api = await KubeApi.connect(kubeconfig)
    members = Members(member_api, identity=identity, namespace=namespace)
    pool = ServerPool()
    services = Services(
        api=connected,
        cache=Cache(),
        members=members,
        connections=Connections(pool, Secrets(connected, clock)),
        settings=settings,
        clock=clock,
    )
    kind = GreetingKind(services, scene.book, api=api, is_required=is_required)
    others = build_kinds(services, cluster="") if has_others else ()
    runtime = Runtime(services, [*others, kind], run_operator)
    await runtime.prepare()
    await members.try_renew()
    tasks = [asyncio.create_task(loop) for loop in (*runtime.loops(), members.run())]
    try:
        yield RunningKind(identity, connected, members, kind, runtime, ahead_s)
        for task in tasks:
            assert not task.done() or task.exception() is None
    finally:
        await cancel_all(tasks)
        await members.leave()
        await pool.close()
        await connected.close()
        await member_api.close()


@pytest.fixture(scope="module")
def served(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane that knows greetings."""
    _define(plane, GREETING)
    yield plane
    for kind in (GREETING, LATE):
        name = build_definition(kind)["metadata"]["name"]
        plane.kubectl("delete", "crd", name, "--ignore-not-found", "--wait=false", check=False)


def _define(plane: ControlPlane, kind: Kind) -> None:
    definition = build_definition(kind)
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    name = f"crd/{definition['metadata']['name']}"
    plane.kubectl("wait", "--for=condition=Established", name, "--timeout=60s")


@pytest.fixture
async def scene(served: ControlPlane, namespace: str) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        yield Scene(served, Resources(served, namespace), Book(), stack)


async def _until(condition: Callable[[], Awaitable[bool] | bool], what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                met = condition()
                if met if isinstance(met, bool) else await met:
                    return
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise TimeoutError(f"waited for {what}") from error


async def _more_passes(kind: GreetingKind, name: tuple[str, str], count: int) -> None:
    before = kind.passes[name]
    await _until(lambda: kind.passes[name] >= before + count, f"{count} passes")


async def test_what_is_listed_and_what_is_watched_is_reconciled(scene: Scene) -> None:
    await scene.apply("listed", "hello")
    await scene.start("one")
    await scene.apply("watched", "good day")
    for name, text in (("listed", "hello"), ("watched", "good day")):
        await scene.await_reason(name, "Greeted")
        greeting = await scene.get(name)
        assert greeting["status"]["entry"] == text
        assert greeting["status"]["observedGeneration"] == greeting["metadata"]["generation"]
        assert (await scene.get(name, kind="configmaps"))["data"] == {"text": text}
    await scene.apply("watched", "good night")

    async def is_followed() -> bool:
        return bool((await scene.get("watched"))["status"].get("entry") == "good night")

    await _until(is_followed, "the change to be followed")


async def test_a_watched_object_of_another_kind_makes_its_greeting_due(scene: Scene) -> None:
    one = await scene.start("one")
    await scene.apply("first", "hello")
    await scene.apply("second", "hello")
    for name in ("first", "second"):
        await scene.await_reason(name, "Greeted")
    due: list[tuple[Kind, set[tuple[str, str]]]] = []
    one.kind.notice = lambda kind, names: due.append((kind, names))  # type: ignore[method-assign]
    await scene.kubectl("delete", "configmap", "first")

    async def is_back() -> bool:
        return bool(await scene.get("first", kind="configmaps"))

    await _until(is_back, "the ConfigMap to be made again")
    first = (scene.resources.namespace, "first")
    assert {found for _, names in due for found in names} == {first}
    assert CONFIG_MAP in {kind for kind, _ in due}
    await scene.kubectl("create", "configmap", "of-nobody")
    await _more_passes(one.kind, first, 2)
    assert {found for _, names in due for found in names} == {first}


async def test_a_settled_greeting_is_written_to_no_more(scene: Scene) -> None:
    one = await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Greeted")
    before, writes = await scene.get("orders"), Counter(one.api.applied)
    await _more_passes(one.kind, (scene.resources.namespace, "orders"), 10)
    assert one.api.applied == writes
    assert writes[f"{GREETING.plural}/status", "orders"] == 1
    after = await scene.get("orders")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_replicas_divide_greetings_by_rank_and_one_writes_each(scene: Scene) -> None:
    replicas = [await scene.start(identity) for identity in ("one", "two")]
    identities = [one.identity for one in replicas]
    for one in replicas:
        await _until(lambda one=one: one.members.standing.is_admitted, "admission")  # type: ignore[misc]
        await _until(lambda one=one: len(one.members.alive) == 2, "two members")  # type: ignore[misc]
    names = [f"greeting-{number}" for number in range(8)]
    for name in names:
        await scene.apply(name, "hello")
    for name in names:
        await scene.await_reason(name, "Greeted")
    wrong = []
    for name in names:
        key = replicas[0].kind.rank_key((scene.resources.namespace, name))
        for one in replicas:
            is_first = rank_of(one.identity, identities, key) == 0
            written = one.api.applied[f"{GREETING.plural}/status", name]
            wrong += [(one.identity, name, written)] if written != int(is_first) else []
    # A replica that is slow for more than a second is helped by the other one.
    assert len(wrong) <= 2, wrong
    total = sum((one.api.applied for one in replicas), Counter[tuple[str, str]]())
    settled = [total[f"{GREETING.plural}/status", name] for name in names]
    assert all(1 <= count <= 2 for count in settled), settled


async def test_the_other_replica_takes_over_when_one_has_left(scene: Scene) -> None:
    async with _running(scene, "one", api=GREETING, is_required=True):
        two = await scene.start("two")
        await scene.apply("orders", "hello")
        await scene.await_reason("orders", "Greeted")
    await scene.apply("orders", "good night")

    async def is_followed() -> bool:
        return bool((await scene.get("orders"))["status"].get("entry") == "good night")

    await _until(is_followed, "the change to be followed")
    assert two.api.applied[f"{GREETING.plural}/status", "orders"] >= 1


async def test_what_happens_is_reported_by_events_of_its_kind(scene: Scene) -> None:
    await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Greeted")

    async def are_there() -> bool:
        return {"Written", "Greeted"} <= set(await scene.events("orders"))

    await _until(are_there, "the Events")
    reasons = await scene.events("orders")
    assert reasons.index("Written") < reasons.index("Greeted")


async def test_a_failed_action_is_shown_and_repeated_until_it_works(scene: Scene) -> None:
    scene.book.is_away = True
    await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Failed")
    assert "the book is away" in (await scene.ready("orders"))["message"]
    scene.book.is_away = False
    await scene.await_reason("orders", "Greeted")


@pytest.mark.parametrize("fault", [OUTAGE, MISTAKE], ids=["an outage", "a mistake"])
async def test_a_pass_that_fails_or_breaks_is_repeated(scene: Scene, fault: Exception) -> None:
    one = await scene.start("one")
    one.kind.faults.append(fault)
    await scene.apply("orders", "hello")
    await _until(lambda: not one.kind.faults, "the fault")
    await scene.await_reason("orders", "Greeted")


async def test_a_spec_that_cannot_be_read_is_refused_in_its_status(scene: Scene) -> None:
    one = await scene.start("one")
    one.kind.parse = _refuse  # type: ignore[method-assign]
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "InvalidSpec")
    assert one.kind.passes == {}


async def test_a_deleted_greeting_goes_when_it_is_cleaned_up(scene: Scene) -> None:
    await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Greeted")
    name = (scene.resources.namespace, "orders")
    scene.book.is_away = True
    await scene.kubectl("delete", GREETING.plural, "orders", "--wait=false")
    assert (await scene.get("orders"))["metadata"]["deletionTimestamp"]
    assert name in scene.book.entries
    scene.book.is_away = False

    async def is_gone() -> bool:
        return not await scene.get("orders")

    await _until(is_gone, "the greeting to go")
    assert name not in scene.book.entries
    assert "Removed" in await scene.events("orders")


async def test_a_greeting_that_others_still_hold_is_cleaned_up_once(scene: Scene) -> None:
    one = await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Greeted")
    name = (scene.resources.namespace, "orders")
    held = [{"op": "add", "path": "/metadata/finalizers/-", "value": HELD}]
    await scene.kubectl("patch", GREETING.plural, "orders", "--type=json", "-p", json.dumps(held))
    await scene.kubectl("delete", GREETING.plural, "orders", "--wait=false")

    async def is_let_go() -> bool:
        return bool((await scene.get("orders"))["metadata"]["finalizers"] == [HELD])

    await _until(is_let_go, "the finalizer to go")
    begun: Counter[tuple[str, str]] = Counter()

    async def count(released: tuple[str, str], _: Manifest | None) -> None:
        begun[released] += 1

    one.kind.release = count  # type: ignore[method-assign, assignment]
    scene.book.write(name, "of another")
    for label in ("first", "second"):  # the pass that the first causes has ended at the second
        before = begun[name]
        await scene.kubectl("label", GREETING.plural, "orders", "--overwrite", f"look={label}")
        await _until(lambda before=before: begun[name] > before, "a pass")  # type: ignore[misc]
    assert scene.book.entries[name] == "of another"
    free = {"metadata": {"finalizers": None}}
    await scene.kubectl("patch", GREETING.plural, "orders", "--type=merge", "-p", json.dumps(free))


async def test_a_deleted_greeting_that_cannot_be_read_goes_without_a_cleanup(scene: Scene) -> None:
    one = await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Greeted")
    one.kind.parse = _refuse  # type: ignore[method-assign]
    await scene.kubectl("delete", GREETING.plural, "orders", "--timeout=60s")
    assert scene.book.entries == {(scene.resources.namespace, "orders"): "hello"}


async def test_it_runs_beside_the_kinds_of_pelops(scene: Scene) -> None:
    one = await scene.start("one", has_others=True)
    await scene.apply("orders", "hello")
    await asyncio.to_thread(scene.resources.apply, "orders", UNREACHABLE)
    await scene.await_reason("orders", "Greeted")
    await scene.await_reason("orders", "RedisUnreachable", kind=STREAM_CONSUMER_GROUP.plural)
    assert one.runtime.problem() == ""


async def test_readiness_follows_the_watch(scene: Scene) -> None:
    one = await scene.start("one")
    await scene.apply("orders", "hello")
    await scene.await_reason("orders", "Greeted")
    replica = Replica(parse_settings([], {}), asyncio.Event())
    replica.begin(one.runtime)
    assert replica.why_not_ready() == ""
    one.ahead_s[0] += SILENCE_LIMIT_S + 1
    problem = replica.why_not_ready()
    for plural in (GREETING.plural, CONFIG_MAP.plural):
        assert f"the watch of {plural}" in problem
    await scene.apply("orders", "good night")
    await _until(lambda: GREETING.plural not in replica.why_not_ready(), "a sign of life")


async def test_a_required_kind_without_its_definition_keeps_the_operator_from_starting(
    scene: Scene,
) -> None:
    with pytest.raises(KubernetesUnavailable, match="does not serve strangers: install the CRDs"):
        await scene.start("one", api=build_kind("strangers"))


async def test_a_kind_that_is_not_required_follows_once_its_definition_is_there(
    scene: Scene,
) -> None:
    one = await scene.start("one", api=LATE, is_required=False)
    assert one.kind.served == [False]
    assert one.runtime.problem() == ""
    await asyncio.to_thread(_define, scene.plane, LATE)
    await _until(lambda: one.kind.served[-1], "the kind to be served")
    await scene.apply("orders", "hello", kind=LATE)
    await scene.await_reason("orders", "Greeted", kind=LATE.plural)


def _metadata(manifest: Manifest) -> ObjectMeta:
    return ObjectMeta.model_validate(manifest["metadata"])


def _refuse(manifest: Manifest) -> NoReturn:
    raise InvalidSpec(f"nobody can read {manifest['metadata']['name']}")
