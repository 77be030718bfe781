"""`pelops report`: a support bundle without Secrets, payloads and passwords."""

from __future__ import annotations

import argparse
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from pelops.cli.command_line import COMMANDS
from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.display.durations import parse_duration
from pelops.cli.display.yaml_text import render_yaml
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_operator_namespace_flag
from pelops.cli.kubectl import AUDITS, GROUPS, REDRIVES, Kubectl, Object
from pelops.cli.main import run as run_command
from pelops.cli.operator_pods import CONTAINER, SELECTOR, OperatorPod, list_operators
from pelops.cli.redaction import redact_object, redact_text

_LOG_LINES: Final = 50_000
_LOG_BYTES: Final = 16 * 1024 * 1024
_LOG_TIMEOUT_S: Final = 60.0
_MAX_GROUPS: Final = 20  # whose commands are run; resources are collected of all
# Commands whose answer belongs into a bundle, if this build has them.
_GROUP_COMMANDS: Final = (("doctor",), ("pending",), ("dlq", "list"))
_NAMESPACED: Final = (
    ("streamaudits", AUDITS),
    ("streamredrives", REDRIVES),
    ("pods", "pods"),
    ("deployments", "deployments.apps"),
    ("statefulsets", "statefulsets.apps"),
    ("autoscalers", "horizontalpodautoscalers.autoscaling"),
    ("events", "events"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add = parser.add_argument
    add(
        "name", nargs="?", metavar="NAME", help="StreamConsumerGroup; default: all of the namespace"
    )
    add(
        "--file",
        "-f",
        type=Path,
        help="file to write, which must not exist; default: pelops-report-TIME.zip",
    )
    add(
        "--since",
        type=parse_duration,
        default="1h",
        metavar="DURATION",
        help="how far back the log of the operator goes",
    )
    add_operator_namespace_flag(parser)
    add_examples(
        parser,
        "# one group, with the log of the operator of the last hour",
        "pelops report orders -n shop -f report.zip",
        "",
        "# all groups of a namespace, and a longer log",
        "pelops report -n shop --since 6h",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Write the bundle, and say what could not be read."""
    now = datetime.now(UTC)
    kubectl = Kubectl.of(arguments, console)
    groups = _read_groups(arguments, kubectl)  # a name that does not exist ends the command here
    path = arguments.file or Path(f"pelops-report-{now:%Y%m%dT%H%M%SZ}.zip")
    bundle = _Bundle(path)
    try:
        _collect(bundle, arguments, kubectl, groups)
        bundle.add_index(now)
    finally:
        bundle.close()
    for name, problem in bundle.problems.items():
        console.note(f"not included: {name}: {problem}")
    size = max(1, path.stat().st_size // 1024)
    console.line(
        f"{path}: {bundle.count} files, {size:,} KB. Secrets, payloads of entries, values of "
        "environment variables and passwords in URLs are left out; read it before you send it"
    )
    return ExitCode.SUCCESS


def _read_groups(arguments: argparse.Namespace, kubectl: Kubectl) -> list[Object]:
    everywhere = bool(getattr(arguments, "all_namespaces", False))
    if arguments.name is None:
        return kubectl.list_objects(GROUPS, all_namespaces=everywhere)
    if everywhere:
        raise CommandFailed("use -n with NAME, or -A without it", code=ExitCode.USAGE)
    return [kubectl.get(GROUPS, arguments.name)]


class _Bundle:
    """The zip file, and what could not be put into it."""

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise CommandFailed(f"{path} exists already: choose another --file") from error
        self._file = os.fdopen(descriptor, "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        self.problems: dict[str, str] = {}

    @property
    def count(self) -> int:
        return len(self._zip.namelist())

    def add(self, name: str, produce: Callable[[], str]) -> None:
        """Add what the function returns, or note why it failed.

        YAML comes from objects that have no credentials any more; from other text they are removed.
        """
        try:
            text = produce()
        except CommandFailed as error:
            self.problems[name] = str(error)
            return
        self._zip.writestr(name, text if name.endswith(".yaml") else redact_text(text))

    def add_index(self, now: datetime) -> None:
        """Add a list of the files, and of what is missing."""
        from pelops.build import describe_build

        missing = [f"{name}: {problem}" for name, problem in self.problems.items()]
        lines = [
            f"Written by pelops {describe_build()} at {now:%Y-%m-%dT%H:%M:%SZ}.",
            "",
            *self._zip.namelist(),
            "",
            "Not included:" if missing else "Everything could be read.",
            *missing,
        ]
        self._zip.writestr("README.txt", redact_text("\n".join(lines) + "\n"))

    def close(self) -> None:
        self._zip.close()
        self._file.close()


def _collect(
    bundle: _Bundle, arguments: argparse.Namespace, kubectl: Kubectl, groups: Sequence[Object]
) -> None:
    bundle.add("version.yaml", partial(kubectl.run, "version", "-o", "yaml"))
    bundle.add("crds.yaml", partial(_describe_crds, kubectl))
    bundle.add("streamconsumergroups.yaml", partial(_render, groups))
    for namespace in sorted({group["metadata"]["namespace"] for group in groups}):
        for name, kind in _NAMESPACED:
            file = f"namespaces/{namespace}/{name}.yaml"
            bundle.add(file, partial(_list, kubectl, kind, namespace))
    for group in groups[:_MAX_GROUPS]:
        _add_commands(bundle, arguments, group["metadata"]["namespace"], group["metadata"]["name"])
    bundle.add("operator/pods.yaml", partial(_add_operator, bundle, arguments, kubectl))


def _add_commands(
    bundle: _Bundle, arguments: argparse.Namespace, namespace: str, name: str
) -> None:
    """Add what other commands say about a group."""
    known = {command.name for command in COMMANDS}
    folder = f"groups/{namespace}/{name}"
    asked = [name, "--namespace", namespace, *_context_flags(arguments)]
    bundle.add(f"{folder}/status.txt", partial(_run_command, "status", *asked, "-o", "wide"))
    for words in _GROUP_COMMANDS:
        if words[0] in known:
            file = f"{folder}/{'-'.join(words)}.json"
            bundle.add(file, partial(_run_command, *words, *asked, "-o", "json"))


def _context_flags(arguments: argparse.Namespace) -> Iterator[str]:
    for name in ("context", "kubeconfig"):
        value = getattr(arguments, name, None)
        if value is not None:
            yield f"--{name}={value}"


def _run_command(*words: str) -> str:
    """Return what a command prints. An exit code of 1 is an answer: something is wrong."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            code = run_command([*words, "--color=never"])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else ExitCode.PROBLEM
    if code > ExitCode.PROBLEM or not output.getvalue():
        raise CommandFailed(" ".join(errors.getvalue().split()) or f"exit code {int(code)}")
    return output.getvalue() + errors.getvalue()


def _add_operator(bundle: _Bundle, arguments: argparse.Namespace, kubectl: Kubectl) -> str:
    """Add the log and the metrics of each replica; return their pods as YAML."""
    pods = list_operators(kubectl, namespace=arguments.operator_namespace)
    if not pods:
        raise CommandFailed(f"no pod with the labels {SELECTOR} runs")
    since = f"--since={arguments.since:g}s"
    for pod in pods:
        folder = f"operator/{pod.name}"
        bundle.add(f"{folder}.log", partial(_read_log, kubectl, pod, since))
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}:{pod.port}/proxy/metrics"
        bundle.add(f"{folder}.metrics.txt", partial(kubectl.raw, path))
    namespace = pods[0].namespace
    return _render(kubectl.list_objects("pods", namespace=namespace, selector=SELECTOR))


def _read_log(kubectl: Kubectl, pod: OperatorPod, since: str) -> str:
    return kubectl.run(
        *("logs", f"pod/{pod.name}", f"--namespace={pod.namespace}", f"--container={CONTAINER}"),
        *(since, f"--tail={_LOG_LINES}", f"--limit-bytes={_LOG_BYTES}", "--timestamps"),
        timeout_s=_LOG_TIMEOUT_S,
    )


def _list(kubectl: Kubectl, kind: str, namespace: str) -> str:
    return _render(kubectl.list_objects(kind, namespace=namespace))


def _describe_crds(kubectl: Kubectl) -> str:
    """Return the served versions and labels of the pelops.dev CRDs, without their schemas."""
    found = kubectl.list_objects("customresourcedefinitions.apiextensions.k8s.io")
    ours = [one for one in found if one["spec"]["group"] == "pelops.dev"]
    return _render([{**one, "spec": _without_schemas(one["spec"])} for one in ours])


def _without_schemas(spec: Object) -> Object:
    versions = [
        {key: value for key, value in version.items() if key in {"name", "served", "storage"}}
        for version in spec["versions"]
    ]
    return {**spec, "versions": versions}


def _render(objects: Sequence[Any]) -> str:
    return render_yaml({"items": [redact_object(one) for one in objects]})
