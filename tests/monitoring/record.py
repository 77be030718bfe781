"""Records the metrics of real operators and workers while faults are injected.

    python -m tests.monitoring.record            # all, which takes about 15 minutes
    python -m tests.monitoring.record faults     # one of SCENARIOS, or workers

What is real: the API server, the controllers, a node with worker pods, Redis, two replicas of the
operator with the rights of manifests/base, and workers on the SDK. Each fault is injected as it
would occur. What is simulated:

- Time. Periods and timeouts of the resources are a thirtieth of the defaults (a scan every 2 s, a
  processing timeout of 10 s), and metrics are scraped once a second. `playback.py` plays a
  recording 30 times slower: then they have the defaults, and a scrape is 30 s after the last one.
- A dead letter that is 12 days old has the ID of such a time.
- The summaries of audits are written by this program, as the job of an audit would.
- In `unscanned`, the scans of the operator are replaced by a function that never returns: no fault
  from outside ends only them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local_cluster.nodes import start_nodes
from local_cluster.plane import ControlPlane
from local_cluster.processes import free_port
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.redis_streams.audit.records import record_audit
from tests.api_objects import create_namespace
from tests.audits import a_summary
from tests.e2e.auditing import an_audit
from tests.e2e.declaring import a_letter
from tests.e2e.recovering import Group
from tests.integration.redis_adapter import connected, endpoint_of
from tests.monitoring.recording import Recording
from tests.monitoring.rules import ROOT, list_metrics
from tests.monitoring.scraping import Scraper
from tests.operators import Operators, Resources, install
from tests.worker_process import WorkerProcesses

FOLDER: Final = Path(__file__).parent
SHOP: Final = "shop"
# A thirtieth of the defaults.
RECOVERY: Final = {"scanPeriodSeconds": 2, "processingTimeoutSeconds": 10}
SPECIAL: Final[Mapping[str, Mapping[str, int]]] = {
    "poison": {"maxRetries": 0},
    "dropped": {"processingTimeoutSeconds": 300},
}
INTERVALS: Final = {
    "PELOPS_OBSERVE_INTERVAL": "0.5",
    "PELOPS_STATUS_INTERVAL": "0.5",
    "PELOPS_RESYNC_INTERVAL": "15",
}
ROLE: Final = "pelops-operator-core"
STATUS: Final = "streamconsumergroups/status"
DAY_MS: Final = 86_400_000
HEALTHY_S: Final = 130.0  # more than an hour, played slowly
WORKER: Final = """
import asyncio
@worker.handler
async def handle(entry):
    await asyncio.sleep(600 if "slow" in entry.text else 0.01)
    if "bad" in entry.text:
        raise ValueError("a handler that fails")
worker.run()
"""
POD_WORKER: Final = f"""
from pelops.worker import Worker
worker = Worker.from_env()
{WORKER}
"""
# Loaded by Python at its start: see above.
NO_SCANS: Final = """
import asyncio
from pelops.controller.recovery.scan_loop import ScanLoop
async def run(self):
    await asyncio.Event().wait()
ScanLoop.run = run
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Redis, a scraper, and workers."""

    directory: Path
    redis: StandaloneServers
    scraper: Scraper
    ends: ExitStack  # what is to be ended

    def start_worker(self, name: str, *, redis: StandaloneServers | None = None) -> WorkerProcesses:
        """Start an SDK worker on a stream of its own, and scrape it."""
        url, port = (redis or self.redis).url, free_port()
        workers = WorkerProcesses(url, f"{name}:jobs", self.directory, processing_timeout_ms=10_000)
        self.ends.callback(workers.close)
        workers.start(name, WORKER, PELOPS_HEALTH_PORT=str(port), PELOPS_HEALTH_HOST="127.0.0.1")
        self.scraper.follow(port, namespace=SHOP, pod=name, job="pelops-workers")
        return workers

    def repeat(self, act: Callable[[int], object], every_s: float) -> None:
        """Do this again and again, in the background, until the recording ends."""
        end = threading.Event()

        def run() -> None:
            for number in itertools.count():
                if end.wait(every_s):
                    return
                act(number)

        thread = threading.Thread(target=run)
        thread.start()
        self.ends.callback(thread.join)
        self.ends.callback(end.set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Bench):
    """The same with a cluster, a namespace, and an operator."""

    plane: ControlPlane
    operators: Operators
    resources: Resources

    def group(self, name: str, *, redis: StandaloneServers | None = None) -> Group:
        """A group of its own stream that is yet to be declared."""
        return Group(self.resources, redis or self.redis, f"{name}:events", name=name, group=name)

    def start_operators(self, paths: str = "") -> None:
        """Start two replicas, and scrape them. `paths` are other ones for Python's modules."""
        environment = {"PYTHONPATH": paths} if paths else {}
        self.operators.start(2, kubeconfig=None, wait=True, **environment)
        for number, port in enumerate(self.operators.ports):
            self.scraper.follow(port, job="pelops-operator", instance=f"operator-{number}")

    def audit(self, name: str, group: Group) -> str:
        """Declare an audit of a group, and wait until it is scheduled: its name in records."""
        manifest = {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamAudit",
            "metadata": {"name": name},
            "spec": an_audit(group.name),
        }
        self.resources.apply_raw(manifest)
        flags = ("-n", SHOP, "--timeout=60s")
        self.plane.kubectl("wait", "--for=condition=Ready", f"saudit/{name}", *flags)
        return f"{SHOP}/{name}"

    def record_window(self, audit: str, group: Group, **counts: Any) -> None:
        """Write what the job of an audit would write at its end."""
        summary = a_summary(stream=group.stream, group=group.name, **counts)

        async def write() -> None:
            async with connected(endpoint_of(self.redis)) as server:
                await record_audit(server, group.keys, audit, summary, archived=None)

        asyncio.run(write())


@contextmanager
def set_up_bench() -> Iterator[Bench]:
    """A bench without workers."""
    with tempfile.TemporaryDirectory(prefix="pelops-record-") as folder, ExitStack() as ends:
        yield Bench(
            directory=Path(folder),
            redis=ends.enter_context(start_standalone("8.6")),
            scraper=ends.enter_context(Scraper(list_metrics())),
            ends=ends,
        )


@contextmanager
def set_up_stage() -> Iterator[Stage]:
    """A stage with a node; the operator is yet to be started."""
    with set_up_bench() as bench:
        directory = bench.directory
        plane = ControlPlane.start(directory / "plane", prepare=install)
        bench.ends.callback(plane.stop)
        (directory / "nodes").mkdir()
        for node in start_nodes(plane, 1, directory / "nodes"):
            bench.ends.callback(node.stop)
        create_namespace(plane, SHOP)
        operators = Operators(plane, directory, environment=INTERVALS)
        yield Stage(
            directory=directory,
            redis=bench.redis,
            scraper=bench.scraper,
            ends=bench.ends,
            plane=plane,
            operators=bench.ends.enter_context(operators),
            resources=Resources(plane, SHOP),
        )


def template(script: str) -> dict[str, Any]:
    """A pod template whose worker runs this script."""
    path = {"name": "PYTHONPATH", "value": f"{ROOT / 'operator'}"}
    container = {
        "name": "worker",
        "image": "local/worker",
        "command": [sys.executable, "-c", script],
        "env": [path],
    }
    return {"spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}


def process_all(group: Group, added: int = 1) -> None:
    """Add entries, and have a worker process what there is."""
    group.add(added)
    group.acknowledge(entry_id for entry_id, _ in group.read("reader", 100))


def record_healthy(stage: Stage) -> None:
    """An hour without a fault: entries arrive, workers scale, and a pod is deleted."""
    stage.start_operators()
    group, worker = stage.group("orders"), stage.start_worker("healthy")
    scaling = {"minReplicas": 1, "maxReplicas": 3, "backlogPerReplica": 50}
    group.apply(recovery=RECOVERY, template=template(POD_WORKER), scaling=scaling, replicas=None)
    group.await_pods(1)
    stage.record_window(stage.audit("nightly", group), group)
    stage.repeat(lambda _: (group.add(10), worker.add(10)), every_s=1.0)
    stage.scraper.begin("healthy")
    stage.scraper.hold(HEALTHY_S / 2)
    group.delete_pod(group.pods()[0])
    group.add(120)  # calls for more workers
    stage.scraper.hold(HEALTHY_S / 2)


def declare_groups(stage: Stage, broken: StandaloneServers) -> dict[str, Group]:
    """A ready group for each fault, and one without; `broken` is the Redis that will end."""
    names = (
        *("healthy", "stuck", "at-maximum", "undelivered", "poison", "rejected", "expiring"),
        *("trimmed", "dropped", "went-back", "audited", "unaudited"),
    )
    groups = {name: stage.group(name) for name in names}
    groups["unreachable"] = stage.group("unreachable", redis=broken)
    for name, group in groups.items():
        recovery = {**RECOVERY, **SPECIAL.get(name, {})}
        scaling = {"minReplicas": 1, "maxReplicas": 1} if name == "at-maximum" else None
        group.apply(recovery=recovery, scaling=scaling, replicas=None if scaling else 0)
    for name, group in groups.items():
        group.await_pods(1 if name == "at-maximum" else 0)
    for name in ("went-back", "trimmed", "dropped", "healthy"):
        process_all(groups[name], 20)
    return groups


def go_on(stage: Stage, groups: Mapping[str, Group]) -> None:
    """What happens from the beginning to the end."""

    def act(_: int) -> None:
        process_all(groups["healthy"])
        groups["at-maximum"].add(20)
        read = groups["at-maximum"].read("reader", 16)
        groups["at-maximum"].acknowledge(entry_id for entry_id, _ in read)

    stage.repeat(act, every_s=0.5)


def go_wrong(stage: Stage, groups: Mapping[str, Group]) -> None:
    """What fails again and again once faults are injected."""
    poison, rejected = groups["poison"], groups["rejected"]

    def act(_: int) -> None:
        poison.age(poison.give("crashes", 1), 60_000)
        letter = a_letter(rejected.stream, rejected.name)
        rejected.redis.xadd(rejected.keys.dead_letter, letter)

    stage.repeat(act, every_s=5.0)


def record_faults(stage: Stage) -> None:
    """One group for each fault of groups, beside one without."""
    stage.start_operators()
    broken = stage.ends.enter_context(start_standalone("8.6"))
    groups = declare_groups(stage, broken)
    audits = {name: stage.audit(name, groups[name]) for name in ("audited", "unaudited")}
    go_on(stage, groups)
    trimmed, dropped, back = groups["trimmed"], groups["dropped"], groups["went-back"]
    dropped.give("deleted", 5)
    stage.scraper.begin("healthy")
    stage.scraper.hold(15)  # a consumer that is deleted must have been idle for 10 s

    stage.scraper.begin("injecting")
    trimmed.add(50)
    stage.scraper.hold(3)  # the operator observes them
    trimmed.redis.xtrim(trimmed.stream, maxlen=10, approximate=False)
    dropped.redis.xgroup_delconsumer(dropped.stream, dropped.name, "deleted")
    back.redis.xgroup_setid(back.stream, back.name, "0")
    alarms = {"trimmed": "DataLoss", "dropped": "PendingEntriesDropped"}
    for name, alarm in {**alarms, "went-back": "PositionWentBack"}.items():
        stage.resources.await_condition(name, alarm, reason=alarm)
        process_all(groups[name])
    groups["stuck"].redis.xgroup_create(groups["stuck"].stream, "another", "0")
    groups["stuck"].give("a worker that ends", 12)
    groups["undelivered"].add(5)
    expiring, old = groups["expiring"], int(time.time() * 1000) - 12 * DAY_MS
    letter = a_letter(expiring.stream, expiring.name)
    expiring.redis.xadd(expiring.keys.dead_letter, letter, id=f"{old}-0")
    broken.servers[0].kill()
    stage.record_window(audits["audited"], groups["audited"], lost=2)
    stage.redis.cli("HSET", groups["unaudited"].keys.audit, audits["unaudited"], "not JSON")
    go_wrong(stage, groups)
    stage.scraper.begin("faults")
    stage.scraper.hold(110)


def record_operator(stage: Stage) -> None:
    """Faults of the operator, one after the other."""
    stage.start_operators()
    group = stage.group("orders")
    group.declare(recovery=RECOVERY)
    stage.repeat(lambda _: process_all(group), every_s=0.5)
    stage.scraper.begin("healthy")
    stage.scraper.hold(30)
    rights = read_rules(stage.plane)
    write_rules(stage.plane, [one for one in rights if STATUS not in one.get("resources", ())])
    stage.scraper.begin("no right to write status")
    stage.scraper.hold(75)
    write_rules(stage.plane, rights)
    stage.scraper.begin("the right is back")
    stage.scraper.hold(60)
    stage.plane.process("kube-apiserver").pause()
    stage.scraper.begin("the API server hangs")
    stage.scraper.hold(75)
    stage.plane.process("kube-apiserver").resume()
    stage.scraper.begin("the API server answers")
    stage.scraper.hold(60)
    stage.operators.processes[0].kill()
    stage.scraper.begin("one replica")
    stage.scraper.hold(60)
    stage.operators.processes[1].kill()
    stage.scraper.begin("no replica")
    stage.scraper.hold(30)


def record_workers(bench: Bench) -> None:
    """A worker whose handler fails, one whose Redis ends, and one without a fault."""
    broken = bench.ends.enter_context(start_standalone("8.6"))
    fine, failing = bench.start_worker("fine"), bench.start_worker("failing")
    cut_off = bench.start_worker("cut-off", redis=broken)
    cut_off.add(5)
    cut_off.add(1, slow="yes")  # needs heartbeats
    bench.repeat(lambda _: (fine.add(2), failing.add(1)), every_s=0.5)
    bench.scraper.begin("healthy")
    bench.scraper.hold(15)
    broken.servers[0].kill()
    bench.repeat(lambda _: failing.add(1, bad="yes"), every_s=1.0)
    bench.scraper.begin("faults")
    bench.scraper.hold(60)


def record_unscanned(stage: Stage) -> None:
    """Replicas that observe a group and never scan it."""
    changed = stage.directory / "changed"
    changed.mkdir()
    (changed / "sitecustomize.py").write_text(NO_SCANS)
    paths = os.pathsep.join((str(changed), str(ROOT / "operator")))
    stage.start_operators(paths)
    group = stage.group("orders")
    group.declare(recovery=RECOVERY)
    stage.scraper.begin("never scanned")
    stage.scraper.hold(60)


def read_rules(plane: ControlPlane) -> list[dict[str, Any]]:
    """The rights of the operator that it has in every cluster."""
    role = plane.kubectl("get", "clusterrole", ROLE, "-o", "json")
    rules: list[dict[str, Any]] = json.loads(role.stdout)["rules"]
    return rules


def write_rules(plane: ControlPlane, rules: Sequence[Mapping[str, Any]]) -> None:
    """Replace the rights."""
    patch = [{"op": "replace", "path": "/rules", "value": list(rules)}]
    plane.kubectl("patch", "clusterrole", ROLE, "--type=json", "-p", json.dumps(patch))


SCENARIOS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "healthy": record_healthy,
    "faults": record_faults,
    "operator": record_operator,
    "unscanned": record_unscanned,
}
# Without a cluster.
WORKERS: Final = "workers"


def record(name: str) -> Recording:
    """Play one scenario; what was scraped."""
    with set_up_bench() if name == WORKERS else set_up_stage() as stage:
        if isinstance(stage, Stage):
            SCENARIOS[name](stage)
        else:
            record_workers(stage)
        stage.scraper.stop()  # else it would record how the stage is torn down
        return stage.scraper.recording


def main() -> None:
    """Record the scenarios that are named, or all."""
    for name in sys.argv[1:] or (*SCENARIOS, WORKERS):
        began, path = time.monotonic(), FOLDER / f"{name}.txt.gz"
        recording = record(name)
        recording.write(path)
        passed, size = time.monotonic() - began, path.stat().st_size
        sys.stdout.write(
            f"{path.name}: {recording.samples} scrapes of {len(recording.series)} series, "
            f"{size / 1024:.0f} KiB, in {passed:.0f} s\n"
        )


if __name__ == "__main__":
    main()
