"""Facts about the cluster for `pelops doctor`: installation, workload, pods and clocks of nodes.

Each fact is read by itself: what cannot be read is `Unanswered`, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from pelops.build import version
from pelops.cli.doctor.cluster import ClusterReader, Object
from pelops.domain.workload import PodObservation
from pelops.errors import Forbidden, KubernetesError, NotFound, PelopsError
from pelops.kube.workload_observation import observe_pod, parse_selector
from pelops.policy.doctor.check import Fact, Unanswered
from pelops.policy.doctor.facts import (
    AccessRight,
    ExternalAutoscaler,
    Installation,
    InstallationFacts,
    NodeClock,
    ResourceFacts,
    ServedKind,
    TargetFacts,
)
from pelops.policy.doctor.rights import INSTALL_RIGHTS, OPERATOR_RIGHTS

T = TypeVar("T")

OPERATOR_NAMESPACE: Final = "pelops-system"
OPERATOR_ACCOUNT: Final = "pelops-operator"
FIELD_MANAGER: Final = "pelops"
CONTAINER: Final = "operator"
MOST_NODES: Final = 50
PAGE: Final = 500
# A Lease is renewed every 2 s; the clocks of this machine and of the replicas may differ.
MEMBER_FRESH: Final = timedelta(seconds=60)
_API: Final = "/apis/pelops.dev/v1alpha1"
_OPENAPI: Final = "/openapi/v3/apis/pelops.dev/v1alpha1"
_SCHEMA: Final = "dev.pelops.v1alpha1."
_COMPONENT: Final = "app.kubernetes.io/name=pelops,app.kubernetes.io/component="
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NUMBER: Final = re.compile(r"\d{1,4}")
_TAG: Final = re.compile(r"v?(\d+\.\d+\.\d+[-+.\w]*)")


async def answer(question: Awaitable[T]) -> Fact[T]:
    """Return the fact, or why it could not be observed."""
    try:
        return await question
    except PelopsError as error:
        return Unanswered(str(error))


async def find_resource(cluster: ClusterReader, namespace: str, name: str) -> Object:
    """Return a StreamConsumerGroup. Raises NotFound, also without its kind, and Forbidden."""
    query = urlencode({"fieldSelector": f"metadata.name={name}"})
    place = f"{_API}/namespaces/{quote(namespace, safe='')}/streamconsumergroups"
    items = (await cluster.read(f"{place}?{query}")).get("items") or []
    if not items:
        raise NotFound(f"StreamConsumerGroup {namespace}/{name} does not exist")
    resource: Object = items[0]
    return resource


def read_resource(manifest: Object) -> ResourceFacts:
    """Return what checks need of a StreamConsumerGroup."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    reference = spec.get("targetRef") or {}
    target = ""
    if reference:
        target = f"{reference.get('kind', 'Deployment')} {reference.get('name', '')}"
    elif spec.get("template"):
        target = "the Deployment of spec.template"
    return ResourceFacts(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        strategy=(spec.get("recovery") or {}).get("strategy", "Requeue"),
        scaling_mode=(spec.get("scaling") or {}).get("mode", "Auto"),
        target=target,
    )


# ---------------------------------------------------------------- installation


async def observe_installation(
    cluster: ClusterReader, *, namespace: str | None, is_before: bool, subject: str | None
) -> InstallationFacts:
    """Facts about Kubernetes and the installed operators.

    `namespace` is that of a resource, None for all. `subject` is the user whose rights count; None
    is the ServiceAccount of the operator that serves the namespace, or with `is_before` the caller.
    """
    installations = await answer(_list_installations(cluster))
    if subject is None and not is_before:
        subject = _account_of(installations)
    shown = subject or "this user"
    rights = INSTALL_RIGHTS if is_before else OPERATOR_RIGHTS
    refused: Fact[list[AccessRight]] = await answer(
        cluster.review(rights, namespace or "", subject)
    )
    return InstallationFacts(
        kubernetes=await answer(_read_version(cluster)),
        kinds=await answer(_list_kinds(cluster)),
        installations=installations,
        version=version(),
        subject=shown.removeprefix("system:serviceaccount:"),
        scope=f"namespace {namespace}" if namespace else "all namespaces",
        refused=_explain_review(refused, subject),
        is_before=is_before,
    )


async def review_own_rights(cluster: ClusterReader, namespace: str) -> InstallationFacts:
    """Facts about the rights of the operator, as itself: nothing else is observed."""
    other = Unanswered("not observed by the operator")
    return InstallationFacts(
        kubernetes=other,
        kinds=other,
        installations=other,
        version=version(),
        subject="the operator",
        scope=f"namespace {namespace}",
        refused=await answer(_review_own(cluster, namespace)),
    )


async def _review_own(cluster: ClusterReader, namespace: str) -> tuple[AccessRight, ...]:
    return tuple(await cluster.review(OPERATOR_RIGHTS, namespace, None))


def _explain_review(
    refused: Fact[list[AccessRight]], subject: str | None
) -> Fact[tuple[AccessRight, ...]]:
    if isinstance(refused, Unanswered):
        who = subject or "this user"
        return Unanswered(f"the rights of {who} cannot be reviewed: {refused.why}")
    return tuple(refused)


def _account_of(installations: Fact[tuple[Installation, ...]]) -> str:
    found = (
        [] if isinstance(installations, Unanswered) else [o for o in installations if o.replicas]
    )
    if len(found) != 1:
        return f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}"
    return f"system:serviceaccount:{found[0].namespace}:{found[0].account or OPERATOR_ACCOUNT}"


async def _read_version(cluster: ClusterReader) -> tuple[int, int]:
    found = await cluster.read("/version")
    parts = [_NUMBER.match(str(found.get(name, ""))) for name in ("major", "minor")]
    if None in parts:
        raise KubernetesError("the API server does not show its version")
    major, minor = (int(part[0]) for part in parts if part is not None)
    return major, minor


async def _list_kinds(cluster: ClusterReader) -> tuple[ServedKind, ...]:
    expected = _load_schemas()
    try:
        served = {one["kind"] for one in (await cluster.read(_API)).get("resources") or []}
    except NotFound:
        served = set()
    if not served:
        names = _KINDS if isinstance(expected, Unanswered) else tuple(expected)
        return tuple(ServedKind(kind=one, is_served=False, missing=()) for one in names)
    schemas = (await cluster.read(_OPENAPI)).get("components", {}).get("schemas", {})
    if isinstance(expected, Unanswered):
        return tuple(
            ServedKind(kind=one, is_served=one in served, missing=expected) for one in _KINDS
        )
    return tuple(
        _compare(kind, schema, schemas.get(f"{_SCHEMA}{kind}"), is_served=kind in served)
        for kind, schema in expected.items()
    )


_KINDS: Final = ("StreamConsumerGroup", "StreamAudit")


def _load_schemas() -> Fact[dict[str, Object]]:
    try:
        from pelops.api.crd import build_root_schema
        from pelops.api.schema.kind_definitions import KINDS
    except ModuleNotFoundError as error:
        return Unanswered(
            f"the fields of the CRDs cannot be compared: the package {error.name} is not installed"
        )
    return {one.kind: build_root_schema(one) for one in KINDS}


def _compare(kind: str, wanted: Object, live: Object | None, *, is_served: bool) -> ServedKind:
    if not is_served or live is None:
        return ServedKind(kind=kind, is_served=is_served, missing=())
    ours, theirs = set(list_fields(wanted)), set(list_fields(live))
    return ServedKind(
        kind=kind,
        is_served=True,
        missing=tuple(sorted(ours - theirs)),
        unknown=tuple(sorted(theirs - ours)),
    )


def list_fields(schema: Mapping[str, Any], path: str = "") -> Iterable[str]:
    """Yield each field of spec and status as a path, and each value of an enum as `path=value`."""
    for name, part in (schema.get("properties") or {}).items():
        if not path and name not in {"spec", "status"}:
            continue
        below = f"{path}.{name}" if path else name
        yield below
        yield from list_fields(part, below)
    for nested in ("items", "additionalProperties"):
        inner = schema.get(nested)
        if isinstance(inner, Mapping):
            yield from list_fields(inner, f"{path}[]")
    yield from (f"{path}={value}" for value in schema.get("enum") or ())


async def _list_installations(cluster: ClusterReader) -> tuple[Installation, ...]:
    leases = await _list_labelled(cluster, "/apis/coordination.k8s.io/v1", "leases", "member")
    deployments = await _list_labelled(cluster, "/apis/apps/v1", "deployments", "operator")
    installations: dict[str, Installation] = {}
    for deployment in deployments:
        namespace = deployment["metadata"]["namespace"]
        container = _operator_container(deployment)
        installations[namespace] = Installation(
            namespace=namespace,
            replicas=0,
            version=image_version(container.get("image", "")),
            serves=served_namespaces(container),
            account=_pod_of(deployment).get("serviceAccountName"),
        )
    now = datetime.now(UTC)
    for lease in leases:
        namespace = lease["metadata"]["namespace"]
        known = installations.setdefault(namespace, Installation(namespace=namespace, replicas=0))
        if _is_fresh(lease, now):
            installations[namespace] = replace(known, replicas=known.replicas + 1)
    return tuple(installations.values())


async def _list_labelled(
    cluster: ClusterReader, root: str, plural: str, component: str
) -> list[Object]:
    """The objects of all namespaces, or of the operator's where all may not be listed."""
    query = urlencode({"labelSelector": f"{_COMPONENT}{component}", "limit": PAGE})
    try:
        listing = await cluster.read(f"{root}/{plural}?{query}")
    except Forbidden:
        listing = await cluster.read(f"{root}/namespaces/{OPERATOR_NAMESPACE}/{plural}?{query}")
    items: list[Object] = listing.get("items") or []
    return items


def _operator_container(deployment: Object) -> Object:
    containers = _pod_of(deployment).get("containers") or ()
    named: Object = next((one for one in containers if one["name"] == CONTAINER), {})
    return named


def _pod_of(deployment: Object) -> Object:
    found: Object = deployment.get("spec", {}).get("template", {}).get("spec", {})
    return found


def image_version(image: str) -> str | None:
    """Return the version that the tag of an image names; None when it names none."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _TAG.fullmatch(tag)
    return found[1] if found else None


def served_namespaces(container: Object) -> frozenset[str] | None:
    """Return the namespaces that an operator serves (empty: all); None: only the cluster knows."""
    for variable in container.get("env") or ():
        if variable["name"] == "PELOPS_NAMESPACE":
            if "value" not in variable and "valueFrom" in variable:
                return None
            return frozenset(str(variable.get("value", "")).replace(",", " ").split())
    return frozenset() if container else None


def _is_fresh(lease: Object, now: datetime) -> bool:
    renewed = _renew_time(lease)
    return renewed is not None and abs(now - renewed) < MEMBER_FRESH


def _renew_time(lease: Object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str((lease.get("spec") or {}).get("renewTime")))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


# ---------------------------------------------------------------- workload


async def observe_target(cluster: ClusterReader, manifest: Object) -> TargetFacts | None:
    """Facts about the workload in `targetRef`; None without one."""
    resource, reference = read_resource(manifest), (manifest.get("spec") or {}).get("targetRef")
    if not reference:
        return None
    target = await _read_target(cluster, resource.namespace, reference)
    return TargetFacts(
        resource=resource,
        exists=target if isinstance(target, Unanswered) else target is not None,
        autoscalers=await answer(_list_autoscalers(cluster, resource.namespace, reference)),
        replicas_owners=owners_of(target),
    )


async def _read_target(
    cluster: ClusterReader, namespace: str, reference: Mapping[str, str]
) -> Fact[Object | None]:
    api, kind = reference.get("apiVersion", "apps/v1"), reference.get("kind", "Deployment")
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    try:
        plural = await _plural_of(cluster, root, kind)
        name = quote(reference["name"], safe="")
        return await cluster.read(f"{root}/namespaces/{namespace}/{plural}/{name}")
    except NotFound:
        return None
    except PelopsError as error:
        return Unanswered(str(error))


async def _plural_of(cluster: ClusterReader, root: str, kind: str) -> str:
    for one in (await cluster.read(root)).get("resources") or []:
        if one.get("kind") == kind and "/" not in one.get("name", "/"):
            return str(one["name"])
    raise NotFound(f"the API server does not serve {kind}")


def owners_of(target: Fact[Object | None]) -> Fact[tuple[str, ...]]:
    """Return the field managers that set `spec.replicas` of a workload."""
    if isinstance(target, Unanswered):
        return target
    live = target or {}
    metadata = live.get("metadata") or {}
    replicas = (live.get("spec") or {}).get("replicas")
    owners = [
        str(entry.get("manager"))
        for entry in metadata.get("managedFields") or []
        if _sets_replicas(entry, replicas)
    ]
    if _applies_replicas(metadata) and not owners:
        owners.append("kubectl apply")
    return tuple(dict.fromkeys(owners))


def _sets_replicas(entry: Mapping[str, Any], replicas: int | None) -> bool:
    """Whether a manager names replicas in what it writes, Pelops and autoscalers aside.

    A client that creates the object without replicas owns the default of 1 that the API server
    fills in, unless it applies on the server's side.
    """
    owns = "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    is_other = entry.get("manager") != FIELD_MANAGER and entry.get("subresource") != "scale"
    return owns and is_other and (entry.get("operation") == "Apply" or replicas != 1)


def _applies_replicas(metadata: Mapping[str, Any]) -> bool:
    text = (metadata.get("annotations") or {}).get(_LAST_APPLIED)
    try:
        applied = json.loads(text) if text else {}
        return "replicas" in (applied.get("spec") or {})
    except (ValueError, AttributeError):
        return False


async def _list_autoscalers(
    cluster: ClusterReader, namespace: str, reference: Mapping[str, str]
) -> tuple[ExternalAutoscaler, ...]:
    autoscalers = []
    for root, plural in (
        ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
        ("/apis/keda.sh/v1alpha1", "scaledobjects"),
    ):
        try:
            answered = await cluster.read(f"{root}/namespaces/{namespace}/{plural}?limit={PAGE}")
        except NotFound:
            continue  # KEDA is not installed
        for autoscaler in answered.get("items") or []:
            scaled = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
            if _is_same(scaled, reference):
                kind = answered.get("kind", "").removesuffix("List")
                autoscalers.append(
                    ExternalAutoscaler(kind=kind, name=autoscaler["metadata"]["name"])
                )
    return tuple(autoscalers)


def _is_same(scaled: Mapping[str, str], reference: Mapping[str, str]) -> bool:
    names = scaled.get("name") == reference.get("name")
    return names and scaled.get("kind", "Deployment") == reference.get("kind", "Deployment")


# ---------------------------------------------------------------- workers


async def observe_pods(
    cluster: ClusterReader, manifest: Object
) -> tuple[Fact[tuple[PodObservation, ...]], Fact[frozenset[str]]]:
    """The pods of the workers, and the names of the other pods of the namespace."""
    namespace = manifest["metadata"]["namespace"]
    selector = parse_selector(str((manifest.get("status") or {}).get("selector") or ""))
    try:
        items = await _list_pods(cluster, namespace)
    except PelopsError as error:
        failed = Unanswered(str(error))
        return failed, failed
    ours = [one for one in items if selector.matches(one["metadata"].get("labels") or {})]
    names = {one["metadata"]["name"] for one in ours}
    others = frozenset(one["metadata"]["name"] for one in items) - names
    if not str(selector):
        return Unanswered("the resource does not show the selector of its workers yet"), others
    return tuple(map(observe_pod, ours)), others


async def _list_pods(cluster: ClusterReader, namespace: str) -> list[Object]:
    path, more = f"/api/v1/namespaces/{namespace}/pods", ""
    items: list[Object] = []
    while True:
        query = urlencode({"limit": PAGE, **({"continue": more} if more else {})})
        page = await cluster.read(f"{path}?{query}")
        items += page.get("items") or []
        more = (page.get("metadata") or {}).get("continue") or ""
        if not more:
            return items


async def observe_node_clocks(
    cluster: ClusterReader, pods: Fact[tuple[PodObservation, ...]], redis_ahead: Fact[timedelta]
) -> Fact[tuple[NodeClock, ...]]:
    """The clocks of the nodes that run workers, from the Leases that their kubelets renew."""
    if isinstance(pods, Unanswered):
        return pods
    if isinstance(redis_ahead, Unanswered):
        return redis_ahead
    names = sorted({pod.node for pod in pods if pod.node})[:MOST_NODES]
    clocks = await answer(
        asyncio.gather(*(_read_node_clock(cluster, name, redis_ahead) for name in names))
    )
    if isinstance(clocks, Unanswered):
        return clocks
    return tuple(one for one in clocks if one is not None)


async def _read_node_clock(
    cluster: ClusterReader, node: str, redis_ahead: timedelta
) -> NodeClock | None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"
    try:
        lease = await cluster.read(f"{path}{quote(node, safe='')}")
    except NotFound:
        return None
    read_at = datetime.now(UTC) + redis_ahead
    renewed = _renew_time(lease)
    return None if renewed is None else NodeClock(node=node, ahead=renewed - read_at)
