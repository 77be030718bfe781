"""The repair of the demo: a second version of the handler, and its dead letters redriven."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from demo.checks import Check, show_example
from demo.direct import ROOT
from demo.effects import Effect
from demo.recovery import Redriven
from demo.stage import Stage, is_asleep
from local_cluster.kubectl import kubectl_environment
from local_cluster.progress import report

REPAIRED = "demo.repaired_worker"
REDRIVE = "after-repair"
COMMAND = "/spec/template/spec/containers/0/command/2"
CLI_TIMEOUT_S = 300.0


class RedriveFailed(Exception):
    """A command of `pelops` ended with an error; the text is what it printed."""


def redrive_dead_letters(stage: Stage) -> Redriven:
    """Deploy the second version, and move the dead letters back. No worker may run yet."""
    declaration, store = stage.sdk.declaration, stage.sdk.store
    letters = store.read_dead_letters()
    report(f"deploying a handler that takes such files: {REPAIRED}: kubectl patch scg")
    patch = json.dumps([{"op": "replace", "path": COMMAND, "value": REPAIRED}])
    where = ("-n", declaration.namespace)
    stage.cluster.kubectl("patch", "scg", declaration.name, *where, "--type=json", "-p", patch)
    stage.watch.until(lambda: _is_deployed(stage), "the Deployment to have the second version")
    print(run_pelops(stage, "dlq", "list", declaration.name), flush=True)
    listed = run_pelops(stage, "dlq", "list", declaration.name, "-o", "json", shown=False)
    clusters = [f"--cluster={group['cluster']}" for group in json.loads(listed)["groups"]]
    how = ("--redrive-name", REDRIVE, "--yes", "--wait")
    print(run_pelops(stage, "dlq", "redrive", declaration.name, *clusters, *how), flush=True)
    stage.watch.until(lambda: is_asleep(stage, stage.sdk), "the workers to go again")
    return Redriven(
        letters=letters,
        left=store.read_dead_letters(),
        status=stage.get("streamredrives", REDRIVE).get("status", {}),
    )


def run_pelops(stage: Stage, *words: str, shown: bool = True) -> str:
    """What `pelops` prints, run as a user of the cluster runs it. Raises RedriveFailed."""
    words = (*words, "-n", stage.namespace)
    if shown:
        report(f"$ pelops {' '.join(words)}")
    cluster = stage.cluster
    path = f"{cluster.kubectl_path.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = kubectl_environment(cluster.kubeconfig) | {"PATH": path, "NO_COLOR": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "pelops.cli", *words],
        cwd=ROOT,
        env={**environment, "COLUMNS": "140"},
        capture_output=True,
        text=True,
        timeout=CLI_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise RedriveFailed(f"pelops {' '.join(words)}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout.rstrip()


def check_redrive(redriven: Redriven, effects: Sequence[Effect]) -> list[Check]:
    """Every claim, in the order in which they are printed."""
    letters, status = redriven.letters, redriven.status
    counts = {name: status.get(name) for name in ("selected", "moved", "acknowledged")}
    failed = status.get("failedAgain") or 0
    without = {one.path for one in letters} - {one.path for one in effects}
    return [
        Check(
            claim="the dead-letter stream is empty",
            holds=not redriven.left,
            found=f"{len(redriven.left)} dead letters of {len(letters)}",
        ),
        Check(
            claim="each dead letter was moved, and its entry acknowledged",
            holds=set(counts.values()) == {len(letters)} and failed == 0,
            found=", ".join(f"{number} {name}" for name, number in counts.items())
            + f", {failed} failed again",
        ),
        Check(
            claim="each of their files has a result",
            holds=not without and bool(letters),
            found=f"{len(letters) - len(without)} of {len(letters)}{show_example(without)}",
        ),
    ]


def _is_deployed(stage: Stage) -> bool:
    deployment = stage.get("deployments", stage.sdk.declaration.deployment)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return bool(container["command"][2] == REPAIRED)
