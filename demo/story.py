"""What happens in the demo, act by act."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.audit_checks import check_audit
from demo.auditing import Audit, Audited, await_audit, read_audit, start_audit
from demo.checks import Check, Counts, render_checks
from demo.corpus import Source
from demo.direct import ROOT, DirectComputation
from demo.finding import Findings, check_found, find_outcome, find_scaling
from demo.killing import Catcher, Caught, delete_pods, kill_processes
from demo.picture import draw_course
from demo.playground import Playground
from demo.recovery import Redriven, Victim, are_rescued
from demo.redrive import check_redrive, redrive_dead_letters, run_pelops
from demo.stage import Stage, is_all_told, is_asleep, is_complete
from demo.steps import AUDIT, CHECK, GROUPS, KILL, OPERATOR, REDRIVE, WORK, Steps
from demo.summary import (
    render_audits,
    render_dead_letters,
    render_moves,
    render_rescues,
    render_summary,
)
from demo.team import Deeds, Team
from local_cluster.progress import report, step

OVERLAY = ROOT / "manifests" / "overlays" / "local"
OPERATOR_NAMESPACE = "pelops-system"
OPERATOR_PODS = "app.kubernetes.io/component=operator"
ROLLOUT_TIMEOUT_S = 180
LOUD = re.compile(r"^\S+ (WARNING|ERROR|CRITICAL) ")


class ChecksFailed(Exception):
    """Something that the demo claims does not hold; the text says how much."""


def run_demo(
    cluster: Playground,
    sources: Sequence[Source],
    direct: DirectComputation,
    scratch: Path,
    steps: Steps,
) -> None:
    """All acts. Raises ChecksFailed, or what went wrong on the way, after saying what is known.

    `scratch` is an empty directory. Of the sources the last one is for the plain loop.
    """
    with Stage.open(cluster, scratch) as stage:
        try:
            with steps.run(OPERATOR):
                install_operator(cluster)
            with steps.run(GROUPS):
                declare_groups(stage)
            began = time.monotonic()
            with steps.run(KILL):
                ids = add_files(stage, sources)
                victims = kill_workers(stage)
            with steps.run(WORK):
                await_work(stage, began, sum(map(len, ids)))
            with steps.run(REDRIVE):
                await_sleep(stage)
                redriven = redrive_dead_letters(stage)
            with steps.run(AUDIT):
                audit = start_audit(stage)
                await_audit(audit)
            deeds = [
                Deeds(
                    ids=some,
                    victims=[one for one in victims if team.declaration.owns(one.pod)],
                    redriven=moved,
                )
                for team, some, moved in zip(stage.teams, ids, (redriven, Redriven()), strict=True)
            ]
            with steps.run(CHECK):
                check_claims(stage, sources, direct, deeds, audit)
        except Exception:
            print_diagnosis(stage)
            raise


def install_operator(cluster: Playground) -> None:
    """Act one: the operator, by the manifests that users apply; it runs as pods of this cluster."""
    with step("installing the operator: kubectl apply -k manifests/overlays/local --server-side"):
        cluster.kubectl("apply", "-k", str(OVERLAY), "--server-side")
    with step("waiting for the operator to be available"):
        wait = ["--watch", f"--timeout={ROLLOUT_TIMEOUT_S}s", "-n", OPERATOR_NAMESPACE]
        cluster.kubectl("rollout", "status", "deployment/pelops-operator", *wait)


def declare_groups(stage: Stage) -> None:
    """Act two: two resources; the operator makes the groups. The backlog is empty, so no
    worker runs."""
    sdk, plain = (team.declaration for team in stage.teams)
    report(
        f"applying StreamConsumerGroup {sdk.namespace}/{sdk.name} with {sdk.least} to {sdk.most}"
        f" workers that use the SDK, and {plain.namespace}/{plain.name} with {plain.most} workers"
        " that run a plain redis-py loop: kubectl apply -f demo/indexers.yaml"
    )
    stage.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=stage.manifest)
    stage.watch.until(
        lambda: is_asleep(stage, stage.sdk) and is_complete(stage, stage.plain),
        "both resources to be Ready, one with no worker, the other with all",
    )


def add_files(stage: Stage, sources: Sequence[Source]) -> list[dict[str, str]]:
    """Act three: an entry for each file wakes the group; the IDs by path, for each team."""
    *first, last = sources
    ids = []
    for team, own in zip(stage.teams, (first, [last]), strict=True):
        ids.append(team.store.add_entries([path for source in own for path in source.paths]))
        stream = team.declaration.stream
        report(f"added {len(ids[-1]):,} entries to {stream}, one for each file ({team.label})")
    return ids


def kill_workers(stage: Stage) -> list[Victim]:
    """Act four: two workers of each kind die in mid-work, and all that they held comes back."""
    caught = [catch_two(stage, team) for team in reversed(stage.teams)]
    stage.watch.show()  # who woke them, before what becomes of them
    first, second = zip(*caught, strict=True)
    victims = delete_pods(stage.cluster, stage.namespace, first) + kill_processes(second)
    for victim in victims:
        report(f"killed {victim.pod} with {len(victim.held)} pending entries: {victim.how}")
    stage.watch.until(
        lambda: all(is_rescued(team, victims) for team in stage.teams),
        "their pending entries to be recovered or processed",
    )
    return victims


def catch_two(stage: Stage, team: Team) -> list[Caught]:
    """Two of the team's workers, stopped with entries in their hands."""
    return Catcher(store=team.store, observe=lambda: stage.observe_workers(team)).catch(2)


def is_rescued(team: Team, victims: Sequence[Victim]) -> bool:
    """Whether nothing is left of what the team's victims held."""
    own = [victim for victim in victims if team.declaration.owns(victim.pod)]
    return are_rescued(own, team.store.read_traces())


def await_work(stage: Stage, began: float, files: int) -> None:
    """Act five: files that do not parse become dead letters, or results that say so; then the
    backlog is empty.
    """
    stage.watch.until(
        lambda: all(team.store.is_drained() for team in stage.teams),
        "every entry to be acknowledged or dead-lettered",
    )
    seconds = time.monotonic() - began
    report(f"the backlog is empty after {seconds:.0f} s, {files / seconds:,.0f} files per second")


def await_sleep(stage: Stage) -> None:
    """Act six: the workers that came with the work go."""
    seconds = stage.watch.until(
        lambda: is_asleep(stage, stage.sdk) and all(is_all_told(stage, one) for one in stage.teams),
        "scaling to zero workers, and final statuses",
    )
    report(f"{stage.sdk.declaration.name} is scaled to zero workers {seconds:.0f} s later")


def check_claims(
    stage: Stage,
    sources: Sequence[Source],
    direct: DirectComputation,
    deeds: Sequence[Deeds],
    audit: Audit,
) -> None:
    """Last act: everything compared with what it should be. Raises ChecksFailed."""
    with step("waiting for the direct computation of the same counts"):
        expected = direct.await_counts()
    found = [
        find_outcome(stage, team, deed, expected)
        for team, deed in zip(stage.teams, deeds, strict=True)
    ]
    scaling = find_scaling(stage, stage.sdk, deeds[0], found[0])
    audited = read_audit(audit, found)
    claims = {
        **check_found(found, scaling),
        "Checks of the redrive:": check_redrive(
            deeds[0].redriven, found[0].recovery.traces.effects
        ),
        **check_audits(audited),
        "Checks of the operator:": [check_log(stage.cluster)],
    }
    print_claims(claims)
    print_results(sources, found, expected)
    course = scaling.course
    title = f"{len(deeds[0].ids):,} entries, workers from 0 to {course.most_ready} and back"
    print(f"Backlog and workers over time: {draw_course(course, title=title)}\n")
    print_audit(audited)
    print(run_pelops(stage, "status"), "", sep="\n", flush=True)
    checks = [check for some in claims.values() for check in some]
    failed = [check for check in checks if not check.holds]
    if failed:
        raise ChecksFailed(f"{len(failed)} of {len(checks)} checks failed")


def check_audits(audited: Audited) -> Mapping[str, Sequence[Check]]:
    """What the audit found, by the words that stand above it."""
    return {
        f"Checks of the audit of {label}:": check_audit(outcome)
        for label, outcome in audited.outcomes.items()
    }


def check_log(cluster: Playground) -> Check:
    """The operator has nothing to complain of."""
    asked = ("logs", "-l", OPERATOR_PODS, "-n", OPERATOR_NAMESPACE, "--tail=-1")
    lines = cluster.kubectl(*asked).splitlines()
    complaints = [line for line in lines if LOUD.search(line)]
    return Check(
        claim="the log of the operator has no line of WARNING or above",
        holds=bool(lines) and not complaints,
        found=f"{len(complaints)} of {len(lines)} lines"
        + "".join(f"\n{' ' * 10}{line}" for line in complaints[:3]),
    )


def print_claims(claims: Mapping[str, Sequence[Check]]) -> None:
    """Each claim with its verdict, the columns of all in line."""
    rows = iter(render_checks([check for some in claims.values() for check in some]).splitlines())
    for title, checks in claims.items():
        print(f"\n{title}", *(next(rows) for _ in checks), sep="\n")
    print()


def print_results(sources: Sequence[Source], found: Sequence[Findings], expected: Counts) -> None:
    """What was counted, who was killed, and what became a dead letter."""
    results = {path: one for each in found for path, one in each.outcome.results.items()}
    print("Indexed:", render_summary(sources, results), "", sep="\n")
    for each in found:
        print_deaths(each)
    letters = [letter for each in found for letter in each.recovery.redriven]
    print("Dead-lettered, then redriven:", render_dead_letters(letters, expected), "", sep="\n")


def print_audit(audited: Audited) -> None:
    """What became of every entry, for people, and where more is written."""
    print(f"Audit, by the Job of a StreamAudit, in {audited.took_s} s:")
    print(render_audits(audited.summaries), "", sep="\n")
    print("kubectl get streamaudit:", audited.table, sep="\n")
    print(f"Report of the audit: {audited.page}\n", flush=True)


def print_deaths(found: Findings) -> None:
    """Who was killed, and what became of what they held."""
    recovery = found.recovery
    print(f"Killed, {found.team.label}:", render_rescues(recovery.rescues), sep="\n")
    print(render_moves(recovery.traces.moves, found.delays), "", sep="\n")


def print_diagnosis(stage: Stage) -> None:
    """What a person would ask next, on standard error."""
    questions = [
        ["describe", "scg", "-n", stage.namespace],
        ["get", "pods", "-A"],
        ["describe", "streamaudit", "-n", stage.namespace],
        ["logs", "-l", OPERATOR_PODS, "-n", OPERATOR_NAMESPACE, "--tail=30", "--prefix"],
    ]
    for team in stage.teams:
        workers = f"deployment/{team.declaration.deployment}"
        options = ["--tail=20", "--pod-running-timeout=1s"]
        questions.append(["logs", workers, "-n", stage.namespace, *options])
    for question in questions:
        report(f"\n$ kubectl {' '.join(question)}")
        report(stage.cluster.kubectl(*question, check=False).rstrip())
