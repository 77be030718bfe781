"""A stand-in for a metrics adapter: external.metrics.k8s.io/v1beta1 with numbers from a test.

It is a real aggregated API server to Kubernetes: the API server passes requests on to it over
mutual TLS, by an APIService whose Service is another name of `localhost`.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
SERVICE, NAMESPACE = "external-metrics", "default"
HOST = f"{SERVICE}.{NAMESPACE}.svc"  # the API server requires this name in the certificate
API_SERVICE = f"{VERSION}.{GROUP}"
AVAILABLE_TIMEOUT_S = 60.0

Object = dict[str, Any]
Metric = tuple[str, str, str]  # namespace, name, label selector as Kubernetes writes it


class ExternalMetrics:
    """Numbers by namespace, metric and label selector; a metric without a report has no value."""

    def __init__(self, port: int) -> None:
        self.port = port  # on 127.0.0.1; only the API server is let in
        self.askers: set[str] = set()  # users on whose behalf the API server has asked for a metric
        self._values: dict[Metric, int] = {}

    def report(self, metric: Metric, value: int) -> None:
        """Answer this number from now on."""
        self._values[metric] = value

    def forget(self, metric: Metric) -> None:
        """Answer that there is no such number from now on."""
        del self._values[metric]

    def answer(self, url: str, user: str) -> Object | None:
        """The answer to a GET, or None when there is no such page."""
        parts = urlsplit(url)
        if parts.path == ROOT:
            return self._resources()
        if not parts.path.startswith(f"{ROOT}/namespaces/"):
            return None
        self.askers.add(user)
        namespace, _, name = parts.path.removeprefix(f"{ROOT}/namespaces/").partition("/")
        selector = parse_qs(parts.query).get("labelSelector", [""])[0]
        value = self._values.get((namespace, name, selector))
        return _list_of(name, [] if value is None else [value])

    def _resources(self) -> Object:
        names = sorted({name for _, name, _ in list(self._values)})
        kind = "ExternalMetricValueList"
        rows = [
            {"name": n, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
            for n in names
        ]
        version = f"{GROUP}/{VERSION}"
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": version,
            "resources": rows,
        }


@contextmanager
def serve_external_metrics(plane: ControlPlane) -> Iterator[ExternalMetrics]:
    """Registered with the API server, and available, until the end of the block.

    One at a time in a control plane. It is taken away before it ends: a group that does not answer
    holds up the deletion of every namespace.
    """
    server = _Server()
    server.socket = _build_tls(plane).wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, name="external-metrics", daemon=True)
    thread.start()
    try:
        with _registered(plane, server.server_port):
            yield server.metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that the API server keeps open would hold up the end.
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.metrics = ExternalMetrics(self.server_port)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: a client that is refused or disconnects early sees the error itself."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.metrics.answer(self.path, self.headers.get("X-Remote-User", ""))
        body = json.dumps(answer or {}).encode()
        self.send_response(HTTPStatus.OK if answer is not None else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: pytest would show it beside every failure."""


def _build_tls(plane: ControlPlane) -> ssl.SSLContext:
    """Only the API server may ask: a client that may connect may claim to be any user."""
    own = plane.serving_certificate_for(HOST)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(plane.front_proxy_ca_file))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(own.certificate, own.key)
    return tls


@contextmanager
def _registered(plane: ControlPlane, port: int) -> Iterator[None]:
    manifests = yaml.safe_dump_all([_service(), _api_service(plane, port)])
    plane.kubectl("apply", "-f", "-", stdin=manifests)
    try:
        wait_until(
            lambda: _is_available(plane),
            timeout_s=AVAILABLE_TIMEOUT_S,
            what=f"{API_SERVICE} to be available",
            every_s=0.2,
        )
        yield
    finally:
        plane.kubectl("delete", "apiservice", API_SERVICE, "--ignore-not-found")
        plane.kubectl("delete", "service", SERVICE, "-n", NAMESPACE, "--ignore-not-found")


def _is_available(plane: ControlPlane) -> bool:
    path = "-o=jsonpath={.status.conditions[?(@.type=='Available')].status}"
    return plane.kubectl("get", "apiservice", API_SERVICE, path).stdout == "True"


def _service() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }


def _api_service(plane: ControlPlane, port: int) -> Object:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "service": {"name": SERVICE, "namespace": NAMESPACE, "port": port},
            "caBundle": base64.b64encode(plane.ca_file.read_bytes()).decode(),
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }


def _list_of(name: str, values: list[int]) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(value)}
        for value in values
    ]
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "items": items,
    }
