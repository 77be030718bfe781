"""`pelops adopt`: a StreamConsumerGroup for workers that already run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.display.tables import Style, Styled
from pelops.cli.display.workload_facts import RedisReference, WorkloadFacts, read_workload
from pelops.cli.display.yaml_text import render_yaml
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.kubectl import GROUPS, Kubectl, KubectlFailed, Object
from pelops.domain.site import page_url

_KINDS: Final = {
    "deploy": "deployments.apps",
    "deployment": "deployments.apps",
    "deployments": "deployments.apps",
    "sts": "statefulsets.apps",
    "statefulset": "statefulsets.apps",
    "statefulsets": "statefulsets.apps",
}
_SECRET_KEYS: Final = ("url", "username", "password", "ca.crt", "tls.crt", "tls.key")
_KEY_NAMES: Final = 'go-template={{range $key, $value := .data}}{{$key}}{{"\\n"}}{{end}}'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add = parser.add_argument
    add(
        "workload",
        metavar="KIND/NAME",
        help="workers that run, such as deploy/order-workers or sts/order-workers",
    )
    add(
        "--stream",
        metavar="KEY",
        help="stream that they read; default: a variable of the pods such as STREAM",
    )
    add(
        "--group",
        metavar="NAME",
        help="consumer group; default: a variable of the pods such as GROUP",
    )
    add(
        "--name",
        metavar="NAME",
        help="name of the StreamConsumerGroup; default: that of the workload",
    )
    add_examples(
        parser,
        "# read what is printed, then apply it: it only reports what Pelops would do",
        "pelops adopt deploy/order-workers -n shop > orders.yaml",
        "",
        "# if no variable of the pods names the stream and the group",
        "pelops adopt sts/order-workers -n shop --stream orders:events --group processing",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the resource as YAML on standard output, facts and doubts on standard error."""
    kubectl = Kubectl.of(arguments, console)
    kind, _, name = arguments.workload.rpartition("/")
    if kind.lower() not in _KINDS or not name:
        raise CommandFailed(
            f"{arguments.workload} is not a workload such as deploy/NAME or sts/NAME",
            code=ExitCode.USAGE,
        )
    facts = read_workload(kubectl.get(_KINDS[kind.lower()], name))
    stream = choose_value("--stream", arguments.stream, facts.streams)
    group = choose_value("--group", arguments.group, facts.groups)
    reference = choose_redis(facts)
    findings = [f"{facts.kind} {facts.namespace}/{facts.name}, {facts.replicas} replicas"]
    findings.append(f"stream {stream[0]} ({stream[1]}), group {group[0]} ({group[1]})")
    findings += describe_redis(facts, reference)
    resource = build_resource(
        facts, reference, name=arguments.name or name, stream=stream[0], group=group[0]
    )
    doubts = [*find_doubts(facts, reference), *_find_others(facts, kubectl)]
    doubts += _check_secret(reference, facts, kubectl)
    doubts += _check_resource(resource, kubectl)
    for finding in findings:
        console.note(Styled("found  ", Style.GOOD), finding)
    for doubt in doubts:
        console.note(Styled("doubt  ", Style.WARNING), doubt)
    comments = [
        "Written by `pelops adopt`. recovery.dryRun only reports what Pelops would do:",
        "apply it, read `pelops status`, then remove the line.",
        *(f"found: {one}" for one in findings),
        *(f"doubt: {one}" for one in doubts),
    ]
    for comment in comments:
        console.line(f"# {comment}")
    console.write(render_yaml(resource).removesuffix("\n"))
    return ExitCode.SUCCESS


def choose_value(
    flag: str, given: str | None, variables: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """Return the value of a flag or of the only variable, and where it is from."""
    if given is not None:
        return given, "argument"
    values = {value for _, value in variables}
    if len(values) == 1:
        return variables[0][1], f"variable {variables[0][0]}"
    seen = ", ".join(f"{name}={value}" for name, value in variables)
    raise CommandFailed(
        f"{flag} is required: "
        + (f"the pods have several variables for it ({seen})" if seen else "no variable names it"),
        code=ExitCode.USAGE,
    )


def choose_redis(facts: WorkloadFacts) -> RedisReference | None:
    """Return the best variable that names a Redis: a Secret before a plain value."""
    return next(iter(sorted(facts.redis, key=lambda one: one.secret is None)), None)


def describe_redis(facts: WorkloadFacts, reference: RedisReference | None) -> Iterator[str]:
    """Yield a sentence on where the address of Redis is from."""
    if reference is None:
        return
    if reference.secret is not None:
        where = f"Secret {reference.secret.secret}, key {reference.secret.key}"
    else:
        where = str(reference.url)
    yield f"{reference.variable} of container {facts.container}: {where}"


def build_resource(
    facts: WorkloadFacts, reference: RedisReference | None, *, name: str, stream: str, group: str
) -> Object:
    """Return the StreamConsumerGroup as JSON; it changes nothing when it is applied."""
    if reference is None:
        redis: Object = {"url": "redis://REDIS-HOST:6379"}
    elif reference.secret is not None:
        redis = {"secretRef": {"name": reference.secret.secret}}
    else:
        redis = {"url": reference.url}
    target: Object = {"name": facts.name}
    if facts.kind != "Deployment":
        target = {"apiVersion": facts.api_version, "kind": facts.kind, **target}
    spec: Object = {"redis": redis, "stream": stream, "group": group, "targetRef": target}
    if len(facts.containers) > 1 and facts.container is not None:
        spec["containerName"] = facts.container
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": name, "namespace": facts.namespace},
        "spec": {**spec, "recovery": {"dryRun": True}},
    }


def find_doubts(facts: WorkloadFacts, reference: RedisReference | None) -> Iterator[str]:
    """Yield what a person has to decide, from the workload alone."""
    if reference is None:
        yield "no variable of the pods names a Redis: write its address into spec.redis" + (
            f" (Secrets of envFrom: {', '.join(facts.secret_prefixes)})"
            if facts.secret_prefixes
            else ""
        )
    elif reference.had_credentials:
        yield (
            f"{reference.variable} has credentials in a plain value; they are not in the resource. "
            "Create a Secret with the keys username and password, and name it in "
            "spec.redis.authSecretRef"
        )
    others = sorted({one.variable for one in facts.redis if one is not reference})
    if reference is not None and others:
        yield f"other variables name a Redis too: {', '.join(others)}"
    if facts.pod_name_variable is None:
        yield (
            "no variable has the name of the pod (fieldRef metadata.name): unless the consumer's "
            "name is the host name, entries of a dead pod wait for the processing timeout"
        )
    if len(facts.containers) > 1 and facts.container is None:
        yield (
            "the pods have several containers, and none names a Redis: set spec.containerName, "
            "else a restart of one container recovers nothing"
        )
    if facts.owner is not None:
        yield f"{facts.owner} made it, and can change it back"
    for owner in facts.replica_owners:
        yield (
            f"replicas: {facts.replicas} is applied by {owner}: leave it out of the manifest "
            "before Pelops scales, else each sync sets it back"
        )


def _find_others(facts: WorkloadFacts, kubectl: Kubectl) -> Iterator[str]:
    """Yield who else manages the workload."""
    scalers = (
        ("HorizontalPodAutoscaler", "horizontalpodautoscalers.autoscaling"),
        ("ScaledObject", "scaledobjects.keda.sh"),
    )
    for title, kind in scalers:
        for scaler in _list(kubectl, kind, facts.namespace):
            target = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
            if (target.get("kind", "Deployment"), target.get("name")) == (facts.kind, facts.name):
                yield (
                    f"{title} {scaler['metadata']['name']} scales it: the resource has no "
                    "spec.scaling. To let Pelops scale, delete it first and then set "
                    f"spec.scaling: {page_url('guides/migrate-from-keda')}"
                )
    for group in _list(kubectl, GROUPS, facts.namespace):
        target = (group.get("spec") or {}).get("targetRef") or {}
        if (target.get("kind", "Deployment"), target.get("name")) == (facts.kind, facts.name):
            yield (
                f"StreamConsumerGroup {group['metadata']['name']} has the same workers: only one "
                f"of them can decide their number: {page_url('guides/several-streams')}"
            )


def _list(kubectl: Kubectl, kind: str, namespace: str) -> list[Object]:
    """The objects of a kind; none if the kind is not served or may not be listed."""
    try:
        return kubectl.list_objects(kind, namespace=namespace)
    except KubectlFailed as error:
        if error.reason not in {"NoSuchKind", "Forbidden", "NotFound"}:
            raise
        return []


def _check_secret(
    reference: RedisReference | None, facts: WorkloadFacts, kubectl: Kubectl
) -> Iterator[str]:
    """Yield a doubt if the Secret has not the keys that Pelops reads. No value leaves kubectl."""
    if reference is None or reference.secret is None:
        return
    secret = reference.secret.secret
    where = f"--namespace={facts.namespace}"
    try:
        printed = kubectl.run("get", "secrets", secret, where, "-o", _KEY_NAMES)
    except KubectlFailed as error:
        yield f"the keys of Secret {secret} cannot be checked: {error}"
        return
    if "url" not in printed.split():
        yield (
            f"Secret {secret} has no key url, which Pelops reads (it has "
            f"{', '.join(printed.split()) or 'none'}): add a Secret with any of the keys "
            f"{', '.join(_SECRET_KEYS)} and name it in spec.redis.secretRef"
        )


def _check_resource(resource: Object, kubectl: Kubectl) -> Iterator[str]:
    """Yield what the API server would say to the resource."""
    try:
        kubectl.create(resource, dry_run=True)
    except KubectlFailed as error:
        if error.reason == "AlreadyExists":
            yield f"StreamConsumerGroup {resource['metadata']['name']} exists already"
        else:
            yield f"the API server would refuse the resource: {error}"
