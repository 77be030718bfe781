"""An API of this machine that the API server passes requests on to, as it does to an adapter."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from tests.external_metrics import ROOT, ExternalMetrics, serve_external_metrics

METRIC = ("shop", "owed", "name=orders")
PAGE = f"{ROOT}/namespaces/shop/owed?labelSelector=name%3Dorders"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    # There are no controllers: who deletes an APIService and its Service is the API server alone.
    plane = ControlPlane.start(tmp_path_factory.mktemp("plane"), controllers=False)
    yield plane
    plane.stop()


@pytest.fixture
def metrics(plane: ControlPlane) -> Iterator[ExternalMetrics]:
    with serve_external_metrics(plane) as served:
        yield served


@pytest.mark.full
def test_a_request_is_forwarded_with_the_name_of_its_user(
    plane: ControlPlane, metrics: ExternalMetrics
) -> None:
    metrics.report(METRIC, 250)
    assert _ask(plane, plane.kubeconfig_for("alice", ["system:masters"])) == ["250"]
    assert metrics.askers == {"alice"}
    metrics.forget(METRIC)
    assert _ask(plane, plane.kubeconfig) == []


@pytest.mark.full
@pytest.mark.parametrize("client", [None, "admin"])
def test_only_the_api_server_may_name_the_user_of_a_request(
    plane: ControlPlane, metrics: ExternalMetrics, client: str | None
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _ask_directly(plane, metrics.port, client)
    assert _ask_directly(plane, metrics.port, "front-proxy-client") == 200
    assert metrics.askers == {"kubernetes-admin"}


def _ask(plane: ControlPlane, kubeconfig: Path) -> list[str]:
    answer = plane.kubectl("get", "--raw", PAGE, f"--kubeconfig={kubeconfig}")
    return [item["value"] for item in json.loads(answer.stdout)["items"]]


def _ask_directly(plane: ControlPlane, port: int, client: str | None) -> int:
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    tls.check_hostname = False
    if client is not None:
        pki = plane.state / "pki"
        tls.load_cert_chain(pki / f"{client}.crt", pki / f"{client}.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=10)
    try:
        connection.request("GET", PAGE, headers={"X-Remote-User": "kubernetes-admin"})
        return connection.getresponse().status
    finally:
        connection.close()
