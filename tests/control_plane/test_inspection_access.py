"""Who may ask the operator about entries over HTTP, through the API server and beside it."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.cli.inspection import AUDIENCE as AUDIENCE_OF_CLI
from pelops.cli.inspection import SERVICE
from pelops.controller.inspection.inspection_server import AUDIENCE, PATH
from tests.cluster_fixtures import FAST
from tests.e2e.command_line import CommandLine, Ended
from tests.operators import ROOT, Operators, Resources, sleeping_template

ROLES = ROOT / "manifests" / "components" / "inspection" / "roles.yaml"
SYSTEM = "pelops-system"
TIMEOUT_S = 60.0
NAME = "orders"
MEMBER = "member-of-the-team"
POD = "operator-of-inspections"

Object = dict[str, Any]


def _address() -> str:
    """An address of this machine that is not loopback: the API server proxies to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))
        return str(probe.getsockname()[0])


def _service(port: int) -> list[Object]:
    """The operator's Service. The API server proxies to addresses of pods alone."""
    target = {"kind": "Pod", "name": POD, "namespace": SYSTEM}
    address = {"ip": _address(), "targetRef": target}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD, "namespace": SYSTEM},
            "spec": {
                "schedulerName": "nobody",
                "securityContext": {
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "operator",
                        "image": "local/operator",
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }
                ],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": SYSTEM},
            "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": SERVICE, "namespace": SYSTEM},
            "subsets": [{"addresses": [address], "ports": [{"name": "http", "port": port}]}],
        },
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A group with one entry, an operator that answers over HTTP, and the users of a namespace."""

    plane: ControlPlane
    namespace: str
    port: int
    entry: str
    kubeconfig: Path  # of a member of the service team

    def grant(self, account: str, *resources: str) -> None:
        """Let a ServiceAccount get these resources of the namespace."""
        names = {"name": f"{account}-{len(resources)}", "namespace": self.namespace}
        rbac = "rbac.authorization.k8s.io"
        role = {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": names,
            "rules": [
                {"apiGroups": ["pelops.dev"], "resources": list(resources), "verbs": ["get"]}
            ],
        }
        binding = {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": names,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": names["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        }
        self.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([role, binding]))

    def token(self, account: str, audience: str | None = AUDIENCE) -> str:
        """A token of a ServiceAccount; None: for the API server."""
        wanted = [] if audience is None else [f"--audience={audience}"]
        done = self.plane.kubectl("create", "token", account, "-n", self.namespace, *wanted)
        return done.stdout.strip()

    def ask(
        self, token: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> tuple[int, Object]:
        """Ask beside the API server, as any client that reaches the pod can."""
        body: Object = {
            "command": "why",
            "namespace": self.namespace,
            "name": NAME,
            "id": self.entry,
            **more,
        }
        if token is not None:
            body["token"] = token
        request = urllib.request.Request(
            f"http://{_address()}:{self.port}{PATH}",
            data=json.dumps(body).encode(),
            headers=dict(headers or {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@pytest.fixture
def scene(
    plane: ControlPlane, tmp_path: Path, namespace: str, redis_86: StandaloneServers
) -> Iterator[Scene]:
    stream = f"orders-{namespace}"
    environment = FAST | {"PELOPS_INSPECTION": "token", "PELOPS_HTTP_HOST": "0.0.0.0"}
    plane.kubectl("apply", "-f", str(ROLES))
    resources = Resources(plane, namespace)
    with Operators(plane, tmp_path, environment=environment) as operators:
        operators.start(1)
        spec = {"redis": {"url": redis_86.url}, "stream": stream}
        resources.apply(NAME, {**spec, "template": sleeping_template(), "replicas": 0})
        resources.await_condition(NAME, reason="Ready")
        entry = redis_86.cli("XADD", stream, "*", "order_id", "4711").strip()
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_service(operators.ports[0])))
        status = {"phase": "Running", "podIP": _address(), "podIPs": [{"ip": _address()}]}
        plane.kubectl(
            *("patch", "pod", POD, "-n", SYSTEM, "--subresource=status", "--type=merge"),
            *("--patch", json.dumps({"status": status})),
        )
        for account in ("viewer", "other"):
            plane.kubectl("create", "serviceaccount", account, "-n", namespace)
        found = Scene(
            plane=plane,
            namespace=namespace,
            port=operators.ports[0],
            entry=entry,
            kubeconfig=plane.kubeconfig_for(MEMBER),
        )
        found.grant("viewer", "streamconsumergroups")
        yield found
    for kind, name in (("service", SERVICE), ("endpoints", SERVICE), ("pod", POD)):
        now = ("--ignore-not-found", "--grace-period=0", "--force")
        plane.kubectl("delete", kind, name, "-n", SYSTEM, *now)
    plane.kubectl("delete", "-f", str(ROLES))


def _allow_way(plane: ControlPlane, namespace: str) -> None:
    """Give the member of the team the rights that the guide lists."""
    plane.kubectl(
        *("create", "rolebinding", f"{namespace}-proxy", "-n", SYSTEM, f"--user={MEMBER}"),
        "--role=pelops-inspection-proxy",
    )
    plane.kubectl(
        *("create", "role", "tokens", "-n", namespace, "--verb=create"),
        "--resource=serviceaccounts/token",
    )
    plane.kubectl(
        *("create", "rolebinding", "tokens", "-n", namespace, f"--user={MEMBER}", "--role=tokens")
    )


def test_only_the_token_of_a_request_decides_about_access(scene: Scene) -> None:
    viewer, other = scene.token("viewer"), scene.token("other")

    def answered() -> Object | None:
        status, answer = scene.ask(viewer)
        return answer if status == 200 else None

    answer = wait_until(answered, timeout_s=TIMEOUT_S, what="an answer", every_s=0.2)
    assert answer is not None
    assert (answer["kind"], answer["state"]) == ("EntryReport", "Undelivered")
    assert "fields" not in answer["entry"]
    status, refused = scene.ask(other)
    assert (status, refused["reason"]) == (403, "Forbidden")
    assert "may not get streamconsumergroups 'orders'" in refused["message"]
    # The values of fields are another right, and so is a search by them.
    for more in ({"payload": True}, {"id": "", "field": "order_id", "value": "4711"}):
        status, refused = scene.ask(viewer, **more)
        assert status == 403
        assert "streamconsumergroups/payloads" in refused["message"]
    # A right in this namespace is none in another one, known or not.
    for where in ("default", "pelops-system", "nothing"):
        assert scene.ask(viewer, namespace=where)[0] == 403
    # No header names a user, and a token of the API server's own audience is not for this.
    forged: dict[str, str] = {
        "X-Remote-User": "system:admin",
        "X-Remote-Group": "system:masters",
        "Impersonate-User": f"system:serviceaccount:{scene.namespace}:viewer",
        "Authorization": f"Bearer {viewer}",
    }
    assert scene.ask(None, forged)[0] == 401
    assert scene.ask(other, forged)[0] == 403
    assert scene.ask(scene.token("viewer", None))[0] == 401
    assert scene.ask(f"{viewer[:-8]}AAAAAAAA")[0] == 401
    assert scene.ask(viewer, command="drop")[0] == 400


@pytest.mark.full
def test_the_api_server_proxy_passes_the_token_and_no_identity(
    scene: Scene,
) -> None:
    path = f"/api/v1/namespaces/{SYSTEM}/services/http:{SERVICE}:http/proxy{PATH}"
    question = {"command": "why", "namespace": scene.namespace, "name": NAME, "id": scene.entry}

    def administrator() -> str:
        asked = json.dumps(question)
        done = scene.plane.kubectl("create", "--raw", path, "-f", "-", stdin=asked, check=False)
        return done.stderr

    # Without a token in the body, the operator refuses even the administrator.
    try:
        wait_until(
            lambda: "no valid token" in administrator(),
            timeout_s=TIMEOUT_S,
            what="the way through the API server",
            every_s=0.5,
        )
    except TimeoutError as error:
        raise AssertionError(administrator()) from error
    member = CommandLine(scene.plane, scene.namespace, scene.kubeconfig)
    ask = ("why", NAME, scene.entry, "--service-account")
    refused = member(*ask, "viewer")
    assert refused.code == 3, refused.err
    _allow_way(scene.plane, scene.namespace)
    try:

        def allowed() -> Ended | None:
            done = member(*ask, "viewer", "-o", "json")
            return done if done.code == 0 else None

        done = wait_until(allowed, timeout_s=TIMEOUT_S, what="an answer", every_s=0.5)
        assert done is not None
        assert done.document["state"] == "Undelivered"
        refused = member(*ask, "other")
        assert refused.code == 3
        assert "may not get streamconsumergroups" in refused.err
        scene.grant("viewer", "streamconsumergroups/payloads", "streamconsumergroups")
        wait_until(
            lambda: "order_id = 4711" in member(*ask, "viewer", "--payload").out,
            timeout_s=TIMEOUT_S,
            what="the payload",
            every_s=1.0,
        )
    finally:
        scene.plane.kubectl(
            "delete", "rolebinding", f"{scene.namespace}-proxy", "-n", SYSTEM, "--ignore-not-found"
        )


def test_the_command_line_and_the_operator_name_one_audience() -> None:
    assert AUDIENCE_OF_CLI == AUDIENCE
