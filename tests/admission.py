"""A mutating admission webhook, as policy engines are: it changes what others write."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from local_cluster.plane import ControlPlane
from tests.operators import Resources

Object = dict[str, Any]
HOST = "localhost"


@contextmanager
def changing(resources: Resources, rule: Object, patch: list[Object]) -> Iterator[None]:
    """Have this JSON patch done to all that the rule names in one namespace."""
    plane, name = resources.plane, f"{resources.namespace}.changing.test"
    server = _serve(plane, patch)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {
            "url": f"https://{HOST}:{server.server_address[1]}/",
            "caBundle": base64.b64encode(plane.ca_file.read_bytes()).decode(),
        },
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": resources.namespace}},
        "rules": [{"operations": ["CREATE", "UPDATE"], **rule}],
    }
    resources.apply_raw(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [hook],
        }
    )
    try:
        yield
    finally:
        plane.kubectl("delete", "mutatingwebhookconfiguration", name)
        server.shutdown()
        server.server_close()


def _serve(plane: ControlPlane, patch: list[Object]) -> ThreadingHTTPServer:
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"uid": review["request"]["uid"], "allowed": True}
            change = {"patchType": "JSONPatch", "patch": encoded}
            body = json.dumps({**review, "response": {**answer, **change}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
            """Say nothing."""

    pair = plane.serving_certificate_for(HOST)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
