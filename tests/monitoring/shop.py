"""Record the metrics of a shop: `python -m tests.monitoring.shop` writes `shop.txt.gz`.

A real operator with two replicas, workers on the SDK and audits on Spark run for some minutes on a
local cluster. Entries arrive in waves, workers are killed, Redis hangs, a replica of the operator
ends, and a stream is trimmed before its entries were delivered. All metrics are scraped every few
seconds, with the labels that the monitors of manifests/monitoring give them. Nothing is made up.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis
import yaml

from local_cluster.cluster import Cluster, ClusterOptions
from local_cluster.interrupts import raise_first_interrupt
from local_cluster.java import require_java
from local_cluster.operators import ROOT, Operators, install
from local_cluster.processes import wait_until
from local_cluster.progress import report
from tests.monitoring.recording import Recording, read_scrape

RECORDING: Final = Path(__file__).with_name("shop.txt.gz")
INTERVAL_S: Final = 5
LASTS_S: Final = 450
SCRAPE_S: Final = 4.0
PORT: Final = 8080
OPERATOR: Final = {"job": "pelops-operator", "namespace": "pelops-system"}
AUDIT: Final = "daily"
_ENVIRONMENT: Final = {
    **{"PELOPS_OBSERVE_INTERVAL": "2", "PELOPS_STATUS_INTERVAL": "2", "PELOPS_CLOCK_SKEW": "0"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """One group of the shop."""

    namespace: str
    name: str
    stream: str
    handler_ms: int
    rate: Callable[[float], float]  # entries per second, by the seconds since the beginning
    natures: Mapping[str, float]  # shares of the entries that are not ok
    spec: Mapping[str, Any]

    def render(self, url: str) -> dict[str, Any]:
        """Return the resource."""
        container = {
            "name": "worker",
            "image": "shop/worker",
            "command": [sys.executable, "-m", "tests.monitoring.shop_worker"],
            "env": [
                {"name": "PYTHONPATH", "value": f"{ROOT / 'operator'}:{ROOT}"},
                {"name": "SHOP_HANDLER_MS", "value": str(self.handler_ms)},
                {"name": "PELOPS_CONCURRENCY", "value": "4"},
                {"name": "PELOPS_HEALTH_PORT", "value": str(PORT)},
                {
                    "name": "PELOPS_HEALTH_HOST",
                    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                },
            ],
        }
        template = {"spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}
        spec = {"redis": {"url": url}, "stream": self.stream, "template": template, **self.spec}
        return {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamConsumerGroup",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {key: value for key, value in spec.items() if value is not None},
        }


def _recovery(**more: Any) -> dict[str, Any]:
    return {"processingTimeoutSeconds": 30, "scanPeriodSeconds": 5, "maxRetries": 1, **more}


def _wave(second: float) -> float:
    if second < 60 or 180 < second < 290:
        return 25
    return 150 if second < 180 else 0 if second < 350 else 120


SHOPS: Final = (
    Shop(
        namespace="shop",
        name="order-processing",
        stream="orders:events",
        handler_ms=80,
        rate=_wave,
        natures={"failing-once": 0.004, "crash": 0.0002},
        spec={
            "scaling": {
                **{"minReplicas": 0, "maxReplicas": 4, "backlogPerReplica": 60},
                "cooldownSeconds": 10,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}},
            },
            "recovery": _recovery(),
            "deadLetter": {"retentionSeconds": 3600},
        },
    ),
    Shop(
        namespace="shop",
        name="mailing",
        stream="mails",
        handler_ms=30,
        rate=lambda _: 15,
        natures={"rejected": 0.01, "failing-once": 0.01, "failing": 0.005},
        spec={"replicas": 2, "recovery": _recovery(), "deadLetter": {"retentionSeconds": 7200}},
    ),
    Shop(
        namespace="shop",
        name="thumbnails",
        stream="uploads",
        handler_ms=200,
        rate=lambda _: 8,
        natures={"crash": 0.002},
        spec={"replicas": 2, "recovery": _recovery(strategy="RetryStream")},
    ),
    Shop(
        namespace="shop",
        name="invoices",
        stream="invoices",
        handler_ms=250,
        rate=lambda second: 24,
        natures={},
        spec={
            "scaling": {"minReplicas": 1, "maxReplicas": 1, "backlogPerReplica": 100},
            "recovery": _recovery(),
        },
    ),
    Shop(
        namespace="billing",
        name="payments",
        stream="payments",
        handler_ms=120,
        rate=lambda _: 10,
        natures={"failing-once": 0.01},
        spec={"replicas": 2, "recovery": _recovery(strategy="Release")},
    ),
    Shop(
        namespace="billing",
        name="refunds",
        stream="refunds",
        handler_ms=400,
        rate=lambda _: 5,
        natures={},
        spec={"replicas": 1, "recovery": _recovery()},
    ),
    Shop(
        namespace="billing",
        name="statements",
        stream="statements",
        handler_ms=0,
        rate=lambda _: 0.5,
        natures={},
        # This Deployment does not exist: the resource is not ready, and its lag grows.
        spec={"template": None, "targetRef": {"name": "statement-workers"}, "replicas": 1},
    ),
)


def main() -> None:
    """Run it all and write the recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=LASTS_S, help="default: %(default)s")
    parser.add_argument("--into", type=Path, default=RECORDING, help="default: %(default)s")
    given = parser.parse_args()
    raise_first_interrupt()
    with tempfile.TemporaryDirectory(prefix="pelops-shop-") as folder:
        scratch = Path(folder)
        cluster = Cluster.up(scratch / "cluster", ClusterOptions())
        try:
            install(cluster.plane)
            with Operators(cluster.plane, scratch, environment=_ENVIRONMENT) as operators:
                recording = Run(cluster, operators).record(given.seconds)
        finally:
            cluster.down()
    recording.write(given.into)
    report(f"{given.into}: {given.into.stat().st_size:,} bytes, {len(recording.series):,} series")


class Run:
    """One run of the shop."""

    def __init__(self, cluster: Cluster, operators: Operators) -> None:
        self._cluster = cluster
        self._plane = cluster.plane
        self._operators = operators
        self._is_over = threading.Event()

    def record(self, seconds: int) -> Recording:
        """Let it run for so long, and return what was scraped."""
        self._operators.start(2)
        self._declare()
        recording = Recording(start=int(time.time()) + 1, interval=INTERVAL_S)
        threads = [
            threading.Thread(target=self._produce, daemon=True),
            threading.Thread(target=self._disturb, daemon=True),
        ]
        for thread in threads:
            thread.start()
        with ThreadPoolExecutor(16) as pool:
            for number in range(seconds // INTERVAL_S):
                time.sleep(max(0.0, recording.start + number * INTERVAL_S - time.time()))
                recording.add(self._scrape(pool))
        self._is_over.set()
        for thread in threads:
            thread.join()
        self._report_audits()
        return recording

    def _report_audits(self) -> None:
        """Print what became of the jobs, for the person who records."""
        where = ("-n", "shop")
        report(self._plane.kubectl("get", "jobs,pods,saudit,scg", *where, check=False).stdout)
        for job in ("first", "second", "third"):
            log = ("logs", f"job/{job}", *where, "--tail=8", "--pod-running-timeout=1s")
            answer = self._plane.kubectl(*log, check=False)
            report(f"audit {job}:\n{answer.stdout}{answer.stderr}")

    def _declare(self) -> None:
        for namespace in sorted({shop.namespace for shop in SHOPS}):
            self._plane.kubectl("create", "namespace", namespace)
        manifests = [shop.render(self._cluster.redis_url) for shop in SHOPS]
        self._apply(*manifests, _an_audit(self._cluster.state / "archive"))

    def _apply(self, *manifests: Mapping[str, Any]) -> None:
        text = yaml.safe_dump_all([dict(one) for one in manifests])
        self._plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)

    # What arrives

    def _produce(self) -> None:
        server: Any = redis.Redis.from_url(self._cluster.redis_url, socket_timeout=5)
        rng = random.Random(7)
        owed = dict.fromkeys(SHOPS_BY_STREAM, 0.0)
        began = before = time.monotonic()
        while not self._is_over.wait(0.5):
            now = time.monotonic()
            pipeline = server.pipeline(transaction=False)
            for stream, shop in SHOPS_BY_STREAM.items():
                owed[stream] += shop.rate(now - began) * min(now - before, 2.0)
                for _ in range(int(owed[stream])):
                    owed[stream] -= 1
                    pipeline.xadd(stream, {"nature": _choose_nature(shop, rng)})
            before = now
            try:
                pipeline.execute()
            except redis.RedisError:
                continue  # Redis hangs: these entries were perhaps not added

    # What happens

    def _disturb(self) -> None:
        began = time.monotonic()
        for second, act in self._plan():
            if self._is_over.wait(max(0.0, began + second - time.monotonic())):
                return
            try:
                act()
            except Exception as error:
                report(f"at {second} s: {error}")

    def _plan(self) -> Iterator[tuple[int, Callable[[], object]]]:
        """What is done, and after how many seconds."""
        crash, delete = self._crash_worker, self._delete_worker
        invoices, statements = (
            next(shop for shop in SHOPS if shop.name == name) for name in ("invoices", "statements")
        )
        yield 45, functools.partial(crash, "shop", "thumbnails")
        yield 60, functools.partial(self._audit_now, "first")
        yield 90, functools.partial(delete, "shop", "order-processing")
        yield 100, functools.partial(crash, "billing", "payments")
        yield 105, functools.partial(self._begin_dry_run, "billing", "refunds")
        yield 115, functools.partial(delete, "billing", "refunds")
        yield 130, functools.partial(delete, "shop", "order-processing")
        yield 150, functools.partial(delete, "shop", "mailing")
        yield 165, functools.partial(crash, "shop", "thumbnails")
        yield 190, functools.partial(delete, "billing", "payments")
        yield 200, self._hang_redis
        yield 230, functools.partial(delete, "billing", "refunds")
        yield 240, functools.partial(delete, "shop", "thumbnails")
        yield 260, self._operators.processes[1].kill
        yield 275, functools.partial(self._trim, invoices.stream, 50)
        yield 280, functools.partial(self._trim, statements.stream, 90)
        yield 285, functools.partial(self._audit_now, "second")
        yield 300, self._start_second_replica
        yield 320, functools.partial(crash, "billing", "payments")
        yield 340, functools.partial(delete, "shop", "thumbnails")
        yield 370, functools.partial(self._audit_now, "third")

    def _workers(self, namespace: str, name: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self._list_pods()
            if pod["metadata"]["namespace"] == namespace
            and pod["metadata"]["name"].startswith(f"{name}-workers-")
            and _process_of(pod)
        ]

    def _crash_worker(self, namespace: str, name: str) -> None:
        """End the process of a worker; its pod starts another one."""
        process = _process_of(self._workers(namespace, name)[0])
        if process:
            os.kill(process, signal.SIGKILL)

    def _delete_worker(self, namespace: str, name: str) -> None:
        """End a worker with its pod, without a grace period."""
        pod = self._workers(namespace, name)[0]["metadata"]["name"]
        self._plane.kubectl("delete", "pod", pod, "-n", namespace, "--grace-period=0", "--force")

    def _begin_dry_run(self, namespace: str, name: str) -> None:
        change = json.dumps({"spec": {"recovery": {"dryRun": True}}})
        self._plane.kubectl("patch", "scg", name, "-n", namespace, "--type=merge", "-p", change)

    def _hang_redis(self) -> None:
        (server,) = self._cluster.redis.servers
        server.pause()
        self._is_over.wait(20)
        server.resume()

    def _trim(self, stream: str, left: int) -> None:
        """Trim entries that were not delivered."""
        self._cluster.redis.cli("XTRIM", stream, "MAXLEN", "=", str(left))

    def _start_second_replica(self) -> None:
        self._operators.start(1, wait=False)

    def _audit_now(self, job: str) -> None:
        source = f"--from=cronjob/{AUDIT}-audit"
        wait_until(
            lambda: self._plane.kubectl("get", "cronjobs", "-n", "shop", "-o", "name").stdout,
            timeout_s=60,
            what="the CronJob of the audit",
        )
        self._plane.kubectl("create", "job", job, source, "-n", "shop")

    # What is scraped

    def _scrape(self, pool: ThreadPoolExecutor) -> dict[str, float]:
        targets = [*self._operator_targets(), *self._worker_targets()]
        pages = pool.map(lambda target: _fetch(target[0]), targets)
        scraped: dict[str, float] = {}
        for (_, labels), page in zip(targets, pages, strict=True):
            if page is not None:
                scraped |= read_scrape(page, **labels)
        return scraped

    def _operator_targets(self) -> Iterator[tuple[str, dict[str, str]]]:
        for number, port in enumerate(self._operators.ports):
            pod = f"pelops-operator-{number}"
            labels = {**OPERATOR, "pod": pod, "instance": f"{pod}:8080"}
            yield f"http://127.0.0.1:{port}/metrics", labels

    def _worker_targets(self) -> Iterator[tuple[str, dict[str, str]]]:
        for pod in self._list_pods():
            metadata, address = pod["metadata"], pod["status"].get("podIP")
            if address and _process_of(pod) and "-workers-" in metadata["name"]:
                labels = {"namespace": metadata["namespace"], "pod": metadata["name"]}
                labels |= {
                    "job": "pelops-system/pelops-workers",
                    "instance": f"{metadata['name']}:{PORT}",
                }
                yield f"http://{address}:{PORT}/metrics", labels

    def _list_pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._plane.get("/api/v1/pods"))["items"]
        return found


SHOPS_BY_STREAM: Final = {shop.stream: shop for shop in SHOPS}


def _an_audit(archive: Path) -> dict[str, Any]:
    java = {"name": "JAVA_HOME", "value": str(require_java())}
    options = {"name": "JDK_JAVA_OPTIONS", "value": "-XX:TieredStopAtLevel=1"}
    memory = {"memory": "1Gi"}
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamAudit",
        "metadata": {"name": AUDIT, "namespace": "shop"},
        "spec": {
            "groups": ["order-processing", "mailing", "thumbnails", "invoices"],
            "schedule": "0 0 29 2 *",  # run by hand
            "windowSeconds": 60,
            "suspend": True,
            "archive": {"path": str(archive)},
            "resources": {"requests": memory, "limits": memory},
            "template": {"spec": {"containers": [{"name": "audit", "env": [java, options]}]}},
        },
    }


def _choose_nature(shop: Shop, rng: random.Random) -> str:
    left = rng.random()
    for nature, share in shop.natures.items():
        left -= share
        if left < 0:
            return nature
    return "ok"


def _process_of(pod: Mapping[str, Any]) -> int | None:
    """Return the process ID of the running worker of a pod."""
    statuses: Iterable[Mapping[str, Any]] = pod["status"].get("containerStatuses") or ()
    running = [one for one in statuses if "running" in one.get("state", {})]
    if not running:
        return None
    return int(running[0]["containerID"].removeprefix("process://").split("-")[0])


def _fetch(url: str) -> str | None:
    """Return a page; None if the process does not answer in time."""
    try:
        with urllib.request.urlopen(url, timeout=SCRAPE_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


if __name__ == "__main__":
    main()
