"""One asynchronous client of the API server that speaks plain dicts.

Typed models are not used: they drop fields that they do not know, and cost memory and time on the
hot path. Every write is a server-side apply or carries a precondition, so a repeat is safe.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config

from pelops.errors import (
    Conflict,
    Forbidden,
    KubernetesError,
    KubernetesUnavailable,
    NotFound,
    Rejected,
)
from pelops.kube.resources import Kind
from pelops.metrics import KUBERNETES_REQUESTS

FIELD_MANAGER = "pelops"
JSON = "application/json"
# The parameter keeps the client from encoding the body itself: see `_render_yaml`.
APPLY = "application/apply-patch+yaml; charset=utf-8"
MERGE = "application/merge-patch+json"

Manifest = dict[str, Any]

_ERRORS: dict[int, type[KubernetesError]] = {
    400: Rejected,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    413: Rejected,
    422: Rejected,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """How this process reaches the API server, for a second client in the same process."""

    server: str
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    token: str | None
    verify: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Names one object, or one of its subresources."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str | None = None

    @property
    def path(self) -> str:
        return self.kind.path(self.namespace, self.name, self.subresource)

    @property
    def resource(self) -> str:
        suffix = f"/{self.subresource}" if self.subresource else ""
        return f"{self.kind.plural}{suffix}"


class KubeApi:
    """Reads and writes objects as dicts.

    Raises `KubernetesError` and its children, never an exception of a client library. Requests
    beyond `parallel` wait for their turn.
    """

    def __init__(self, configuration: Any, *, parallel: int = 16, timeout_s: float = 30.0) -> None:
        configuration.connection_pool_maxsize = parallel
        self._configuration = configuration
        self._client = aio_client.ApiClient(configuration)
        self._turns = asyncio.Semaphore(parallel)
        self._timeout_s = timeout_s

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, *, timeout_s: float = 30.0) -> KubeApi:
        """A client from the named kubeconfig, else from the pod's ServiceAccount.

        Raises:
            KubernetesUnavailable: neither a kubeconfig nor a ServiceAccount is there.
        """
        configuration = aio_client.Configuration()
        try:
            if kubeconfig:
                await aio_config.load_kube_config(
                    config_file=kubeconfig, client_configuration=configuration
                )
            else:
                aio_config.load_incluster_config(client_configuration=configuration)
        except (aio_config.ConfigException, OSError) as error:
            raise KubernetesUnavailable(
                f"no way to the API server: {error}; name a kubeconfig with --kubeconfig or "
                "PELOPS_KUBECONFIG, or run as a pod with a ServiceAccount"
            ) from error
        return cls(configuration, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close all connections. Calls under way fail."""
        await self._client.close()

    async def credentials(self) -> Credentials:
        """The credentials as they are now; a projected token is read anew."""
        headers: dict[str, str] = {}
        await self._client.update_params_for_auth(
            headers, [], ["BearerToken"], "/", "GET", None, request_auth=None
        )
        bearer = next((v for k, v in headers.items() if k.lower() == "authorization"), "")
        return Credentials(
            server=self._configuration.host,
            ca_file=self._configuration.ssl_ca_cert,
            certificate_file=self._configuration.cert_file,
            key_file=self._configuration.key_file,
            token=bearer.removeprefix("Bearer ").strip() or None,
            verify=self._configuration.verify_ssl,
        )

    async def get(self, address: Address) -> Manifest:
        """The object. Raises NotFound when it, or its kind, does not exist."""
        return await self._request("GET", address.path, resource=address.resource)

    async def list_pages(
        self, kind: Kind, namespace: str | None = None, *, selector: str = "", page: int = 500
    ) -> AsyncIterator[list[Manifest]]:
        """All objects page by page."""
        query: dict[str, str] = {"limit": str(page)}
        if selector:
            query["labelSelector"] = selector
        while True:
            answer = await self._request("GET", kind.path(namespace), query, resource=kind.plural)
            metadata = answer.get("metadata", {})
            yield answer.get("items") or []
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, selector: str = ""
    ) -> list[Manifest]:
        """All objects of a kind, in one list."""
        return [
            item
            async for items in self.list_pages(kind, namespace, selector=selector)
            for item in items
        ]

    async def discover(self, group: str, version: str) -> Manifest:
        """The kinds of one API group and version (an APIResourceList). Raises NotFound."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return await self._request("GET", path, resource="discovery")

    async def apply(
        self, address: Address, body: Manifest, *, manager: str = FIELD_MANAGER
    ) -> Manifest:
        """Server-side apply: the object as the server has it afterwards.

        The same content twice changes nothing, not even the resourceVersion. A uid in the body
        keeps a deleted object from coming back (409). Fields of other managers are taken over.
        """
        query = {"fieldManager": manager, "force": "true"}
        return await self._request(
            "PATCH", address.path, query, body=body, content_type=APPLY, resource=address.resource
        )

    async def dry_run(self, address: Address, body: Manifest) -> Manifest:
        """What `apply` would answer, without doing it."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All"}
        return await self._request(
            "PATCH", address.path, query, body=body, content_type=APPLY, resource=address.resource
        )

    async def merge(
        self, address: Address, body: Manifest, *, manager: str = FIELD_MANAGER
    ) -> Manifest:
        """JSON merge patch (RFC 7386): the object as the server has it afterwards."""
        return await self._request(
            "PATCH",
            address.path,
            {"fieldManager": manager},
            body=body,
            content_type=MERGE,
            resource=address.resource,
        )

    async def create(self, kind: Kind, namespace: str, body: Manifest) -> Manifest:
        """A new object. Raises Conflict when the name is taken."""
        return await self._request(
            "POST",
            kind.path(namespace),
            {"fieldManager": FIELD_MANAGER},
            body=body,
            resource=kind.plural,
        )

    async def delete(
        self, address: Address, *, uid: str | None = None, version: str | None = None
    ) -> None:
        """Delete the object, if it still is the one with this uid, or of this resourceVersion.

        Gone already is well too. Raises Conflict when it is another one.
        """
        wanted = {"uid": uid, "resourceVersion": version}
        preconditions = {key: value for key, value in wanted.items() if value}
        body: Manifest = {"preconditions": preconditions} if preconditions else {}
        try:
            await self._request("DELETE", address.path, body=body, resource=address.resource)
        except NotFound:
            return

    async def _request(  # noqa: PLR0913 - the one place that all requests go through
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        resource: str,
        body: Manifest | None = None,
        content_type: str = JSON,
    ) -> Manifest:
        verb = "apply" if content_type == APPLY else method.lower()
        async with self._turns:
            try:
                parameters = await self._client.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params={"Accept": JSON, "Content-Type": content_type},
                    body=_render_yaml(body) if content_type == APPLY and body else body,
                    auth_settings=["BearerToken"],
                )
                response = await self._client.call_api(
                    *parameters, _request_timeout=self._timeout_s
                )
                text = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                KUBERNETES_REQUESTS.labels(verb, resource, "none").inc()
                cause = str(error) or type(error).__name__
                raise KubernetesUnavailable(f"the API server does not answer: {cause}") from error
        KUBERNETES_REQUESTS.labels(verb, resource, str(response.status)).inc()
        if response.status >= 400:
            raise _error(response.status, text)
        answer: Manifest = json.loads(text) if text else {}
        return answer


# A pair of surrogates, as JSON writes a character beyond the basic plane.
_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")


def _render_yaml(body: Manifest) -> str:
    """The body of an apply, which the API server reads as YAML.

    YAML knows no surrogate pairs (a stream named with an emoji was refused), while control
    characters must stay escaped: so it is JSON, with the characters of pairs written as they are.
    """
    text = json.dumps(body)
    return _PAIR.sub(lambda match: str(json.loads(f'"{match[0]}"')), text)


# What the API server says of an object that it cannot read, as of `cpu: lots`.
_WRONG_SHAPE: Final = ("failed to create typed patch object", "unable to convert unstructured")


def _error(status: int, text: bytes) -> KubernetesError:
    try:
        message = str(json.loads(text).get("message") or text.decode(errors="replace"))
    except (ValueError, AttributeError):
        message = text.decode(errors="replace")[:500]
    if status == 500 and any(words in message for words in _WRONG_SHAPE):
        return Rejected(message)  # a template of the wrong shape, which is no failure of the server
    if status in (401, 429) or status >= 500:
        return KubernetesUnavailable(f"the API server answers {status}: {message}")
    return _ERRORS.get(status, KubernetesError)(message)
