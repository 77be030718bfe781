"""An asynchronous client of the API server that uses plain dicts, and the kinds it is used for.

Typed models are not used: they drop unknown fields, and cost memory and time on the hot path. Every
write is a server-side apply or has a precondition, so it is safe to repeat.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config
from kubernetes.aio.client import rest as aio_rest

from pelops.errors import (
    Conflict,
    Forbidden,
    KubernetesError,
    KubernetesUnavailable,
    NotFound,
    Rejected,
)
from pelops.kube.json_text import ListText, bound_depth, parse_json
from pelops.metrics import KUBERNETES_REQUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of the Kubernetes API."""

    group: str  # "" is the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of an object or its subresource; without a name, that of the list."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)


GROUP = "pelops.dev"

STREAM_CONSUMER_GROUP = Kind(
    group=GROUP, version="v1alpha1", kind="StreamConsumerGroup", plural="streamconsumergroups"
)
STREAM_AUDIT = Kind(group=GROUP, version="v1alpha1", kind="StreamAudit", plural="streamaudits")
STREAM_REDRIVE = Kind(
    group=GROUP, version="v1alpha1", kind="StreamRedrive", plural="streamredrives"
)
CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps")
CRON_JOB = Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs")
DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
POD = Kind(group="", version="v1", kind="Pod", plural="pods")
NODE = Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False)
NAMESPACE = Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)
SECRET = Kind(group="", version="v1", kind="Secret", plural="secrets")
DISRUPTION_BUDGET = Kind(
    group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
TOKEN_REVIEW = Kind(
    group="authentication.k8s.io",
    version="v1",
    kind="TokenReview",
    plural="tokenreviews",
    namespaced=False,
)
SUBJECT_ACCESS_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    namespaced=False,
)
SELF_SUBJECT_ACCESS_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
EVENT = Kind(group="events.k8s.io", version="v1", kind="Event", plural="events")
AUTOSCALER = Kind(
    group="autoscaling",
    version="v2",
    kind="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
)


log = logging.getLogger(__name__)

FIELD_MANAGER = "pelops"
JSON = "application/json"
# The parameter keeps the client from encoding the body itself: see `render_yaml`.
APPLY = "application/apply-patch+yaml; charset=utf-8"
MERGE = "application/merge-patch+json"

PAGE_BYTES: Final = 8 * 1024 * 1024  # of a LIST; a larger page is requested in smaller ones
RENEW_S: Final = 5.0  # minimum between two reads of the credentials

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


class Page:
    """A part of a LIST. Objects are parsed one by one: whole pages of them take much memory."""

    def __init__(self, kind: Kind, text: str) -> None:
        self._kind = kind
        self._text = ListText(text)
        self._items = self._parse()

    def items(self) -> Iterator[Manifest]:
        """Yield each object, once. Raises KubernetesUnavailable if the answer is not a LIST."""
        return self._items

    def _parse(self) -> Iterator[Manifest]:
        try:
            for item in self._text.items():
                # The API server leaves these out of the items of a LIST of its own kinds.
                item.setdefault("apiVersion", self._kind.api_version)
                item.setdefault("kind", self._kind.kind)
                yield item
        except ValueError as error:  # for example the error page of a proxy
            raise KubernetesUnavailable("the answer of the API server is not JSON") from error

    @property
    def following(self) -> str:
        """The continue token of the next page; empty after the last. Read all items first."""
        return str(self._text.metadata.get("continue") or "")


class _PageTooLarge(Exception):
    """The answer was not read, because it is larger than allowed."""


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

    Raises `KubernetesError` and its subclasses, never an exception of a client library. At most
    `parallel` requests run at a time, and three eighths of it in one namespace; others wait.
    """

    def __init__(
        self,
        configuration: Any,
        *,
        parallel: int = 16,
        timeout_s: float = 30.0,
        load: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """`load` reads the configuration again: its certificates, its token and its authority."""
        self._parallel = parallel
        self._timeout_s = timeout_s
        self._load = load
        self._turns = asyncio.Semaphore(parallel)
        self._shares: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(max(1, parallel * 3 // 8))
        )
        self._configuration, self._client = self._open(configuration)
        self._renewed_at = -RENEW_S
        self._former: set[asyncio.Task[None]] = set()

    def _open(self, configuration: Any) -> tuple[Any, aio_client.ApiClient]:
        configuration.connection_pool_maxsize = self._parallel
        # Otherwise aiohttp reads the environment and ~/.netrc for each request.
        configuration.proxy = configuration.proxy or _find_proxy(configuration.host)
        configuration.client_session_kwargs = {"trust_env": False}
        return configuration, aio_client.ApiClient(configuration)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, *, timeout_s: float = 30.0) -> KubeApi:
        """Return a client from the named kubeconfig, or else from the pod's ServiceAccount.

        Raises:
            KubernetesUnavailable: there is neither a kubeconfig nor a ServiceAccount.
        """
        load = functools.partial(_load_configuration, kubeconfig)
        try:
            configuration = await load()
        except (aio_config.ConfigException, OSError) as error:
            raise KubernetesUnavailable(
                f"no configuration for the API server: {error}; set a kubeconfig with "
                "--kubeconfig or PELOPS_KUBECONFIG, or run as a pod with a ServiceAccount"
            ) from error
        return cls(configuration, timeout_s=timeout_s, load=load)

    async def close(self) -> None:
        """Close all connections. Calls in progress fail."""
        for task in self._former:
            task.cancel()
        await asyncio.gather(*self._former, return_exceptions=True)
        await self._client.close()

    async def open_session(
        self, *middlewares: aiohttp.ClientMiddlewareType
    ) -> tuple[str, aiohttp.ClientSession]:
        """Open a session of the running event loop: the server's address, and the session.

        It has the current credentials (a projected token is read again) and connections of its
        own. The caller closes it. Raises KubernetesUnavailable.
        """
        configuration, headers = self._configuration, dict[str, str]()
        try:
            await self._client.update_params_for_auth(
                headers, [], ["BearerToken"], "/", "GET", None, request_auth=None
            )
            tls = aio_rest.RESTClientObject(configuration).ssl_context
        except (aio_config.ConfigException, OSError) as error:
            raise KubernetesUnavailable(
                f"the credentials for the API server cannot be read: {error}"
            ) from error
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, force_close=True),
            headers=headers,
            proxy=configuration.proxy,
            middlewares=middlewares,
        )
        return str(configuration.host), session

    async def renew(self) -> None:
        """Read the credentials again and drop all connections, at most once in `RENEW_S`.

        For credentials that are refused, an authority that was replaced, and connections without
        an answer. Calls in progress on the former connections keep their timeout.
        """
        now = asyncio.get_running_loop().time()
        if self._load is None or now - self._renewed_at < RENEW_S:
            return
        self._renewed_at = now
        former = self._client
        try:
            self._configuration, self._client = self._open(await self._load())
        except (aio_config.ConfigException, OSError, ValueError) as error:
            log.warning("Could not read the credentials for the API server again: %s", error)
            return
        closing = asyncio.create_task(self._close_later(former))
        self._former.add(closing)
        closing.add_done_callback(self._former.discard)

    async def _close_later(self, former: aio_client.ApiClient) -> None:
        try:
            await asyncio.sleep(2 * self._timeout_s)
        finally:
            await former.close()

    async def get(self, address: Address) -> Manifest:
        """Return the object. Raises NotFound if it, or its kind, does not exist."""
        return await self._request("GET", address.path, resource=address.resource)

    async def read(self, path: str) -> Manifest:
        """Return the JSON at a path, which may have a query. Raises NotFound."""
        place, _, query = path.partition("?")
        return await self._request("GET", place, dict(parse_qsl(query)), resource="raw")

    async def find(self, address: Address) -> Manifest | None:
        """Return the object by a LIST of its name; None if absent. Raises NotFound for its kind."""
        query = {"fieldSelector": f"metadata.name={address.name}"}
        path = address.kind.path(address.namespace)
        answer = await self._request("GET", path, query, resource=address.kind.plural)
        return next(iter(answer.get("items") or []), None)

    async def list_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        selector: str = "",
        page: int = 500,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Page]:
        """Yield all objects page by page, each within `timeout_s`. Default: that of the client.

        A page has at most `page` objects, and fewer if these are large.
        """
        query: dict[str, str] = {"labelSelector": selector} if selector else {}
        limit = page
        while True:
            query["limit"] = str(limit)
            try:
                text = await self._send(
                    "GET",
                    kind.path(namespace),
                    query,
                    resource=kind.plural,
                    timeout_s=timeout_s,
                    most_bytes=PAGE_BYTES if limit > 1 else None,
                )
            except _PageTooLarge:
                limit = max(1, limit // 4)
                continue
            if len(text) < PAGE_BYTES / 4:
                limit = min(page, 2 * limit)
            object_page = Page(kind, (await bound_depth(text)).decode())
            del text
            yield object_page
            for _ in object_page.items():  # what the caller did not read
                pass
            if not object_page.following:
                return
            query["continue"] = object_page.following

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, selector: str = ""
    ) -> list[Manifest]:
        """Return all objects of a kind, in one list."""
        return [
            item
            async for page in self.list_pages(kind, namespace, selector=selector)
            for item in page.items()
        ]

    async def discover(self, group: str, version: str) -> Manifest:
        """Return the kinds of one API group and version (an APIResourceList). Raises NotFound."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return await self._request("GET", path, resource="discovery")

    async def apply(
        self, address: Address, body: Manifest, *, manager: str = FIELD_MANAGER
    ) -> Manifest:
        """Send a server-side apply. Returns the object as the server has it afterwards.

        Repeating it changes nothing, not even the resourceVersion. A uid in the body prevents that
        a deleted object is created again (409). Fields of other managers are taken over.
        """
        query = {"fieldManager": manager, "force": "true"}
        return await self._request(
            "PATCH", address.path, query, body=body, content_type=APPLY, resource=address.resource
        )

    async def merge(
        self, address: Address, body: Manifest, *, manager: str = FIELD_MANAGER
    ) -> Manifest:
        """Send a JSON merge patch (RFC 7386). Returns the object as the server then has it."""
        return await self._request(
            "PATCH",
            address.path,
            {"fieldManager": manager},
            body=body,
            content_type=MERGE,
            resource=address.resource,
        )

    async def create(self, kind: Kind, namespace: str, body: Manifest) -> Manifest:
        """Create an object. Raises Conflict if the name is taken."""
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
        """Delete the object if it still has this uid, or this resourceVersion.

        An object that does not exist is a success. Raises Conflict if it is another one.
        """
        wanted = {"uid": uid, "resourceVersion": version}
        preconditions = {key: value for key, value in wanted.items() if value}
        body: Manifest = {"preconditions": preconditions} if preconditions else {}
        try:
            await self._request("DELETE", address.path, body=body, resource=address.resource)
        except NotFound:
            return

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Manifest:
        text = await self._send(method, path, query, **options)
        try:
            answer: Manifest = await parse_json(text) if text else {}
        except ValueError as error:  # for example the error page of a proxy
            raise KubernetesUnavailable("the answer of the API server is not JSON") from error
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        resource: str,
        body: Manifest | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        """Return the answer's text. Raises KubernetesError; _PageTooLarge above `most_bytes`."""
        verb = "apply" if content_type == APPLY else method.lower()
        # The share of each namespace is limited, so that none waits for hundreds of another's.
        async with self._shares[_namespace_of(path)], self._turns:
            client = self._client
            try:
                parameters = await client.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params={"Accept": JSON, "Content-Type": content_type},
                    body=render_yaml(body) if content_type == APPLY and body else body,
                    auth_settings=["BearerToken"],
                )
                response = await client.call_api(
                    *parameters, _request_timeout=timeout_s or self._timeout_s
                )
                text = await _read(response, most_bytes)
            except (
                aiohttp.ClientError,
                aio_config.ConfigException,
                TimeoutError,
                OSError,
            ) as error:
                KUBERNETES_REQUESTS.labels(verb, resource, "none").inc()
                if isinstance(error, TimeoutError | ssl.SSLError | aiohttp.ClientSSLError):
                    await self.renew()
                cause = str(error) or type(error).__name__
                raise KubernetesUnavailable(f"the API server does not answer: {cause}") from error
        KUBERNETES_REQUESTS.labels(verb, resource, str(response.status)).inc()
        if response.status >= 400:
            if response.status == 401:
                await self.renew()
            raise translate_status(response.status, text, response.headers.get("Retry-After"))
        return text


async def _read(response: aio_rest.RESTResponse, most_bytes: int | None) -> bytes:
    answer: aiohttp.ClientResponse = response.response
    if most_bytes is None or answer.status >= 400:
        return await answer.read()
    parts, size = [], 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > most_bytes:
            answer.close()
            raise _PageTooLarge
        parts.append(part)
    return b"".join(parts)


def _namespace_of(path: str) -> str:
    """Return the namespace of a request; empty if it has none."""
    _, _, rest = path.partition("/namespaces/")
    return rest.partition("/")[0]


def _find_proxy(url: str) -> str | None:
    """Return the proxy that the environment sets for a server; None without one."""
    server = urlsplit(url)
    return None if proxy_bypass(server.hostname or "") else getproxies().get(server.scheme)


async def _load_configuration(kubeconfig: str | None) -> Any:
    configuration = aio_client.Configuration()
    if kubeconfig:
        await aio_config.load_kube_config(
            config_file=kubeconfig, client_configuration=configuration
        )
    else:
        aio_config.load_incluster_config(client_configuration=configuration)
    return configuration


# A pair of surrogates, as JSON writes a character beyond the basic plane.
_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")


def render_yaml(body: Manifest) -> str:
    """Return the body of an apply, which the API server parses as YAML.

    It is JSON, in which control characters are escaped. YAML does not support surrogate pairs (a
    stream named with an emoji was refused), so the characters of pairs are not escaped.
    """
    text = json.dumps(body)
    return _PAIR.sub(lambda match: str(json.loads(f'"{match[0]}"')), text)


# Errors of the API server for an object that it cannot parse, such as `cpu: lots`.
_WRONG_SHAPE: Final = ("failed to create typed patch object", "unable to convert unstructured")


def translate_status(status: int, text: bytes, retry_after: str | None = None) -> KubernetesError:
    """Return the error for an answer of the API server with an HTTP status of 400 or more."""
    message = parse_message(text)
    if status == 500 and any(words in message for words in _WRONG_SHAPE):
        return Rejected(message)  # an invalid template, not a failure of the server
    if status in (401, 429) or status >= 500:
        return KubernetesUnavailable(
            f"the API server returned HTTP status {status}: {message}",
            retry_after_s=parse_retry_after(retry_after),
        )
    return _ERRORS.get(status, KubernetesError)(message)


def parse_message(text: bytes) -> str:
    """Return the message of a Status object; for any other answer, the start of its text."""
    try:
        return str(json.loads(text).get("message") or text.decode(errors="replace"))
    except (ValueError, AttributeError):
        return text.decode(errors="replace")[:500]


def parse_retry_after(value: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 without one, or if it is a date."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0
