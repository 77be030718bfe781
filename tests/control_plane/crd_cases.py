"""What the definition is offered on a real API server: resources good and bad, and a status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pelops.api.schema.base import VALIDATIONS

NAME = "order-processing"
TEMPLATE = {"spec": {"containers": [{"name": "worker", "image": "i"}]}}
TWO_CONTAINERS = {"spec": {"containers": [{"name": "worker"}, {"name": "proxy"}]}}


def build_resource(name: str = NAME, **spec: Any) -> dict[str, Any]:
    """Return the smallest resource, with these fields of the spec besides; None leaves one out."""
    fields = {
        "redis": {"secretRef": {"name": "orders-redis"}},
        "stream": "orders:events",
        "targetRef": {"name": "order-workers"},
        **spec,
    }
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def list_messages(schema: dict[str, Any]) -> Iterator[str]:
    """The messages of all rules of a schema."""
    for rule in schema.get(VALIDATIONS, ()):
        yield rule["message"]
    for child in schema.get("properties", {}).values():
        yield from list_messages(child)


def list_settings(schema: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    """Every field that is changed as one, with its description."""
    for name, child in schema.get("properties", {}).items():
        is_one = "properties" not in child or "x-kubernetes-map-type" in child
        if is_one or child.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{at}{name}", child["description"]
        else:
            yield from list_settings(child, f"{at}{name}.")


def url(value: str) -> dict[str, Any]:
    return {"redis": {"url": value}}


# For every rule of the schema: its message, what breaks it, what keeps to it, the field named.
RULES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("targetRef (existing workers)", {"template": TEMPLATE}, {"targetRef": None}, "spec.targetRef"),
    (
        "scaling needs workers",
        {"targetRef": None, "scaling": {}},
        {"targetRef": None, "scaling": {"mode": "Disabled"}},
        "spec.scaling",
    ),
    (
        "containerName must be the name",
        {"targetRef": None, "template": TEMPLATE, "containerName": "other"},
        {"targetRef": None, "template": TEMPLATE, "containerName": "worker"},
        "spec.containerName",
    ),
    (
        "containerName is required",
        {"targetRef": None, "template": TWO_CONTAINERS},
        {"targetRef": None, "template": TWO_CONTAINERS, "containerName": "proxy"},
        "spec.containerName",
    ),
    (
        "deadLetter.stream must not be the stream",
        {"deadLetter": {"stream": "orders:events"}},
        {"deadLetter": {"stream": "orders:dead"}},
        "spec.deadLetter.stream",
    ),
    (
        "deadLetter.stream must not be a key that Pelops uses",
        {"deadLetter": {"stream": "{orders:events}:order-processing:ledger"}},
        {"deadLetter": {"stream": "{orders:events}:order-processing:dlq"}},
        "spec.deadLetter.stream",
    ),
    (
        "deadLetter.stream must not be a key that Pelops uses",
        {"deadLetter": {"stream": "{shop}:orders:other-group:state"}},
        {"deadLetter": {"stream": "{shop}:orders:ledgers"}},
        "spec.deadLetter.stream",
    ),
    (
        "one of url, secretRef and sentinel",
        {"redis": {}},
        {"redis": {"sentinel": {"masterName": "m", "nodes": ["s-0:26379"]}}},
        "spec.redis",
    ),
    (
        "secretRef is the short form of url, authSecretRef and tls: set",
        {"redis": {"secretRef": {"name": "a"}, "authSecretRef": {"name": "b"}}},
        {"redis": {"url": "redis://redis", "authSecretRef": {"name": "b"}}},
        "spec.redis.authSecretRef",
    ),
    (
        "secretRef is the short form of url, authSecretRef and tls: put",
        {"redis": {"secretRef": {"name": "a"}, "tls": {"caSecretRef": {"name": "b"}}}},
        {"redis": {"secretRef": {"name": "a"}, "tls": {"serverName": "redis.shop"}}},
        "spec.redis.tls",
    ),
    (
        "secretRef is the short form of url, authSecretRef and tls: put",
        {"redis": {"secretRef": {"name": "a"}, "tls": {"certSecretRef": {"name": "b"}}}},
        {"redis": {"url": "rediss://redis", "tls": {"certSecretRef": {"name": "b"}}}},
        "spec.redis.tls",
    ),
    (
        "url must begin with rediss:// when tls",
        {"redis": {"url": "redis://redis", "tls": {}}},
        {"redis": {"sentinel": {"masterName": "m", "nodes": ["s-0:26379"]}, "tls": {}}},
        "spec.redis.url",
    ),
    ("url must begin", url("unix://tmp/redis.sock"), url("redis://localhost"), "spec.redis.url"),
    (
        "url must not contain",
        url("redis://u:p@redis"),
        url("rediss://redis:6380/3"),
        "spec.redis.url",
    ),
    (
        "url must not contain",
        url("redis://:p/w@redis"),
        url("redis://[::1]:6379"),
        "spec.redis.url",
    ),
    ("url must not contain", url("redis://redis?PASSWORD=p"), url("redis://10.0.0.1"), "redis.url"),
    ("url must be redis", url("redis://redis:65536"), url("redis://redis:65535"), "spec.redis.url"),
    (
        "url must be redis",
        url("redis://a:1,b:2"),
        url("redis://redis_1.shop.svc/0"),
        "spec.redis.url",
    ),
    ("url must not have", url("redis://redis?protocol=2"), url("redis://r/"), "spec.redis.url"),
    ("startFrom must be Beginning", {"startFrom": "$"}, {"startFrom": "End"}, "spec.startFrom"),
    (
        "startFrom must be an entry ID",
        {"startFrom": "18446744073709551616-0"},
        {"startFrom": "18446744073709551615-18446744073709551615"},
        "spec.startFrom",
    ),
    (
        "minReplicas must not",
        {"scaling": {"minReplicas": 11}},
        {"scaling": {"minReplicas": 10}},
        "spec.scaling.minReplicas",
    ),
    (
        "unmatchedConsumerTimeoutSeconds must be",
        {"recovery": {"unmatchedConsumerTimeoutSeconds": 301}},
        {"recovery": {"unmatchedConsumerTimeoutSeconds": 300}},
        "spec.recovery.unmatchedConsumerTimeoutSeconds",
    ),
    (
        "locks.graceSeconds must be",
        {"recovery": {"processingTimeoutSeconds": 20, "locks": {"graceSeconds": 21}}},
        {"recovery": {"processingTimeoutSeconds": 20, "locks": {}}},
        "spec.recovery.locks.graceSeconds",
    ),
    (
        "tuning.keyspaceNotifications needs locks",
        {"recovery": {"tuning": {"keyspaceNotifications": True}}},
        {"recovery": {"tuning": {"keyspaceNotifications": True}, "locks": {}}},
        "spec.recovery.tuning.keyspaceNotifications",
    ),
    (
        "initialSeconds must not",
        {"recovery": {"backoff": {"initialSeconds": 2, "maxSeconds": 1}}},
        {"recovery": {"backoff": {"initialSeconds": 1, "maxSeconds": 1}}},
        "spec.recovery.backoff.initialSeconds",
    ),
    (
        "keyTemplate must contain $id",
        {"recovery": {"locks": {"keyTemplate": "lock:$$id"}}},
        {"recovery": {"locks": {"keyTemplate": "$$lock:$stream:$id"}}},
        "spec.recovery.locks.keyTemplate",
    ),
    (
        "keyTemplate must not",
        {"recovery": {"locks": {"keyTemplate": "lock:$group:$id"}}},
        {"recovery": {"locks": {}}},
        "spec.recovery.locks.keyTemplate",
    ),
    (
        "retention needs",
        {"retention": {}},
        {"retention": {"maxAgeSeconds": 60}},
        "spec.retention",
    ),
]
# Rules that need metadata or an older version have tests of their own below.
RULES_ELSEWHERE = (
    *("metadata.name must have", "stream is immutable", "group is immutable"),
    *("replicas cannot be changed", "fieldPrefix is immutable"),
    "startFrom is immutable",
)

BOUNDS = [
    ({"stream": ""}, "spec.stream"),
    ({"stream": "a\0b"}, "spec.stream"),
    ({"stream": "s" * 513}, "spec.stream"),
    ({"stream": None}, "spec.stream"),
    ({"redis": None}, "spec.redis"),
    ({"group": ""}, "spec.group"),
    ({"redis": {"url": "rediss://r", "tls": {"serverName": "a b"}}}, "spec.redis.tls.serverName"),
    ({"redis": {"url": "rediss://r", "tls": {"caSecretRef": {}}}}, "spec.redis.tls.caSecretRef"),
    ({"redis": {"url": "redis://r", "authSecretRef": {"name": "A"}}}, "redis.authSecretRef.name"),
    ({"redis": {"authSecretRef": {"name": "a"}}}, "one of url, secretRef and sentinel"),
    ({"replicas": -1}, "spec.replicas"),
    ({"scaling": {"maxReplicas": 0}}, "spec.scaling.maxReplicas"),
    ({"scaling": {"mode": False}}, "spec.scaling.mode"),
    ({"scaling": {"mode": "Off"}}, "spec.scaling.mode"),
    ({"recovery": {"strategy": "Off"}}, "spec.recovery.strategy"),
    ({"recovery": {"strategy": False}}, "spec.recovery.strategy"),
    ({"recovery": {"scanIntervalSeconds": 30}}, "spec.recovery.scanIntervalSeconds"),
    ({"recovery": {"scanPeriodSeconds": 0}}, "spec.recovery.scanPeriodSeconds"),
    ({"recovery": {"minIdleSeconds": 30}}, "spec.recovery.minIdleSeconds"),
    ({"recovery": {"locks": {"graceSeconds": 0}}}, "spec.recovery.locks.graceSeconds"),
    ({"recovery": {"requeueTo": "RetryStream"}}, "spec.recovery.requeueTo"),
    ({"scaling": {"backlogPerReplica": 0}}, "spec.scaling.backlogPerReplica"),
    ({"scaling": {"behavior": {"scaleUp": {"tolerance": 0.1}}}}, "behavior.scaleUp.tolerance"),
    ({"scaling": {"behavior": {"scaleUp": {"tolerancePercent": 101}}}}, "scaleUp.tolerancePercent"),
    ({"scaling": {"behavior": {"scaleUp": {"tolerancePercent": 0.5}}}}, "scaleUp.tolerancePercent"),
    ({"recovery": {"backoff": {"factor": 1.5}}}, "spec.recovery.backoff.factor"),
    ({"recovery": {"backoff": {"factor": 11}}}, "spec.recovery.backoff.factor"),
    ({"scaling": {"backlogPerReplica": 2**53}}, "spec.scaling.backlogPerReplica"),
    ({"scaling": {"maxReplicas": 2**31}}, "spec.scaling.maxReplicas"),
    ({"scaling": {"behavior": {"scaleUp": {"policies": []}}}}, "behavior.scaleUp.policies"),
    ({"recovery": {"tuning": {"fieldPrefix": ""}}}, "spec.recovery.tuning.fieldPrefix"),
    ({"recovery": {"tuning": {"batchSize": 1001}}}, "spec.recovery.tuning.batchSize"),
    ({"container": "worker"}, "spec.container"),
    ({"container": "worker"}, "spec.container"),
    ({"recovery": {"batchSize": 100}}, "spec.recovery.batchSize"),
    ({"recovery": {"fieldPrefix": "_"}}, "spec.recovery.fieldPrefix"),
    ({"recovery": {"locks": {"keyspaceNotifications": True}}}, "locks.keyspaceNotifications"),
    ({"targetRef": {"name": "UPPER"}}, "spec.targetRef.name"),
    ({"targetRef": None, "template": {"spec": {"containers": []}}}, "spec.template.spec"),
    (
        {"targetRef": None, "template": {"spec": {"containers": [{"name": "w"}, {"name": "w"}]}}},
        "spec.template.spec.containers[1]",
    ),
    ({"redis": {"sentinel": {"masterName": "m", "nodes": ["s"]}}}, "sentinel.nodes[0]"),
    ({"redis": {"sentinel": {"masterName": "m", "nodes": ["s:1", "s:1"]}}}, "sentinel.nodes[1]"),
]

# Every field that a user sets, by its path: what it is first, and then. Merged into the smallest
# resource; None removes a field.
_TEMPLATED: dict[str, Any] = {"targetRef": None, "template": TWO_CONTAINERS}
_PROXY: dict[str, Any] = {**_TEMPLATED, "containerName": "proxy"}
_WORKER: dict[str, Any] = {**_TEMPLATED, "containerName": "worker"}
_SENTINEL: dict[str, Any] = {"masterName": "m", "nodes": ["s-0:26379"]}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "redis.url": (url("redis://a"), url("redis://b")),
    "redis.secretRef": ({}, {"redis": {"secretRef": {"name": "other"}}}),
    "redis.authSecretRef": (
        {"redis": {"url": "redis://a", "authSecretRef": {"name": "a"}}},
        {"redis": {"authSecretRef": {"name": "b"}}},
    ),
    **{
        f"redis.tls.{field}": (
            {"redis": {"url": "rediss://a"}},
            {"redis": {"tls": {field: value}}},
        )
        for field, value in {
            "caSecretRef": {"name": "a"},
            "certSecretRef": {"name": "a"},
            "serverName": "redis.shop",
        }.items()
    },
    "redis.sentinel.authSecretRef": (
        {"redis": {"sentinel": _SENTINEL}},
        {"redis": {"sentinel": {"authSecretRef": {"name": "a"}}}},
    ),
    "redis.sentinel.masterName": (
        {"redis": {"sentinel": _SENTINEL}},
        {"redis": {"sentinel": {**_SENTINEL, "masterName": "n"}}},
    ),
    "redis.sentinel.nodes": (
        {"redis": {"sentinel": _SENTINEL}},
        {"redis": {"sentinel": {**_SENTINEL, "nodes": ["s-1:26379"]}}},
    ),
    "targetRef": ({}, {"targetRef": {"name": "others", "kind": "StatefulSet"}}),
    "template": (_PROXY, {"template": {"spec": {"containers": [{"name": "proxy"}]}}}),
    "containerName": (_PROXY, _WORKER),
    "workerSecretRef": ({}, {"workerSecretRef": {"name": "workers"}}),
    "replicas": ({}, {"replicas": 3}),
    "scaling.mode": ({}, {"scaling": {"mode": "Follow"}}),
    "scaling.combine": ({}, {"scaling": {"combine": "Max"}}),
    "scaling.minReplicas": ({}, {"scaling": {"minReplicas": 2}}),
    "scaling.maxReplicas": ({}, {"scaling": {"maxReplicas": 20}}),
    "scaling.backlogPerReplica": ({}, {"scaling": {"backlogPerReplica": 5}}),
    "scaling.drainWithinSeconds": ({}, {"scaling": {"drainWithinSeconds": 5}}),
    "scaling.cooldownSeconds": ({}, {"scaling": {"cooldownSeconds": 5}}),
    **{
        f"scaling.behavior.{direction}.{field}": (
            {},
            {"scaling": {"behavior": {direction: {field: value}}}},
        )
        for direction in ("scaleUp", "scaleDown")
        for field, value in {
            "stabilizationWindowSeconds": 7,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 9}],
            "selectPolicy": "Min",
            "tolerancePercent": 3,
        }.items()
    },
    "recovery.strategy": ({}, {"recovery": {"strategy": "Disabled"}}),
    "recovery.dryRun": ({}, {"recovery": {"dryRun": True}}),
    "recovery.processingTimeoutSeconds": ({}, {"recovery": {"processingTimeoutSeconds": 9}}),
    "recovery.unmatchedConsumerTimeoutSeconds": (
        {},
        {"recovery": {"unmatchedConsumerTimeoutSeconds": 9}},
    ),
    "recovery.scanPeriodSeconds": ({}, {"recovery": {"scanPeriodSeconds": 9}}),
    "recovery.maxRetries": ({}, {"recovery": {"maxRetries": 9}}),
    "recovery.backoff.initialSeconds": ({}, {"recovery": {"backoff": {"initialSeconds": 9}}}),
    "recovery.backoff.factor": ({}, {"recovery": {"backoff": {"factor": 3}}}),
    "recovery.backoff.maxSeconds": ({}, {"recovery": {"backoff": {"maxSeconds": 9}}}),
    "recovery.maxEntryBytes": ({}, {"recovery": {"maxEntryBytes": 4096}}),
    "recovery.locks.keyTemplate": ({}, {"recovery": {"locks": {"keyTemplate": "l:$id"}}}),
    "recovery.locks.graceSeconds": ({}, {"recovery": {"locks": {"graceSeconds": 9}}}),
    "recovery.tuning.batchSize": ({}, {"recovery": {"tuning": {"batchSize": 9}}}),
    "recovery.tuning.fieldPrefix": ({}, {"recovery": {"tuning": {"fieldPrefix": "x_"}}}),
    "recovery.tuning.keyspaceNotifications": (
        {"recovery": {"locks": {}}},
        {"recovery": {"tuning": {"keyspaceNotifications": True}}},
    ),
    "stream": ({}, {"stream": "other"}),
    "group": ({}, {"group": "other"}),
    "startFrom": ({}, {"startFrom": "End"}),
    "deadLetter.stream": ({}, {"deadLetter": {"stream": "orders:dead"}}),
    "deadLetter.retentionSeconds": ({}, {"deadLetter": {"retentionSeconds": 60}}),
    "retention.maxLength": ({}, {"retention": {"maxLength": 9}}),
    "retention.maxAgeSeconds": ({}, {"retention": {"maxAgeSeconds": 9}}),
    "deletionPolicy": ({}, {"deletionPolicy": "Delete"}),
    "suspend": ({}, {"suspend": True}),
}
IMMUTABLE = {"stream", "group", "startFrom", "recovery.tuning.fieldPrefix"}

FULL_STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "replicas": 3,
    "readyReplicas": 2,
    "desiredReplicas": 4,
    "conditions": [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        }
        for kind, status, reason in [
            ("GroupReady", "True", "Exists"),
            ("Ready", "False", "Starting"),
        ]
    ],
    "group": {
        "name": "order-processing",
        "lag": 1000,
        "lagKnown": True,
        "pending": 240,
        "oldestPendingTime": "2020-01-01T00:00:00Z",
    },
    "deadLetter": {"stream": "{orders:events}:order-processing:dlq", "length": 2},
    "redis": {"topology": "Cluster", "version": "8.6.0"},
    "recovery": {
        "requeued": 30,
        "released": 7,
        "stuck": 12,
        "waiting": 4,
        "offered": 8,
        "unmovable": 0,
        "lastScanTime": "2026-11-20T10:00:00Z",
    },
    "summary": {"lag": "1000", "replicas": "2/3", "recovered": 37, "redis": "8.6.0 Cluster"},
}
