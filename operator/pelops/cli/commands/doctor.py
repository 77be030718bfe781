"""`pelops doctor`: what is wrong, or soon will be, with Redis, the cluster and one group."""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.doctor.cluster import ApiCluster, ClusterReader, KubectlCluster, Object
from pelops.cli.doctor.report import parse_document, print_text, render_document
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_operator_namespace_flag
from pelops.cli.kubectl import Kubectl
from pelops.errors import Forbidden, NotFound, PelopsError
from pelops.policy.doctor.check import CheckResult, Fact, Result, Unanswered

if TYPE_CHECKING:
    from pelops.controller.runtime.connections import Connections
    from pelops.redis_core.server import Server

EXEC_TIMEOUT_S: Final = 120.0
_HERE: Final = "this machine"
_OPERATOR: Final = "the operator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add = parser.add_argument
    add(
        "name",
        nargs="?",
        metavar="NAME",
        help="StreamConsumerGroup; default: the installation alone",
    )
    add("--pre", action="store_true", help="check what an installation needs, before it")
    add(
        "--redis-url",
        metavar="URL",
        help="read Redis from this machine, not in the operator; with a password it is visible to "
        "other users of the machine",
    )
    add("--stream", help="with --redis-url and without NAME: stream to check")
    add("--group", help="with --redis-url and without NAME: group of the stream")
    add_operator_namespace_flag(parser)
    add("--output", "-o", choices=["text", "short", "json"], default="text",
        help="format; short: problems only")  # fmt: skip
    add(
        "--in-operator",
        action="store_true",
        help=argparse.SUPPRESS,  # for `kubectl exec`: only the checks that need Redis
    )
    add_examples(
        parser,
        "# before an installation: Kubernetes, and your rights to install",
        "pelops doctor --pre",
        "",
        "# one group with its Redis and its workers; problems only",
        "pelops doctor orders -n shop -o short",
        "",
        "# without a cluster: a Redis, and a group on it",
        "pelops doctor --redis-url redis://localhost:6379 --stream orders --group billing",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the checks and print them; 1 if one found an error."""
    _check_flags(arguments)
    if arguments.in_operator:
        results = asyncio.run(_examine_in_operator(arguments))
    else:
        results = asyncio.run(_examine(arguments, console))
    return _print(results, arguments, console)


def _check_flags(arguments: argparse.Namespace) -> None:
    names = (arguments.stream, arguments.group)
    if any(names) and (not all(names) or arguments.name or not arguments.redis_url):
        raise CommandFailed(
            "--stream and --group are for --redis-url without NAME, and need each other",
            code=ExitCode.USAGE,
        )
    if arguments.pre and arguments.name:
        raise CommandFailed("--pre takes no NAME: nothing is installed yet", code=ExitCode.USAGE)
    if arguments.in_operator and not arguments.name:
        raise CommandFailed("--in-operator needs NAME", code=ExitCode.USAGE)


def _print(results: list[CheckResult], arguments: argparse.Namespace, console: Console) -> int:
    from pelops.cli.doctor.examination import worst_of

    if arguments.output == "json":
        console.document(render_document(results))
    else:
        print_text(results, console, is_short=arguments.output == "short")
    return ExitCode.PROBLEM if worst_of(results) is Result.ERROR else ExitCode.SUCCESS


async def _examine(arguments: argparse.Namespace, console: Console) -> list[CheckResult]:
    from pelops.cli.doctor.examination import examine_cluster, merge_results

    kubectl = Kubectl.of(arguments, console)
    if arguments.redis_url and not arguments.name and not arguments.pre:
        return await _examine_redis_here(arguments, None, None)
    cluster = KubectlCluster(kubectl)
    manifest = None
    if arguments.name:
        manifest = await _read_manifest(cluster, kubectl.namespace, arguments.name)
    results = await examine_cluster(cluster, manifest, is_before=arguments.pre, subject=None)
    of_redis: list[CheckResult] = []
    if arguments.redis_url:
        of_redis = await _examine_redis_here(arguments, cluster, manifest)
    elif manifest is not None:
        of_redis = await asyncio.to_thread(_ask_operator, kubectl, arguments, manifest)
    return merge_results(of_redis, results)


async def _read_manifest(cluster: ClusterReader, namespace: str, name: str) -> Object:
    from pelops.cli.doctor.cluster_observation import find_resource

    try:
        return await find_resource(cluster, namespace, name)
    except (NotFound, Forbidden) as error:
        raise CommandFailed(str(error), code=ExitCode.NOT_FOUND) from error


async def _examine_redis_here(
    arguments: argparse.Namespace, cluster: ClusterReader | None, manifest: Object | None
) -> list[CheckResult]:
    from pelops.cli.doctor.examination import subject_of, subject_of_names
    from pelops.cli.doctor.redis_examination import examine_redis
    from pelops.domain.endpoint import parse_redis_url
    from pelops.redis_streams.doctor.server_observation import close, connect

    names = (arguments.stream, arguments.group)
    subject = subject_of_names(*names) if manifest is None else subject_of(manifest)
    server = await connect(parse_redis_url(arguments.redis_url))
    try:
        return await examine_redis(server, subject, cluster, reader=_HERE)
    finally:
        await close(server)


def _ask_operator(
    kubectl: Kubectl, arguments: argparse.Namespace, manifest: Object
) -> list[CheckResult]:
    """The checks that need Redis, run in a replica of the operator."""
    from pelops.cli.doctor.examination import explain_unexamined, subject_of
    from pelops.cli.operator_pods import run_in_operator

    metadata = manifest["metadata"]
    command = ["pelops", "doctor", metadata["name"], "-n", metadata["namespace"], "--in-operator"]
    try:
        done = run_in_operator(
            kubectl,
            [*command, "-o", "json"],
            namespace=arguments.operator_namespace,
            timeout_s=EXEC_TIMEOUT_S,
        )
        if not done.output.strip():
            raise CommandFailed(done.errors.strip() or "the operator did not answer")
        return parse_document(done.output)
    except CommandFailed as error:
        why = f"the operator could not be asked ({error}); --redis-url reads Redis from here"
        return explain_unexamined(why, subject_of(manifest))


async def _examine_in_operator(arguments: argparse.Namespace) -> list[CheckResult]:
    """The checks that need Redis, and the operator's own rights; runs in its container."""
    import os

    from pelops.cli.doctor.examination import examine_own_rights, subject_of
    from pelops.cli.doctor.redis_examination import examine_redis
    from pelops.controller.runtime.connections import Connections, Secrets
    from pelops.controller.runtime.settings import parse_settings
    from pelops.kube.client import KubeApi
    from pelops.redis_core.pool import ServerPool

    settings = parse_settings([], os.environ)
    namespace = getattr(arguments, "namespace", None) or "default"
    api = await KubeApi.connect(settings.kubeconfig)
    pool = ServerPool()
    try:
        cluster = ApiCluster(api)
        manifest = await _read_manifest(cluster, namespace, arguments.name)
        connections = Connections(
            pool, Secrets(api, asyncio.get_running_loop().time), settings.address_rules
        )
        results = await examine_redis(
            await _connect_as_operator(connections, manifest),
            subject_of(manifest),
            cluster,
            reader=_OPERATOR,
            skew=timedelta(seconds=settings.skew_s),
        )
        return [*results, *await examine_own_rights(cluster, namespace)]
    finally:
        await pool.close()
        await api.close()


async def _connect_as_operator(connections: Connections, manifest: Object) -> Fact[Server]:
    """The server of a resource with the credentials of its Secrets, or why there is none."""
    from pelops.api.group.stream_consumer_group import StreamConsumerGroup
    from pelops.controller.runtime.connections import explain_unreachable

    namespace = manifest["metadata"]["namespace"]
    try:
        redis = StreamConsumerGroup.parse(manifest).spec.redis
    except PelopsError as error:
        return Unanswered(str(error))
    try:
        return await connections.server(redis, namespace)
    except PelopsError as error:
        return Unanswered(explain_unreachable(error, redis, namespace).message)
