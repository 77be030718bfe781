"""What happens in the demo, act by act."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.checks import Counts, Outcome, check_all, is_ready, is_settled, render_checks
from demo.corpus import Source
from demo.declaration import MANIFEST, Declaration, render_declaration
from demo.direct import ROOT, DirectComputation
from demo.playground import Playground
from demo.store import Store
from demo.summary import render_summary
from demo.watching import Watch
from local_cluster.progress import report, step

OVERLAY = ROOT / "manifests" / "overlays" / "local"
OPERATOR_NAMESPACE = "pelops-system"
OPERATOR_PODS = "app.kubernetes.io/component=operator"
ROLLOUT_TIMEOUT_S = 180


class ChecksFailed(Exception):
    """Something that the demo claims does not hold; the text says how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What every act works with."""

    cluster: Playground
    declaration: Declaration
    store: Store
    watch: Watch

    @classmethod
    def build(cls, cluster: Playground) -> "Stage":
        """The stage on a cluster that is up; nothing is applied yet."""
        declaration = render_declaration(
            MANIFEST.read_text(), redis_url=cluster.redis_url, source_root=ROOT
        )
        return cls(
            cluster=cluster,
            declaration=declaration,
            store=Store(cluster.redis_url, declaration),
            watch=Watch(cluster, declaration.namespace, declaration.name),
        )

    def get(self, kind: str, *args: str) -> dict[str, Any]:
        """An object, or a list of them, of the demo's namespace."""
        where = ["-n", self.declaration.namespace, "-o", "json"]
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", kind, *args, *where))
        return found

    def status(self) -> dict[str, Any]:
        """The resource's status; empty before the operator saw it."""
        status: dict[str, Any] = self.get("scg", self.declaration.name).get("status", {})
        return status


def run_demo(cluster: Playground, sources: Sequence[Source], direct: DirectComputation) -> None:
    """All acts. Raises ChecksFailed, or what went wrong on the way, after saying what is known."""
    stage = Stage.build(cluster)
    try:
        install_operator(cluster)
        declare_group(stage)
        index_files(stage, [path for source in sources for path in source.paths])
        check_claims(stage, sources, direct)
    except Exception:
        print_diagnosis(stage)
        raise


def install_operator(cluster: Playground) -> None:
    """Act one: the operator, by the manifests that users apply; it runs as pods of this cluster."""
    with step("installing the operator: kubectl apply -k manifests/overlays/local --server-side"):
        cluster.kubectl("apply", "-k", str(OVERLAY), "--server-side")
    with step("waiting until the operator is available"):
        wait = ["--watch", f"--timeout={ROLLOUT_TIMEOUT_S}s", "-n", OPERATOR_NAMESPACE]
        cluster.kubectl("rollout", "status", "deployment/pelops-operator", *wait)


def declare_group(stage: Stage) -> None:
    """Act two: one resource; the operator makes the group and the workers."""
    wanted = stage.declaration
    report(
        f"applying StreamConsumerGroup {wanted.namespace}/{wanted.name}"
        f" with {wanted.replicas} workers: kubectl apply -f demo/indexers.yaml"
    )
    stage.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=wanted.manifest)
    stage.watch.until(lambda: is_ready(stage.status()), "the resource Ready")


def index_files(stage: Stage, paths: Sequence[Path]) -> None:
    """Act three: an entry for each file, and the workers at work on them until none is left."""
    stage.store.add_entries(paths)
    report(f"added {len(paths):,} entries to the stream, one for each file")
    # The status follows Redis: it still speaks of an empty stream for a moment.
    seconds = stage.watch.until(stage.store.is_drained, "all entries acknowledged")
    stage.watch.until(lambda: is_settled(stage.status()), "status with nothing pending, no lag")
    report(f"all acknowledged after {seconds:.0f} s, {len(paths) / seconds:,.0f} files per second")


def check_claims(stage: Stage, sources: Sequence[Source], direct: DirectComputation) -> None:
    """Last act: everything compared with what it should be. Raises ChecksFailed."""
    with step("waiting for the direct computation of the same counts"):
        expected = direct.await_counts()
    outcome = observe_outcome(stage, expected)
    checks = check_all(outcome)
    print("\nChecked:", render_checks(checks), "", sep="\n")
    print("Indexed:", render_summary(sources, outcome.results), "", sep="\n", flush=True)
    failed = [check for check in checks if not check.holds]
    if failed:
        raise ChecksFailed(f"{len(failed)} of {len(checks)} checks failed")


def observe_outcome(stage: Stage, expected: Counts) -> Outcome:
    """What is there now, in Redis and on the API server."""
    status, group = stage.status(), stage.store.observe_group()
    letters = (status.get("deadLetter") or {}).get("stream", "")
    return Outcome(
        expected=expected,
        results=stage.store.read_results(),
        entries=stage.store.count_entries(),
        pending=group.pending,
        lag=group.lag,
        dead_letters=stage.store.count_stream(letters),
        status=status,
        replicas=stage.declaration.replicas,
        pods=count_running(stage.get("pods", "-l", status.get("selector", ""))["items"]),
    )


def count_running(pods: Sequence[dict[str, Any]]) -> int:
    """The pods that run and are not on their way out."""
    return sum(
        pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        for pod in pods
    )


def print_diagnosis(stage: Stage) -> None:
    """What a person would ask next, on standard error."""
    wanted = stage.declaration
    questions = [
        ["describe", "scg", wanted.name, "-n", wanted.namespace],
        ["get", "pods", "-A"],
        ["logs", "-l", OPERATOR_PODS, "-n", OPERATOR_NAMESPACE, "--tail=30", "--prefix"],
        ["logs", f"deployment/{wanted.name}-workers", "-n", wanted.namespace, "--tail=20"],
    ]
    for question in questions:
        report(f"\n$ kubectl {' '.join(question)}")
        report(stage.cluster.kubectl(*question, check=False).rstrip())
