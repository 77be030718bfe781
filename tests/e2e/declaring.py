"""Specs as users write them, and what they would look at in Redis and Kubernetes afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.records.ledger import LETTER_FIELDS
from tests.operators import Resources, sleeping_template

Object = dict[str, Any]
WAIT_S = 180.0
NAME = "orders"
WORKERS = f"{NAME}-workers"


def a_spec(url: str, stream: str, **more: Any) -> Object:
    """A group whose workers are declared but none runs; a field that is None is left out."""
    spec = {
        "redis": {"url": url},
        "stream": stream,
        "template": sleeping_template(),
        "replicas": 0,
        **more,
    }
    return {name: value for name, value in spec.items() if value is not None}


def a_letter(stream: str, group: str) -> dict[str, str]:
    """The fields of a dead letter of a group."""
    named = {"stream": stream, "group": group}
    return {"n": "1"} | {f"_{name}": named.get(name, "1") for name in LETTER_FIELDS}


def secret(name: str, **fields: str) -> Object:
    """A Secret; `_` in a field's name stands for a dot."""
    named = {field.replace("_", "."): value for field, value in fields.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": named}


def a_deployment(name: str, replicas: int = 0) -> Object:
    """Workers of the user's own."""
    return a_workload("Deployment", name, replicas)


def a_workload(kind: str, name: str, replicas: int, **spec: Any) -> Object:
    """An object of apps/v1 whose pods do nothing."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, **sleeping_template()}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template,
            **spec,
        },
    }


def group_of(servers: RedisServers, stream: str, group: str) -> Mapping[str, str]:
    """What XINFO GROUPS reports one group; empty when there is none."""
    found = (dict(g) for g in _rows(servers.cli("XINFO", "GROUPS", stream), "name"))
    return next((g for g in found if g["name"] == group), {})


def ledger_of(servers: RedisServers, ledger: str) -> list[Mapping[str, str]]:
    """The events of a ledger, the oldest first."""
    lines = servers.cli("XRANGE", ledger, "-", "+").splitlines()
    return [dict(event) for event in _rows("\n".join(lines), "kind")]


def acts_of(servers: RedisServers, ledger: str) -> list[Mapping[str, str]]:
    """The events of a ledger that report acts: all but the checkpoints, which come with time."""
    return [event for event in ledger_of(servers, ledger) if event["kind"] != "bookmark"]


def _rows(text: str, first: str) -> Iterator[list[tuple[str, str]]]:
    """Flat replies of redis-cli as rows of pairs, each beginning with the field `first`."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line == first]
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        row = lines[start:end]
        yield list(zip(row[::2], row[1::2], strict=False))


def env_of(deployment: Object, container: int = 0) -> dict[str, Object]:
    """The variables of a Deployment's container, by name."""
    variables = deployment["spec"]["template"]["spec"]["containers"][container]["env"]
    return {variable["name"]: variable for variable in variables}


def get(resources: Resources, kind: str, name: str) -> Object:
    """An object that exists."""
    found = resources.get(kind, name)
    assert found is not None, f"no {kind} {name}"
    return found


def await_object(resources: Resources, kind: str, name: str) -> Object:
    """An object, once it exists."""
    found = wait_until(lambda: resources.get(kind, name), timeout_s=WAIT_S, what=f"{kind} {name}")
    assert found is not None
    return found


def await_absence(resources: Resources, kind: str, name: str, timeout_s: float = WAIT_S) -> None:
    """Return once the object does not exist."""
    wait_until(
        lambda: resources.get(kind, name) is None,
        timeout_s=timeout_s,
        what=f"no {kind} {name}",
        every_s=0.2,
    )


def await_observed(resources: Resources, name: str = NAME) -> Object:
    """The resource, once its status speaks of its newest spec."""

    def observed() -> Object | None:
        found = resources.get("scg", name) or {}
        seen = (found.get("status") or {}).get("observedGeneration")
        return found if found and seen == found["metadata"]["generation"] else None

    found = wait_until(observed, timeout_s=WAIT_S, what=f"{name} to be observed", every_s=0.2)
    assert found is not None
    return found


def patch(resources: Resources, kind: str, name: str, change: Object) -> None:
    """kubectl patch --type=merge."""
    resources.plane.kubectl(
        *("patch", kind, name, "-n", resources.namespace),
        *("--type=merge", "-p", json.dumps(change)),
    )
