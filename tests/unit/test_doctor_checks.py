"""Verdicts of `pelops doctor` over planted facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import yaml

from pelops.cli.console import Console
from pelops.cli.doctor.cluster import find_refused, read_documents
from pelops.cli.doctor.cluster_observation import (
    image_version,
    list_fields,
    owners_of,
    served_namespaces,
)
from pelops.cli.doctor.examination import (
    explain_unexamined,
    merge_results,
    subject_of_names,
    worst_of,
)
from pelops.cli.doctor.report import parse_document, print_text, render_document
from pelops.cli.errors import CommandFailed
from pelops.cli.main import run as run_command_line
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.state import OwnerRecord, OwnershipRecord
from pelops.domain.stream_observation import ConsumerObservation
from pelops.errors import KubernetesError
from pelops.policy.doctor.check import (
    Category,
    Check,
    CheckResult,
    CheckVerdict,
    Result,
    Unanswered,
    run_checks,
)
from pelops.policy.doctor.cluster_checks import INSTALLATION_CHECKS, TARGET_CHECKS
from pelops.policy.doctor.facts import (
    AccessRight,
    ClockFacts,
    DeniedCommand,
    ExternalAutoscaler,
    GroupFacts,
    Installation,
    InstallationFacts,
    NodeClock,
    RedisNodeFacts,
    ResourceFacts,
    ServedKind,
    ServerFacts,
    ServerKindFacts,
    TargetFacts,
    WorkerFacts,
)
from pelops.policy.doctor.group_checks import CLOCK_CHECKS, GROUP_CHECKS, WORKER_CHECKS
from pelops.policy.doctor.rights import OPERATOR_RIGHTS
from pelops.policy.doctor.server_checks import SERVER_CHECKS
from tests import builders
from tests.builders import NOW
from tests.control_plane.rights import BASE, NAMESPACE_ROLE
from tests.operators import ROOT
from tests.unit.conftest import Install

HOUR = timedelta(hours=1)
KEYS = derive_keys("orders", "workers")
INFO = {
    "loading": "0",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "used_memory": "1048576",
    "maxmemory": "0",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "connected_slaves": "0",
    "connected_clients": "10",
    "maxclients": "10000",
}
CONFIG = {
    "save": "",
    "min-replicas-to-write": "0",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 0 60",
}
KIND = ServerKindFacts(flavour="redis", version=(8, 6, 1), topology="standalone")
RESOURCE = ResourceFacts(
    namespace="shop",
    name="orders",
    uid="uid-1",
    strategy="Requeue",
    scaling_mode="Auto",
    target="Deployment orders-workers",
)
STREAM = builders.stream(ownership=None)
CLOCKS = ClockFacts(
    reader="the operator",
    ahead=timedelta(0),
    uncertainty=timedelta(milliseconds=1),
    nodes=(NodeClock(node="worker-1", ahead=timedelta(seconds=-9)),),
    allowed=timedelta(seconds=2),
)
TARGET = TargetFacts(resource=RESOURCE, exists=True, autoscalers=(), replicas_owners=())
OPERATOR = Installation(namespace="pelops-system", replicas=2, version="0.1.0", serves=frozenset())
INSTALLATION = InstallationFacts(
    kubernetes=(1, 36),
    kinds=(ServedKind(kind="StreamConsumerGroup", is_served=True, missing=()),),
    installations=(OPERATOR,),
    version="0.1.0",
    subject="the operator",
    scope="all namespaces",
    refused=(),
)


def server(
    info: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None, **other: Any
) -> ServerFacts:
    node = RedisNodeFacts(
        address="redis:6379", info=INFO | dict(info or {}), config=CONFIG | dict(config or {})
    )
    facts: dict[str, Any] = {"kind": KIND, "nodes": (node,), "denied": ()}
    return ServerFacts(**facts | other)


def group(**other: Any) -> GroupFacts:
    types = {KEYS.stream: "stream", KEYS.state: "hash"}
    facts: dict[str, Any] = {"keys": KEYS, "topology": "standalone", "types": types}
    facts |= {"stream": STREAM, "groups": ("workers",), "resource": RESOURCE}
    return GroupFacts(**facts | other)


def workers(*names: str, idle: timedelta = timedelta(0), pending: int = 0) -> WorkerFacts:
    consumers = (ConsumerObservation(name=name, pending=pending, idle=idle) for name in names)
    pods, others = (builders.pod(name="web-abcde"),), frozenset({"laptop-1"})
    return WorkerFacts(consumers=tuple(consumers), pods=pods, others=others, has_workload=True)


CHECKS: dict[type, tuple[Category, Sequence[Check[Any]]]] = {
    ServerFacts: (Category.REDIS, SERVER_CHECKS),
    GroupFacts: (Category.GROUP, GROUP_CHECKS),
    ClockFacts: (Category.CLOCKS, CLOCK_CHECKS),
    WorkerFacts: (Category.WORKERS, WORKER_CHECKS),
    TargetFacts: (Category.TARGET, TARGET_CHECKS),
    InstallationFacts: (Category.INSTALLATION, INSTALLATION_CHECKS),
}


def judge(facts: Any) -> dict[str, CheckResult]:
    """The checks of the category of these facts, by their IDs."""
    category, checks = CHECKS[type(facts)]
    return {one.id: one for one in run_checks(category, checks, facts)}


@pytest.mark.parametrize(
    "facts", [server(), group(), CLOCKS, workers("web-abcde"), TARGET, INSTALLATION]
)
def test_healthy_facts_have_no_fault(facts: Any) -> None:
    found = judge(facts)
    assert {one.result for one in found.values()} == {Result.OK}, found


NODE = RedisNodeFacts(address="a:1", info=INFO, config=Unanswered("CONFIG GET is refused"))
READ_ONLY_NODE = replace(NODE, address="b:2", info=INFO | {"role": "slave"})
OTHER = replace(OPERATOR, namespace="other", replicas=1)
SCALED_OBJECT = (ExternalAutoscaler(kind="ScaledObject", name="s"),)
UNSCALED = replace(RESOURCE, scaling_mode="Disabled")
AHEAD = builders.group(last_delivered_id=EntryId(1800000000000))
ELSEWHERE = derive_keys("orders", "workers", dead_letter="other")


def denied(*keys: str) -> ServerFacts:
    return server(denied=tuple(DeniedCommand(command="xadd", key=key) for key in keys))


def owned_by(uid: str, name: str, *, minutes: int) -> GroupFacts:
    """A group whose ownership record ends so many minutes after its observation."""
    owner = OwnerRecord(uid=uid, cluster="", namespace="shop", name=name, created=NOW)
    record = OwnershipRecord(owner=owner, owned_until=NOW + timedelta(minutes=minutes))
    return group(stream=replace(STREAM, ownership=record))


def node_clock(ahead_s: float) -> ClockFacts:
    return replace(CLOCKS, nodes=(NodeClock(node="n-1", ahead=timedelta(seconds=ahead_s)),))


def redis_clock(ahead_s: float, uncertainty_s: float = 0.001) -> ClockFacts:
    uncertainty = timedelta(seconds=uncertainty_s)
    return replace(CLOCKS, ahead=timedelta(seconds=ahead_s), uncertainty=uncertainty)


def crd(kind: str = "K", *, is_served: bool = True, **fields: Any) -> InstallationFacts:
    return replace(
        INSTALLATION,
        kinds=(ServedKind(kind=kind, is_served=is_served, **{"missing": (), **fields}),),
    )


def operators(*installations: Installation, **named: Any) -> InstallationFacts:
    return replace(INSTALLATION, installations=installations, **named)


def refused(resource: str, verb: str, *, is_needed: bool = True) -> InstallationFacts:
    right = AccessRight(group="", resource=resource, verb=verb, is_needed=is_needed)
    return replace(INSTALLATION, refused=(right,))


class Planted(NamedTuple):
    check: str
    result: str
    words: str
    facts: Any


PLANTED = [
    # The server.
    Planted("connection", "error", "refused", server(kind=Unanswered("connection refused"))),
    Planted("version", "error", "7.0.0 or later", server(kind=replace(KIND, version=(6, 2, 1)))),
    Planted("version", "unknown", "INFO", server(kind=replace(KIND, version=None))),
    Planted("writes", "error", "loads", server({"loading": "1"})),
    Planted("writes", "error", "read-only replica", server({"role": "slave"})),
    Planted("writes", "error", "b:2: is a read-only", server(nodes=(NODE, READ_ONLY_NODE))),
    Planted("acl", "error", "forbids 1 command: xadd on a", denied("a")),
    Planted("acl", "error", "xadd on a and 2 more keys", denied("a", "b", "c")),
    Planted("eviction", "warning", "allkeys-lru", server({"maxmemory_policy": "allkeys-lru"})),
    Planted("eviction", "unknown", "INFO does not show", server({"maxmemory_policy": "\x1b[31m"})),
    Planted("memory", "warning", "87 %", server({"maxmemory": "1200000"})),
    Planted("memory", "error", "100 %", server({"maxmemory": "1048576"})),
    Planted("persistence", "error", "to disk failed", server({"aof_last_write_status": "err"})),
    Planted("persistence", "warning", "loses every stream", server({"aof_enabled": "0"})),
    Planted(
        "persistence",
        "warning",
        "since the last save point",
        server({"aof_enabled": "0"}, {"save": "60 1"}),
    ),
    Planted(
        "persistence",
        "unknown",
        "CONFIG GET is refused",
        server(nodes=(replace(NODE, info=INFO | {"aof_enabled": "0"}),)),
    ),
    Planted("replication", "warning", "2 replicas", server({"connected_slaves": "2"})),
    Planted("replication", "error", "no replica is good", server({"min_slaves_good_slaves": "0"})),
    Planted(
        "replication",
        "error",
        "min-replicas-to-write is 2",
        server({"min_slaves_good_slaves": "1"}, {"min-replicas-to-write": "2"}),
    ),
    Planted("clients", "warning", "9500 of 10000", server({"connected_clients": "9500"})),
    Planted(
        "output-buffers",
        "warning",
        "1.0 MiB",
        server(config={"client-output-buffer-limit": "normal 1048576 0 0"}),
    ),
    Planted("output-buffers", "unknown", "CONFIG GET is refused", server(nodes=(NODE,))),
    # The group.
    Planted("key-types", "error", "ledger is a string", group(types={KEYS.ledger: "string"})),
    Planted("slots", "error", "cannot write both", group(topology="cluster", keys=ELSEWHERE)),
    Planted("slots", "warning", "fails on a Redis Cluster", group(keys=ELSEWHERE)),
    Planted("group", "warning", "does not exist", group(stream=replace(STREAM, exists=False))),
    Planted("group", "warning", "group workers", group(stream=replace(STREAM, group=None))),
    Planted(
        "group",
        "error",
        "ahead of the stream",
        group(stream=replace(STREAM, group=AHEAD)),
    ),
    Planted("other-groups", "error", "'b'", group(groups=("workers", "b"))),
    Planted("other-groups", "warning", "'b'", group(groups=("workers", "b"), resource=None)),
    Planted(
        "other-groups",
        "ok",
        "RetryStream",
        group(groups=("workers", "b"), resource=replace(RESOURCE, strategy="RetryStream")),
    ),
    Planted("manager", "error", "'shop/theirs'", owned_by("uid-2", "theirs", minutes=1)),
    Planted("manager", "ok", "no other", owned_by("uid-2", "theirs", minutes=-1)),
    Planted("manager", "error", "of another cluster", owned_by("uid-2", "orders", minutes=1)),
    # Clocks.
    Planted("clock", "warning", "6.4 s behind that of Redis", redis_clock(6.4)),
    Planted("clock", "warning", "5.0 s ahead of that of Redis", redis_clock(-6, 1)),
    Planted("clock", "ok", "agrees", redis_clock(3, 2)),
    Planted("node-clocks", "error", "node n-1 (6.0 s)", node_clock(6)),
    Planted("node-clocks", "warning", "node n-1 (60.0 s)", node_clock(-60)),
    # Workers and their workload.
    Planted("consumer-names", "warning", "1 of 2 consumers", workers("web-abcde", "laptop")),
    Planted("consumer-names", "warning", "'laptop-1'", workers("laptop-1")),
    Planted("consumer-names", "warning", "3 pending entries", workers("x", idle=HOUR, pending=3)),
    Planted("consumer-names", "ok", "0 consumers", workers("x", idle=HOUR)),
    Planted("target", "error", "does not exist", replace(TARGET, exists=False)),
    Planted("autoscalers", "error", "ScaledObject s", replace(TARGET, autoscalers=SCALED_OBJECT)),
    Planted(
        "autoscalers",
        "ok",
        "Disabled",
        replace(TARGET, autoscalers=SCALED_OBJECT, resource=UNSCALED),
    ),
    Planted("replicas-owner", "warning", "argocd", replace(TARGET, replicas_owners=("argocd",))),
    # The installation.
    Planted("kubernetes", "error", "1.29 is too old", replace(INSTALLATION, kubernetes=(1, 29))),
    Planted("crds", "error", "not serve StreamAudit", crd("StreamAudit", is_served=False)),
    Planted("crds", "error", "older than this program", crd(missing=("spec.a",))),
    Planted("crds", "warning", "newer than this program", crd(unknown=("spec.b",))),
    Planted("operators", "error", "no replica", operators()),
    Planted(
        "operators",
        "error",
        "serve the same resources",
        operators(OTHER, replace(OTHER, namespace="x")),
    ),
    Planted(
        "operators",
        "warning",
        "is not known",
        operators(OTHER, replace(OTHER, namespace="x", serves=None)),
    ),
    Planted(
        "operators",
        "ok",
        "namespace x",
        operators(
            replace(OTHER, serves=frozenset("a")),
            replace(OTHER, namespace="x", serves=frozenset("b")),
        ),
    ),
    Planted("operators", "warning", "already", operators(OTHER, is_before=True)),
    Planted("operator-version", "warning", "0.2.0", operators(replace(OTHER, version="0.2.0"))),
    Planted("rights", "error", "may not list pods in all namespaces", refused("pods", "list")),
    Planted("rights", "ok", "optional ones: get nodes", refused("nodes", "get", is_needed=False)),
]


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: f"{case.check}: {case.words}")
def test_a_planted_fact_is_found_by_its_own_check_alone(case: Planted) -> None:
    results = judge(case.facts)
    found = results.pop(case.check)
    assert found.result == case.result, found.message
    assert case.words in found.message
    assert (found.result in {Result.OK, Result.UNKNOWN}) or found.hint
    assert all(other.result is not Result.ERROR for other in results.values())


def test_a_fact_that_is_missing_hides_no_other_check() -> None:
    found = judge(group(stream=Unanswered("a reason"), groups=("workers", "b")))
    assert found["group"].result is Result.UNKNOWN
    assert found["group"].message == "a reason"
    assert found["other-groups"].result is Result.ERROR


def test_a_check_that_fails_hides_no_other_check() -> None:
    def fail(facts: None) -> CheckVerdict:
        raise KeyError("a fault")

    fine: Check[None] = Check("fine", "fine", lambda _: CheckVerdict(Result.OK, "fine"))
    found = run_checks(Category.REDIS, [Check("broken", "broken", fail), fine], None)
    assert [one.result for one in found] == [Result.UNKNOWN, Result.OK]
    assert "a fault" not in found[0].message


def test_checks_have_distinct_ids_and_sections_in_the_runbook() -> None:
    ids = [check.id for _, checks in CHECKS.values() for check in checks]
    assert len(set(ids)) == len(ids)
    page = (ROOT / "docs/runbook/doctor.md").read_text()
    sections = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    assert sections == ids


def test_the_rights_are_those_of_the_manifests() -> None:
    reviewed = {(one.group, one.resource, one.verb) for one in OPERATOR_RIGHTS}
    granted = _granted((BASE / "cluster_role.yaml").read_text(), "ClusterRole")
    assert reviewed == granted
    optional = {(one.group, one.resource, one.verb) for one in OPERATOR_RIGHTS if not one.is_needed}
    of_a_namespace = _granted(NAMESPACE_ROLE.read_text(), "Role")
    assert reviewed - of_a_namespace <= optional


def _granted(text: str, kind: str) -> set[tuple[str, str, str]]:
    return {
        (api_group, resource, verb)
        for manifest in yaml.safe_load_all(text)
        if manifest["kind"] == kind
        for rule in manifest["rules"]
        for api_group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def managed(manager: str, operation: str, replicas: int, **entry: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    one = {"manager": manager, "operation": operation, "fieldsV1": fields, **entry}
    return {"metadata": {"managedFields": [one]}, "spec": {"replicas": replicas}}


def applied(text: str) -> dict[str, Any]:
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    return {"metadata": {"annotations": {annotation: text}}}


@pytest.mark.parametrize(
    ("found", "owners"),
    [
        (managed("argocd-controller", "Apply", 1), ("argocd-controller",)),
        (managed("kubectl-edit", "Update", 4), ("kubectl-edit",)),
        (managed("kubectl-create", "Update", 1), ()),
        (managed("pelops", "Apply", 4), ()),
        (managed("kube-controller-manager", "Update", 4, subresource="scale"), ()),
        (applied('{"spec": {"replicas": 2}}'), ("kubectl apply",)),
        (applied("["), ()),
    ],
)
def test_who_sets_replicas_is_read_from_the_workload(
    found: dict[str, Any], owners: tuple[str, ...]
) -> None:
    assert owners_of(found) == owners


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry:5000/pelops-operator:0.1.0", "0.1.0"),
        ("pelops-operator:v1.2.3-rc.1@sha256:00", "1.2.3-rc.1"),
        ("registry:5000/pelops-operator", None),
        ("pelops-operator:latest", None),
    ],
)
def test_the_version_of_an_operator_is_the_tag_of_its_image(
    image: str, version: str | None
) -> None:
    assert image_version(image) == version


def test_the_served_namespaces_are_read_from_the_environment() -> None:
    named = {"env": [{"name": "PELOPS_NAMESPACE", "value": "a,b c"}]}
    assert served_namespaces(named) == frozenset({"a", "b", "c"})
    assert served_namespaces({"name": "operator"}) == frozenset()
    referred = {"env": [{"name": "PELOPS_NAMESPACE", "valueFrom": {}}]}
    assert served_namespaces(referred) is None


def test_fields_of_a_schema_are_listed_with_their_values() -> None:
    items: dict[str, Any] = {"properties": {"x": {}}}
    spec = {"properties": {"mode": {"enum": ["Auto"]}, "list": {"items": items}}}
    metadata: dict[str, Any] = {"properties": {"name": {}}}
    fields = ["spec", "spec.mode", "spec.mode=Auto", "spec.list", "spec.list[].x"]
    assert list(list_fields({"properties": {"metadata": metadata, "spec": spec}})) == fields


def test_documents_of_kubectl_are_read_one_after_the_other() -> None:
    text = '{"a": 1}\n{"kind": "List", "items": [{"b": 2}]}\n'
    assert read_documents(text) == [{"a": 1}, {"b": 2}]
    with pytest.raises(KubernetesError):
        read_documents("Error")


def test_a_right_whose_review_is_not_answered_is_no_right() -> None:
    right = AccessRight(group="", resource="pods", verb="list")
    assert find_refused([right], [{"status": {"allowed": True}}]) == []
    assert find_refused([right], [{}]) == [right]
    with pytest.raises(KubernetesError):
        find_refused([right], [])


def result(name: str, of: Result, *, message: str = "m", hint: str = "") -> CheckResult:
    return CheckResult(
        id=name, category=Category.REDIS, title=name, result=of, message=message, hint=hint
    )


def test_the_checks_of_the_cluster_need_no_package() -> None:
    program = (
        "import sys, pelops.cli.commands.doctor, pelops.cli.doctor.examination\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"redis", "hiredis", "kubernetes", "pydantic", "aiohttp", "yaml", "prometheus_client"}
    assert not heavy & set(done.stdout.split())


def test_two_runs_are_merged_and_an_answer_wins() -> None:
    first = [result("a", Result.UNKNOWN), result("b", Result.ERROR)]
    second = [result("a", Result.OK), result("b", Result.OK), result("c", Result.OK)]
    merged = {one.id: one.result for one in merge_results(first, second)}
    assert merged == {"a": Result.OK, "b": Result.ERROR, "c": Result.OK}


@pytest.mark.parametrize(
    ("found", "worst"),
    [
        ((), Result.ERROR),
        ((Result.UNKNOWN, Result.UNKNOWN), Result.ERROR),
        ((Result.OK, Result.UNKNOWN), Result.UNKNOWN),
        ((Result.UNKNOWN, Result.WARNING), Result.WARNING),
        ((Result.WARNING, Result.ERROR, Result.UNKNOWN), Result.ERROR),
        ((Result.OK, Result.OK), Result.OK),
    ],
)
def test_a_report_is_ok_only_if_every_check_has_an_answer(
    found: tuple[Result, ...], worst: Result
) -> None:
    results = [result(str(at), one) for at, one in enumerate(found)]
    assert worst_of(results) is worst
    assert render_document(results)["result"] == worst.value


@pytest.mark.parametrize(("words", "checks"), [(("doctor",), 5), (("doctor", "--pre"), 4)])
def test_without_an_api_server_nothing_is_checked_and_doctor_exits_1(
    words: tuple[str, ...], checks: int, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("kubectl", "echo 'Unable to connect to the server: EOF' >&2\nexit 1\n")
    assert run_command_line(list(words)) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"\N{MULTIPLICATION SIGN} nothing could be checked: {checks} checks have no answer"
    )
    assert run_command_line([*words, "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["result"] == "error"


def test_a_report_is_read_as_it_was_written() -> None:
    found = explain_unexamined("a reason", subject_of_names("orders", "workers"))
    assert parse_document(json.dumps(render_document(found))) == found


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "Pod"}', '{"kind": "DoctorReport"}'])
def test_an_answer_that_is_no_report_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(CommandFailed, match="did not answer with a report"):
        parse_document(text)


def test_the_text_joins_what_has_no_answer_for_one_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        result("a", Result.OK, message="well"),
        result("b", Result.UNKNOWN, message="no answer"),
        result("c", Result.UNKNOWN, message="no answer"),
        result("d", Result.ERROR, message="broken \x1b[2J", hint="mend it"),
    ]
    print_text(found, Console(), is_short=False)
    text = capsys.readouterr().out
    assert text.splitlines() == [
        "redis",
        "-----",
        "√ well",
        "? not checked: b, c: no answer",
        "\N{MULTIPLICATION SIGN} broken \\x1b[2J",
        "    mend it",
        "    https://pelops.dev/docs/latest/runbook/doctor/#d",
        "",
        "\N{MULTIPLICATION SIGN} 1 error, 0 warnings, 1 passed, 2 not checked",
    ]
    print_text(found, Console(), is_short=True)
    assert "√ well" not in capsys.readouterr().out
