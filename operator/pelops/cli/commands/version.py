"""`pelops version`: the version of this program, and the images that the operator runs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from pelops.build import describe_build, revision, version
from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_operator_namespace_flag, add_output_flag
from pelops.cli.kubectl import Kubectl
from pelops.cli.operator_pods import OperatorPod, list_operators

API_VERSION: Final = "cli.pelops.dev/v1alpha1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "--client", action="store_true", help="print the version of this program only"
    )
    add_operator_namespace_flag(parser)
    add_output_flag(parser, ("text", "json", "yaml"))
    add_examples(
        parser,
        "# this program and the operator of the cluster",
        "pelops version",
        "",
        "# this program alone, without a cluster",
        "pelops version --client",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print both versions. The exit code is not 0 if the operator is not found."""
    pods: list[OperatorPod] = []
    problem: CommandFailed | None = None
    if not arguments.client:
        try:
            pods = list_operators(
                Kubectl.of(arguments, console), namespace=arguments.operator_namespace
            )
        except CommandFailed as error:
            problem = error
        else:
            if not pods:
                problem = CommandFailed("no operator runs", code=ExitCode.NOT_FOUND)
    images = list(_count_images(pods))
    if console.is_text:
        console.line(f"client    {describe_build()}")
        for image in images:
            console.line(
                f"operator  {image['image']} (namespace {image['namespace']}, "
                f"{image['readyReplicas']} of {image['replicas']} replicas ready)"
            )
    else:
        console.document(
            {
                "apiVersion": API_VERSION,
                "kind": "VersionReport",
                "client": {"version": version(), "revision": revision()},
                "operator": images,
            }
        )
    if problem is not None:
        console.error(f"the version of the operator is unknown: {problem}")
        return problem.code
    return ExitCode.SUCCESS


def _count_images(pods: list[OperatorPod]) -> Iterator[dict[str, Any]]:
    """Yield each image with its replicas: several during an upgrade."""
    replicas = Counter((pod.namespace, pod.image) for pod in pods)
    ready = Counter((pod.namespace, pod.image) for pod in pods if pod.ready)
    for namespace, image in sorted(replicas):
        yield {
            "namespace": namespace,
            "image": image,
            "replicas": replicas[namespace, image],
            "readyReplicas": ready[namespace, image],
        }
