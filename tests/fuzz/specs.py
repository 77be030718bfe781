"""Specs that any user may write: begun as the samples are, changed by a seed.

Half of the changes keep to the schema of the CRD and take its limits to their ends; the others put
any JSON anywhere.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

Json = Any
Object = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
PLURALS: Final = {"StreamConsumerGroup": "streamconsumergroups", "StreamAudit": "streamaudits"}
_SHORT: Final = (
    *("", " ", "a", "A", "-", ".", "*", "0", "-1", "1e9", "Off", "Delete", "Release", "Manual"),
    *("orders", "orders-redis", "a" * 253, "a.b", "{a}", "{", "}{", "{}", "%", "%3A", "$(A)", "$$"),
    *("\u0001", "\x7f", "é", "😀", "\u2028", "\r\n", "'; DROP", "null", "{{.}}", "../..", "/"),
    *("0-0", "18446744073709551615-18446744073709551615", "1-1", "End", "*/5 * * * *", "@daily"),
    *("0 0 31 2 *", "60 * * * *", "* * * *", "Europe/Berlin", "Mars/Base", "UTC", "100Mi", "1e400"),
    *("redis://", "redis://:1", "redis://127.0.0.1:1/0", "rediss://127.0.0.1:1", "redis://[::1]:1"),
    *("redis://localhost:1/99", "redis://2130706433:1", "redis://169.254.169.254", "unix:///a"),
    *("127.0.0.1:1", "nowhere.invalid:26379", "[::1]:1", "lock:{$tag}:$id", "$id", "$tag$", "lock"),
    *("apps/v1", "v1", "x.example/v1beta1", "Deployment", "Pod", "Rollout", "Node", "_", ":"),
)
_VALUES: Final[tuple[Json, ...]] = (
    *(None, True, False, 0, 1, -1, 2, 60, 2**31, 2**53, 2**63 - 1, -(2**63), 0.1, 1e308, -0.0),
    *([], {}, [[]], [None], [1, "a"], {"": {}}, {"a": None}, [{}], {"name": "a"}, {"name": 1}),
    {"containers": []}, {"containers": [{"name": "worker"}]}, {"containers": {}},
    {"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{"name": "worker", "env": {}}]}},
    {"spec": {"containers": [{"name": "w", "env": [1], "resources": []}], "volumes": {"a": 1}}},
    {"spec": {"containers": "worker", "securityContext": [], "initContainers": [None]}},
    {"requests": {"memory": "x", "cpu": []}}, {"limits": {"memory": "9" * 400}}, {"name": None},
    {"masterName": "m", "nodes": ["127.0.0.1:1"]}, {"stream": "orders"},
    {"secretRef": {"name": "a"}},
)  # fmt: skip
# What pod templates may hold beside containers, of a type that no PodSpec has there.
_OF_PODS: Final = (
    *(
        "metadata",
        "labels",
        "annotations",
        "spec",
        "containers",
        "initContainers",
        "env",
        "volumes",
    ),
    *("securityContext", "capabilities", "seccompProfile", "resources", "volumeMounts", "ports"),
    *("serviceAccountName", "terminationGracePeriodSeconds", "hostNetwork", "nodeSelector", "args"),
    *("lifecycle", "ephemeralContainers", "tolerations", "affinity", "restartPolicy", "image"),
)


class Specs:
    """Manifests without end, the same for the same seed."""

    def __init__(self, seed: int, redis_url: str) -> None:
        self._rng = random.Random(seed)
        self._url = redis_url
        self._samples = list(_samples())
        self._schemas = {kind: _schema_of(plural) for kind, plural in PLURALS.items()}

    def manifest(self, name: str, *, is_wild: bool) -> Object:
        """A resource of either kind; a wild one may hold anything anywhere."""
        rng = self._rng
        kind, spec = self._begin(name)
        schema = self._schemas[kind]
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            if is_wild and rng.random() < 0.6:
                spec = self._changed(spec)
            else:
                self._vary(spec, schema)
        if is_wild and rng.random() < 0.02:
            spec = rng.choice(_VALUES)
        metadata: Object = {"name": name}
        if rng.random() < 0.2:
            acknowledged = rng.choice(("DataLoss", "x" * 5000, *_SHORT))
            metadata["annotations"] = {"pelops.dev/acknowledge": acknowledged}
        manifest = {"apiVersion": "pelops.dev/v1alpha1", "kind": kind, "metadata": metadata}
        return manifest | {"spec": spec}

    def _begin(self, name: str) -> tuple[str, Json]:
        """A kind and a sample of it, most often with the real server and a stream of its own."""
        rng = self._rng
        kind, sample = rng.choice(self._samples)
        spec: Json = copy.deepcopy(sample)
        if kind == "StreamConsumerGroup" and rng.random() < 0.8:
            spec["stream"] = name
        if "redis" in spec and rng.random() < 0.85:
            spec["redis"] = {"url": self._url}
        for field in ("workerSecretRef", "jobSecretRef"):
            if rng.random() < 0.7:  # there is no such Secret
                spec.pop(field, None)
        return kind, spec

    def _vary(self, value: Json, schema: Object) -> None:
        """Set or remove one field, anywhere, to something that its own schema allows."""
        rng = self._rng
        while isinstance(value, dict) and schema.get("properties"):
            name = rng.choice(sorted(schema["properties"]))
            schema = schema["properties"][name]
            is_leaf = not schema.get("properties") or rng.random() < 0.1
            if is_leaf and rng.random() < 0.15:
                value.pop(name, None)
                return
            if is_leaf:
                value[name] = self._allowed(schema)
                return
            if not isinstance(value.get(name), dict):
                value[name] = self._allowed(schema)
            value = value[name]

    def _allowed(self, schema: Object) -> Json:
        rng, kind = self._rng, schema.get("type")
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if kind == "boolean":
            return rng.random() < 0.5
        if kind in {"integer", "number"}:
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**53)
            return rng.choice((low, high, low + 1, min(high, 7), schema.get("default", low)))
        if kind == "array":
            count = rng.choice((schema.get("minItems", 0), 1, 2, schema.get("maxItems", 3)))
            return [self._allowed(schema["items"]) for _ in range(count)]
        if kind == "object" and "properties" in schema:
            needed = set(schema.get("required", ()))
            return {
                name: self._allowed(one)
                for name, one in schema["properties"].items()
                if name in needed or rng.random() < 0.3
            }
        if kind == "object":
            return self._any_json(3)
        return rng.choice((*_SHORT, "x" * schema.get("maxLength", 100)))

    def _changed(self, value: Json) -> Json:
        """The same with one change at any depth."""
        rng = self._rng
        if isinstance(value, dict) and value and rng.random() < 0.8:
            name = rng.choice(sorted(value))
            kind = rng.randrange(8)
            if kind == 0:
                return {key: one for key, one in value.items() if key != name}
            if kind == 1:
                return {**value, rng.choice((*_OF_PODS, *_SHORT)): self._any_json(3)}
            return {**value, name: self._changed(value[name])}
        if isinstance(value, list) and value and rng.random() < 0.8:
            place = rng.randrange(len(value))
            kind = rng.randrange(5)
            if kind == 0:
                return value[:place] + value[place + 1 :]
            if kind == 1:
                return value + value[place:]
            return [*value[:place], self._changed(value[place]), *value[place + 1 :]]
        return self._any_json(3)

    def _any_json(self, depth: int) -> Json:
        rng, kind = self._rng, self._rng.randrange(12)
        if kind == 0:
            return "x" * rng.choice((5_000, 60_000, 140_000))
        if kind == 1:
            return _nested(rng.choice((9, 70, 900)), rng.choice(("list", "object")))
        if kind < 5:
            return rng.choice(_SHORT)
        if depth and kind < 7:
            return {rng.choice(_OF_PODS): self._any_json(depth - 1) for _ in range(3)}
        if depth and kind == 7:
            return [self._any_json(depth - 1) for _ in range(rng.choice((1, 2, 40)))]
        return copy.deepcopy(rng.choice(_VALUES))


def _nested(depth: int, kind: str) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


def _samples() -> Iterator[tuple[str, Object]]:
    for path in sorted((ROOT / "manifests" / "samples").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] in PLURALS:
                yield document["kind"], document["spec"]


def _schema_of(plural: str) -> Object:
    text = (ROOT / "crds" / f"{plural}.pelops.dev.yaml").read_text()
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    schema: Object = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema
