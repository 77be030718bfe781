"""Where the operator runs, for what needs its view or its connection to Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.kubectl import EXEC_TIMEOUT_S, Container, Finished, Kubectl, Object

SELECTOR: Final = "app.kubernetes.io/name=pelops,app.kubernetes.io/component=operator"
CONTAINER: Final = "operator"
PORT_NAME: Final = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPod:
    """One replica of the operator."""

    namespace: str
    name: str
    ready: bool
    port: int  # of its HTTP server: metrics and probes
    image: str  # of its container; empty if no container has the usual name


def list_operators(kubectl: Kubectl, *, namespace: str | None = None) -> list[OperatorPod]:
    """Return the running replicas of the operator, ready ones first; empty if there is none.

    Without `namespace`, all namespaces are searched, which needs the right to list their pods.
    """
    pods = kubectl.list_objects(
        "pods", namespace=namespace, all_namespaces=namespace is None, selector=SELECTOR
    )
    operators = [_read_pod(pod) for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    return sorted(operators, key=lambda pod: (not pod.ready, pod.namespace, pod.name))


def run_in_operator(
    kubectl: Kubectl,
    command: list[str],
    *,
    namespace: str | None = None,
    stdin: str | None = None,
    timeout_s: float = EXEC_TIMEOUT_S,
) -> Finished:
    """Run a command in a replica of the operator. This needs the right to create pods/exec.

    Raises:
        CommandFailed: no replica runs.
        KubectlFailed: the command could not be started.
    """
    operators = list_operators(kubectl, namespace=namespace)
    if not operators:
        raise CommandFailed(
            f"no pod with the labels {SELECTOR} runs"
            + (f" in namespace {namespace}" if namespace else "")
            + ". Install the operator, or name its namespace with --operator-namespace",
            code=ExitCode.NOT_FOUND,
        )
    pod = operators[0]
    container = Container(namespace=pod.namespace, pod=pod.name, name=CONTAINER)
    return kubectl.exec(container, command, stdin=stdin, timeout_s=timeout_s)


def _read_pod(pod: Object) -> OperatorPod:
    metadata, conditions = pod["metadata"], pod.get("status", {}).get("conditions") or ()
    containers = pod.get("spec", {}).get("containers") or ()
    ports = [
        port["containerPort"]
        for container in containers
        for port in container.get("ports") or ()
        if port.get("name") == PORT_NAME
    ]
    return OperatorPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        port=ports[0] if ports else 8080,
        image=next((one["image"] for one in containers if one["name"] == CONTAINER), ""),
    )
