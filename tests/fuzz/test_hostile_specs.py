"""Resources that say anything: each gets a status, and none ends or stalls the operator.

A real operator on a real API server is given fuzzed specs of both kinds. They arrive in two ways:
past the schema of the shipped CRDs, which refuses most nonsense, and past a schema that takes
everything, as after a change of version. `FUZZ_SPECS` and `FUZZ_SEED` repeat what was found; both
are printed. `python -m tests.fuzz specs` runs all in full.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

import pytest
import yaml

from local_cluster.operators import RIGHTS, ROOT
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.api_objects import create_namespace, delete_all
from tests.cluster_fixtures import FAST
from tests.fuzz.specs import PLURALS, Object, Specs
from tests.fuzz.tally import SEED, Tally, numbers_of
from tests.operators import Operators, Resources, is_ready, metrics

FUZZED, HEALTHY = "fuzzed", "healthy"
BATCH: Final = 250
SOON_S: Final = 20.0  # for a healthy resource beside a batch; 2 to 3 s where nothing else is
ANSWERED_S: Final = 120.0  # until each resource of a batch has a status, and until each is deleted
MOST_BYTES: Final = 1024 * 1024  # etcd takes half as much again, and the status has to fit too
API: Final = "/apis/pelops.dev/v1alpha1"
_MADE: Final = (  # what the operator makes for them
    "/apis/apps/v1/namespaces/fuzzed/deployments",
    "/apis/batch/v1/namespaces/fuzzed/cronjobs",
    "/apis/policy/v1/namespaces/fuzzed/poddisruptionbudgets",
)


def _install(plane: ControlPlane, *, takes_all: bool) -> None:
    """The CRDs and the operator's rights, without what checks the authors of resources."""
    for plural in PLURALS.values():
        crd = yaml.safe_load((ROOT / "crds" / f"{plural}.pelops.dev.yaml").read_text())
        if takes_all:
            _open(crd)
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(crd))
    for name in RIGHTS:
        plane.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / f"{name}.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def _open(crd: Object) -> None:
    """Take any spec, of whatever type."""
    (version,) = crd["spec"]["versions"]
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": anything, "status": {"type": "object", **anything}},
    }
    for field in ("selectableFields", "additionalPrinterColumns"):
        version.pop(field, None)
    version["subresources"] = {"status": {}}


@pytest.fixture(scope="module", params=[pytest.param("shipped", marks=pytest.mark.full), "open"])
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """An API server with the shipped schema, or with one that takes everything."""
    state = tmp_path_factory.mktemp("specs") / "control-plane"

    def prepare(plane: ControlPlane) -> None:
        _install(plane, takes_all=request.param == "open")

    plane = ControlPlane.start(state, controllers=False, prepare=prepare)
    try:
        for namespace in (FUZZED, HEALTHY):
            create_namespace(plane, namespace)
        yield plane
    finally:
        plane.stop()


@pytest.mark.parametrize("specs", numbers_of("FUZZ_SPECS", 40, 5_000))
def test_no_spec_breaks_the_operator(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    redis_86: StandaloneServers,
    tmp_path: Path,
    tally: Tally,
    specs: int,
) -> None:
    is_open = request.node.callspec.params["plane"] == "open"
    source = Specs(SEED, redis_86.url)
    ends: Counter[str] = Counter()
    slowest_s = 0.0
    print(f"FUZZ_SEED={SEED}")
    with Operators(plane, tmp_path, environment=FAST) as operators:
        (process,) = operators.start(1)
        (port,) = operators.ports
        for first in range(0, specs, BATCH):
            redis_86.flush()
            numbers = range(first, min(first + BATCH, specs))
            manifests = [source.manifest(f"f-{n}", is_wild=is_open) for n in numbers]
            with ThreadPoolExecutor(4) as pool:
                ends.update(pool.map(lambda one: create(plane, one), manifests))
            began = time.monotonic()
            await_healthy(plane, redis_86, f"beside-{specs}-{first}")
            slowest_s = max(slowest_s, time.monotonic() - began)
            try:
                ends.update(await_answers(plane))
            except TimeoutError as error:
                raise TimeoutError(f"{error}\n{process.tail(40)}") from error
            empty(plane)
            assert process.is_alive(), process.tail(60)
            wait_until(partial(is_ready, port), timeout_s=60, what="the operator to be ready")
            mistakes = find_mistakes(metrics(port), process.log.read_text())
            assert not mistakes, mistakes
    print(f"another resource was ready after {slowest_s:.1f} s at most")
    tally("specs", specs, "open schema" if is_open else "shipped schema", ends)
    assert ends["created"] > specs / 5


def create(plane: ControlPlane, manifest: Object) -> str:
    """Whether the API server took it."""
    path = f"{API}/namespaces/{FUZZED}/{PLURALS[manifest['kind']]}"
    if len(json.dumps(manifest)) > MOST_BYTES:
        return "too large"
    try:
        plane.request("POST", path, manifest, timeout_s=60)
    except HTTPError as error:
        said = error.read()
        is_large = b"too large" in said or b"larger than max" in said  # for etcd, which is a 500
        assert error.code in {400, 413, 422} or is_large, said
        return "refused"
    return "created"


def await_healthy(plane: ControlPlane, redis: StandaloneServers, name: str) -> None:
    """Declare a resource of another namespace, and wait for its group."""
    healthy = Resources(plane, HEALTHY)
    manifest = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": name},
        "spec": {"redis": {"url": redis.url}, "stream": name},
    }
    path = f"{API}/namespaces/{HEALTHY}/streamconsumergroups"
    plane.request("POST", path, manifest, timeout_s=60)
    healthy.await_condition(name, reason="Ready", timeout_s=SOON_S)


def items(plane: ControlPlane) -> list[Object]:
    """What is left of the batch."""
    paths = (f"{API}/namespaces/{FUZZED}/{plural}" for plural in PLURALS.values())
    return [one for path in paths for one in json.loads(plane.get(path))["items"]]


def await_answers(plane: ControlPlane) -> Counter[str]:
    """Wait until each resource has a status; their reasons."""

    def reasons() -> list[str] | None:
        found, waiting = [], []
        for one in items(plane):
            conditions = (one.get("status") or {}).get("conditions") or []
            ready = [each["reason"] for each in conditions if each["type"] == "Ready"]
            found += ready
            if not ready:
                waiting.append(one)
        silent[:] = waiting
        return None if waiting else found

    silent: list[Object] = []
    try:
        return Counter(wait_until(reasons, timeout_s=ANSWERED_S, what="a status of each"))
    except TimeoutError as error:
        shown = json.dumps(silent[0])[:3000]
        raise TimeoutError(f"FUZZ_SEED={SEED}: {len(silent)} without a status: {shown}") from error


def empty(plane: ControlPlane) -> None:
    """Delete the batch, wait until no resource is left, then delete what was made for it."""
    for plural in PLURALS.values():
        delete_all(plane, f"{API}/namespaces/{FUZZED}/{plural}")
    try:
        wait_until(lambda: not items(plane), timeout_s=ANSWERED_S, what="all to be gone")
    except TimeoutError as error:
        shown = json.dumps(items(plane))[:3000]
        raise TimeoutError(f"FUZZ_SEED={SEED}: not gone: {shown}") from error
    for path in _MADE:
        delete_all(plane, path)


def find_mistakes(text: str, log: str) -> list[str]:
    """What the operator itself counts or logs as unexpected."""
    pattern = (
        r"^(?:pelops_work_item_failures_total\{[^}]*|pelops_loop_restarts_total\{[^}]*)\} [1-9].*$"
    )
    counted = re.findall(pattern, text, re.MULTILINE)
    at = log.find("Traceback")
    return counted + ([log[max(0, at - 500) : at + 6000]] if at >= 0 else [])
