"""The variables that workers get, and that no secret stands among them in clear."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.kube.container_environment import WorkerAccess, build_environment, literal
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


def test_a_secrets_url_which_may_hold_credentials_comes_before_that_of_the_spec() -> None:
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


@pytest.mark.parametrize(
    ("text", "written"),
    [("orders", "orders"), ("$(HOME)", "$$(HOME)"), ("$$", "$$$$"), ("5$", "5$$")],
)
def test_a_dollar_is_written_twice(text: str, written: str) -> None:
    assert literal(text) == written
