"""`pelops why`, `pending` and `dlq` on a cluster: through exec, the socket, and Redis itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from pelops.controller.inspection.inspection_server import default_socket
from tests.e2e.command_line import CommandLine, Ended
from tests.e2e.declaring import NAME, WAIT_S, a_letter
from tests.e2e.recovering import Group
from tests.operators import ROOT, Operators, Resources, sleeping_template

# Nothing is recovered within the test's time, so that the state stays as it is.
NOTHING_MOVES = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 3600}


@dataclass(frozen=True, slots=True)
class Laptop:
    """`pelops` for a user who may execute commands in the pods of the operator."""

    cli: CommandLine

    def __call__(self, *words: str, **environment: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "pelops.cli", *words, "-n", self.cli.namespace],
            env={**self.cli.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def ask(self, *words: str) -> Ended:
        """Ask the operator of this namespace."""
        return self(*words, "--operator-namespace", self.cli.namespace)


@pytest.fixture
def laptop(resources: Resources, operator: Operators, node: Node) -> Laptop:
    """The operator's replicas are processes: a pod that has the socket of one stands for it."""
    plane, namespace = resources.plane, resources.namespace
    labels = {"app.kubernetes.io/name": "pelops", "app.kubernetes.io/component": "operator"}
    socket = str(default_socket(operator.ports[0]))
    container = {
        **sleeping_template()["spec"]["containers"][0],
        "name": "operator",
        "env": [
            {"name": "PELOPS_INSPECTION_SOCKET", "value": socket},
            {"name": "PYTHONPATH", "value": str(ROOT / "operator")},
        ],
    }
    resources.apply_raw(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "operator-0", "labels": labels},
            "spec": {"containers": [container], "nodeName": node.name},
        }
    )
    plane.kubectl(
        *("wait", "pod/operator-0", "-n", namespace, "--for=condition=Ready", "--timeout=60s")
    )
    return Laptop(CommandLine(plane, namespace, plane.kubeconfig))


def test_why_and_pending_distinguish_live_from_dead_workers(group: Group, laptop: Laptop) -> None:
    locks = {"keyTemplate": "lock:{$tag}:$id", "graceSeconds": 3600}
    gone, alive = group.declare(2, recovery={**NOTHING_MOVES, "locks": locks})
    (lost,) = group.give(gone.consumer, 1, order_id="4711")
    (kept,) = group.give(alive.consumer, 1)
    group.redis.set(f"lock:{{{group.keys.tag}}}:{lost}", "held")

    why = laptop.ask("why", NAME, kept)
    assert why.code == 0, why.err
    assert f"{kept}  HELD BY LIVE WORKER" in why.out
    assert f"next  pelops pending {NAME} -n {laptop.cli.namespace}" in why.out
    group.delete_pod(gone)

    def explained() -> dict[str, Any]:
        done = laptop.ask("why", NAME, "order_id=4711", "-o", "json")
        assert done.code == 0, done.err
        found: dict[str, Any] = done.document
        return found if found["pending"]["liveness"] == "PodGone" else {}

    # The lock keeps it where it is; only the operator, which watched, has seen that the pod ended.
    locked = wait_until(explained, timeout_s=WAIT_S, what="the end of the pod", every_s=0.5)
    assert locked["state"] == "Locked"
    assert (locked["id"], locked["asked"]) == (lost, "order_id=4711")
    assert "fields" not in locked["entry"]
    lines = laptop.ask("pending", NAME, "-o", "json").document["lines"]
    assert {line["consumer"]: line["state"] for line in lines} == {
        gone.consumer: "Locked",
        alive.consumer: "HeldByLiveWorker",
    }
    shown = laptop.ask("pending", NAME, "--by", "age").out
    assert lost in shown and kept in shown
    # Without the cluster, no consumer is known to have ended.
    direct = laptop("why", NAME, lost, "--redis-url", group.url, "-o", "json")
    assert direct.code == 0, direct.err
    assert direct.document["state"] == "HeldByUnknownConsumer"


def test_dead_letters_are_grouped_shown_and_exported_without_payloads_unless_asked(
    group: Group, laptop: Laptop
) -> None:
    group.declare(recovery=NOTHING_MOVES)
    letters = []
    for number in range(3):
        letter = a_letter(group.stream, group.keys.group)
        letter |= {"n": f"secret-{number}", "_reason": "Rejected", "_error": f"bad value {number}"}
        letters.append(group.redis.xadd(group.keys.dead_letter, letter))
    listed = laptop.ask("dlq", "list", NAME)
    assert listed.code == 0, listed.err
    assert "Rejected  bad value #" in listed.out
    (row,) = laptop.ask("dlq", "list", NAME, "-o", "json").document["groups"]
    assert (row["letters"], row["suggested"], row["samples"]) == (3, "inspect", letters)
    hidden = laptop.ask("dlq", "show", NAME, letters[1])
    assert "bad value 1" in hidden.out and "secret-1" not in hidden.out
    assert "n = secret-1" in laptop.ask("dlq", "show", NAME, letters[1], "--payload").out
    lines = laptop.ask("dlq", "export", NAME, "--payload", "--max", "2").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == letters[:2]
    missing = laptop.ask("dlq", "show", NAME, "1-1")
    assert (missing.code, "there is no dead letter 1-1" in missing.err) == (3, True)


def test_wrong_questions_end_with_a_sentence_and_a_code(group: Group, laptop: Laptop) -> None:
    group.declare(recovery=NOTHING_MOVES)
    for words, code, message in (
        (("why", NAME, "nonsense"), 1, "is not an entry ID"),
        (("why", NAME, "a=b"), 3, "no entry has a=b"),
        (("why", "nothing", "1-1"), 3, "does not exist"),
        (("why", NAME, "=b"), 2, "FIELD=VALUE"),
    ):
        done = laptop.ask(*words)
        assert done.code == code, (words, done)
        assert message in done.err
    away = laptop("why", NAME, "1-1", "--in-pod", PELOPS_INSPECTION_SOCKET="/nothing")
    assert (away.code, "does not answer" in away.err) == (1, True)


def test_a_redrive_is_printed_created_and_names_who_asked(group: Group, laptop: Laptop) -> None:
    words = ("dlq", "redrive", NAME, "--error", "Timeout", "--rate", "20", "--to", "RetryStream")
    printed = laptop(*words, "-o", "json")
    assert printed.code == 0, printed.err
    assert printed.document["spec"] == {
        "groupRef": {"name": NAME},
        "action": "Redrive",
        "selection": {"errorContains": "Timeout"},
        "ratePerSecond": 20,
        "destination": "RetryStream",
    }
    group.declare(recovery=NOTHING_MOVES)
    refused = laptop("dlq", "discard", NAME, "--id", "1-1")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
