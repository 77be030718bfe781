"""What happens in the demo, act by act."""

import time
from collections.abc import Sequence
from pathlib import Path

from demo.checks import render_checks
from demo.corpus import Source
from demo.direct import ROOT, DirectComputation
from demo.finding import Deeds, find_outcome
from demo.killing import Killer
from demo.picture import draw_course
from demo.playground import Playground
from demo.recovery import Victim, are_moved, list_moves
from demo.stage import Stage, is_all_told, is_asleep
from demo.summary import render_letters, render_moves, render_rescues, render_summary
from local_cluster.progress import report, step

OVERLAY = ROOT / "manifests" / "overlays" / "local"
OPERATOR_NAMESPACE = "pelops-system"
OPERATOR_PODS = "app.kubernetes.io/component=operator"
ROLLOUT_TIMEOUT_S = 180


class ChecksFailed(Exception):
    """Something that the demo claims does not hold; the text says how much."""


def run_demo(
    cluster: Playground, sources: Sequence[Source], direct: DirectComputation, scratch: Path
) -> None:
    """All acts. Raises ChecksFailed, or what went wrong on the way, after saying what is known.

    `scratch` is an empty directory.
    """
    with Stage.open(cluster, scratch) as stage:
        try:
            install_operator(cluster)
            declare_group(stage)
            began = time.monotonic()
            ids = add_files(stage, [path for source in sources for path in source.paths])
            victims = kill_workers(stage)
            await_end(stage, began, len(ids))
            check_claims(stage, sources, direct, Deeds(ids=ids, victims=victims))
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
    """Act two: one resource; the operator makes the group. Nothing is owed, so nobody works."""
    wanted = stage.declaration
    report(
        f"applying StreamConsumerGroup {wanted.namespace}/{wanted.name}"
        f" with {wanted.least} to {wanted.most} workers: kubectl apply -f demo/indexers.yaml"
    )
    stage.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=wanted.manifest)
    stage.watch.until(lambda: is_asleep(stage), "the resource Ready, without workers")


def add_files(stage: Stage, paths: Sequence[Path]) -> dict[str, str]:
    """Act three: an entry for each file wakes the group; the IDs by path."""
    ids = stage.store.add_entries(paths)
    report(f"added {len(paths):,} entries to the stream, one for each file")
    return ids


def kill_workers(stage: Stage) -> list[Victim]:
    """Act four: two workers die in mid-work, and everything that they held comes back."""
    killer = Killer(
        cluster=stage.cluster,
        namespace=stage.declaration.namespace,
        store=stage.store,
        observe=stage.observe_workers,
    )
    first, second = killer.catch(2)
    stage.watch.show()  # who woke them, before what becomes of them
    victims = [killer.delete_pod(first), killer.kill_process(second)]
    for victim in victims:
        report(f"killed {victim.pod} with {len(victim.held)} entries in its hands: {victim.how}")
    stage.watch.until(
        lambda: are_moved(victims, list_moves(stage.store.read_ledger())),
        "all that they held deliverable again",
    )
    return victims


def await_end(stage: Stage, began: float, files: int) -> None:
    """Act five: files that do not parse crash their workers until they are dead letters; then
    nothing is owed, and the workers go.
    """
    stage.watch.until(stage.store.is_drained, "every entry acknowledged or dead-lettered")
    seconds = time.monotonic() - began
    report(f"nothing is left after {seconds:.0f} s, {files / seconds:,.0f} files per second")
    seconds = stage.watch.until(
        lambda: is_asleep(stage) and is_all_told(stage), "no workers, a status that tells it all"
    )
    report(f"no worker is left {seconds:.0f} s later")


def check_claims(
    stage: Stage,
    sources: Sequence[Source],
    direct: DirectComputation,
    deeds: Deeds,
) -> None:
    """Last act: everything compared with what it should be. Raises ChecksFailed."""
    with step("waiting for the direct computation of the same counts"):
        expected = direct.await_counts()
    found = find_outcome(stage, deeds, expected)
    course = found.scaling.course
    title = f"{len(deeds.ids):,} entries, from no worker to {course.most_ready} and back"
    picture = draw_course(course, title=title)
    checks = found.check()
    print("\nChecked:", render_checks(checks), "", sep="\n")
    print("Indexed:", render_summary(sources, found.outcome.results), "", sep="\n")
    print("Killed:", render_rescues(found.recovery.rescues), "", sep="\n")
    print("Recovered:", render_moves(found.recovery.moves, found.delays), "", sep="\n")
    print(found.describe_crashes(), render_letters(found.recovery.letters, expected), "", sep="\n")
    print(f"Backlog and workers over time: {picture}\n")
    failed = [check for check in checks if not check.holds]
    if failed:
        raise ChecksFailed(f"{len(failed)} of {len(checks)} checks failed")


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
