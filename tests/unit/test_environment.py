"""The variables that workers get, and that no secret stands among them in clear."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pelops.api.redis import RedisSpec, SecretRef
from pelops.kube.container_environment import (
    WorkerAccess,
    build_environment,
    literal,
    name_secrets,
    tls_volume,
)
from tests.builders import keys, resource

BY_URL = WorkerAccess(url="redis://redis:6379")


def variables(access: WorkerAccess = BY_URL, **spec: Any) -> dict[str, dict[str, Any]]:
    asked = resource(**spec)
    return {v["name"]: v for v in build_environment(asked, keys(asked), access)}


def from_secret(name: str, key: str, *, optional: bool) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": name, "key": key}
    return {"secretKeyRef": {**reference, "optional": True} if optional else reference}


def test_a_consumer_is_named_after_its_pod() -> None:
    found = variables()
    assert list(found)[:3] == ["POD_NAME", "POD_UID", "PELOPS_CONSUMER"]
    assert found["POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"
    assert found["PELOPS_CONSUMER"]["value"] == "$(POD_NAME):$(POD_UID)"


def test_every_variable_of_a_group_is_there_once() -> None:
    asked = resource()
    built = build_environment(asked, keys(asked), BY_URL)
    values = {v["name"]: v.get("value") for v in built}
    assert len(values) == len(built)
    assert values == {
        "POD_NAME": None,
        "POD_UID": None,
        "PELOPS_CONSUMER": "$(POD_NAME):$(POD_UID)",
        "PELOPS_REDIS_URL": "redis://redis:6379",
        "PELOPS_STREAM": "orders:events",
        "PELOPS_GROUP": "order-processing",
        "PELOPS_RETRY_STREAM": "{orders:events}:order-processing:retry",
        "PELOPS_HANDOVER_STREAM": "{orders:events}:order-processing:handover",
        "PELOPS_STARTED_KEY": "{orders:events}:order-processing:started",
        "PELOPS_WORKER_STATE_KEY": "{orders:events}:order-processing:worker-state",
        "PELOPS_WORKER_LEDGER_STREAM": "{orders:events}:order-processing:worker-ledger",
        "PELOPS_DEAD_LETTER_STREAM": "{orders:events}:order-processing:dlq",
        "PELOPS_IDLE_LIMIT_MS": "300000",
        "PELOPS_MAX_RETRIES": "3",
        "PELOPS_FIELD_PREFIX": "_",
        "PELOPS_MAX_ENTRY_BYTES": "8388608",
    }


def test_a_backoff_reaches_workers_only_when_the_resource_sets_one() -> None:
    """Without one, workers on the SDK wait by their own policy."""
    name = "PELOPS_BACKOFF_"
    assert not [one for one in variables() if one.startswith(name)]
    backoff = {"initialSeconds": 5, "factor": 3}
    found = variables(recovery={"backoff": backoff})
    reported = {one.removeprefix(name): v["value"] for one, v in found.items() if name in one}
    assert reported == {"INITIAL_SECONDS": "5", "FACTOR": "3", "MAX_SECONDS": "300"}
    assert variables(recovery={"backoff": {}})[f"{name}INITIAL_SECONDS"]["value"] == "0"


def test_the_url_of_a_secret_takes_precedence_over_the_spec() -> None:
    found = variables(WorkerAccess(url="redis://a:1", url_secret="redis", secret="redis"))
    assert found["PELOPS_REDIS_URL"]["valueFrom"] == from_secret("redis", "url", optional=False)


def test_a_url_that_may_hold_credentials_stays_in_its_secret() -> None:
    found = variables(WorkerAccess(url_secret="redis", secret="workers"))
    url = found["PELOPS_REDIS_URL"]
    assert url["valueFrom"] == from_secret("redis", "url", optional=False)
    for key in ("username", "password"):
        variable = found[f"PELOPS_REDIS_{key.upper()}"]
        assert variable["valueFrom"] == from_secret("workers", key, optional=True)


def test_sentinels_are_reported_by_name_and_nodes() -> None:
    found = variables(
        WorkerAccess(),
        redis={"sentinel": {"masterName": "my$(master)", "nodes": ["a:26379", "b:26379"]}},
    )
    assert "PELOPS_REDIS_URL" not in found
    assert found["PELOPS_REDIS_SENTINEL_MASTER"]["value"] == "my$$(master)"
    assert found["PELOPS_REDIS_SENTINEL_NODES"]["value"] == "a:26379,b:26379"


def test_only_certificates_that_are_there_are_named() -> None:
    found = variables(WorkerAccess(secret="r", secret_keys=frozenset({"ca.crt", "password"})))
    assert found["PELOPS_REDIS_CA_FILE"]["value"] == "/etc/pelops/redis/ca.crt"
    assert "PELOPS_REDIS_KEY_FILE" not in found


def test_the_parts_of_redis_come_from_a_secret_each() -> None:
    ref = {"name": "login"}
    redis = {
        "url": "rediss://redis",
        "authSecretRef": ref,
        "tls": {
            "caSecretRef": {"name": "ca"},
            "certSecretRef": {"name": "cert"},
            "serverName": "redis.shop",
        },
        "sentinel": {"masterName": "m", "nodes": ["a:26379"], "authSecretRef": {"name": "s"}},
    }
    spec = RedisSpec.model_validate(redis)
    access = name_secrets(spec, None)
    found = variables(access, redis=redis)
    assert found["PELOPS_REDIS_PASSWORD"]["valueFrom"] == from_secret(
        "login", "password", optional=True
    )
    assert found["PELOPS_REDIS_SENTINEL_PASSWORD"]["valueFrom"] == from_secret(
        "s", "password", optional=False
    )
    assert found["PELOPS_REDIS_TLS_SERVER_NAME"]["value"] == "redis.shop"
    assert found["PELOPS_REDIS_KEY_FILE"]["value"] == "/etc/pelops/redis/tls.key"
    volume = tls_volume(access)
    assert volume is not None
    assert [
        (one["secret"]["name"], [item["key"] for item in one["secret"]["items"]])
        for one in volume["projected"]["sources"]
    ] == [("ca", ["ca.crt"]), ("cert", ["tls.crt", "tls.key"])]


def test_workers_with_their_own_secret_do_not_get_the_operators_certificate() -> None:
    tls = {"caSecretRef": {"name": "ca"}, "certSecretRef": {"name": "cert"}}
    spec = RedisSpec.model_validate({"url": "rediss://redis", "tls": tls})
    access = name_secrets(spec, SecretRef(name="workers"))
    assert access.tls_sources == (("ca", ("ca.crt",)),)
    own = replace(access, secret_keys=frozenset({"ca.crt", "tls.crt", "tls.key"}))
    assert own.tls_sources == (("ca", ("ca.crt",)), ("workers", ("tls.crt", "tls.key")))


def test_sentinels_without_a_url_use_tls_when_requested() -> None:
    sentinel = {"masterName": "m", "nodes": ["a:26379"]}
    assert variables(redis={"sentinel": sentinel, "tls": {}})["PELOPS_REDIS_TLS"]["value"] == "true"
    assert "PELOPS_REDIS_TLS" not in variables(redis={"sentinel": sentinel})


@pytest.mark.parametrize(
    ("text", "written"),
    [("orders", "orders"), ("$(HOME)", "$$(HOME)"), ("$$", "$$$$"), ("5$", "5$$")],
)
def test_a_dollar_is_written_twice(text: str, written: str) -> None:
    assert literal(text) == written
