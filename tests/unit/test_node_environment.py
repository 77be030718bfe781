"""The node stand-in gives containers the environment that a kubelet would."""

import base64
from pathlib import Path
from typing import Any

import pytest

from local_cluster.node.environment import (
    ConfigError,
    PodFacts,
    build_environment,
    expand,
)
from local_cluster.node.mounts import build_mounts, rewrite

pytestmark = pytest.mark.full

METADATA = {"name": "orders-1", "namespace": "shop", "uid": "u-1"}
POD = {"metadata": METADATA, "spec": {"containers": []}}
FACTS = PodFacts(pod=POD, addresses={}, allocatable={})
SECRET = {"data": {"password": base64.b64encode(b"p w").decode(), "user": "bWU="}}
OBJECTS = {
    ("secrets", "redis"): SECRET,
    ("secrets", "none"): None,
}


def resolve(*variables: dict[str, Any], **container: Any) -> dict[str, str]:
    return build_environment({"env": list(variables)} | container, FACTS, OBJECTS)


def field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secret_key(name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"secretKeyRef": {"name": name, "key": key} | more}}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "a"),
        ("$(A)$(B)", "ab"),
        ("x$(A)y", "xay"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$(NOPE)", "$(NOPE)"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
        ("$(A$(B)", "$(A$(B)"),
        ("$()", "$()"),
        ("$$", "$"),
        ("$(R)", "$(A)"),
    ],
)
def test_variables_expand_by_the_kubelets_rules(text: str, expanded: str) -> None:
    assert expand(text, {"A": "a", "B": "b", "R": "$(A)"}) == expanded


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (secret_key("none", "password"), 'secret "none" not found'),
        (secret_key("redis", "port"), "couldn't find key port in Secret shop/redis"),
        (field("status.phase"), "unsupported fieldPath: status.phase"),
        ({"name": "X", "valueFrom": {"fileKeyRef": {}}}, "X: unsupported valueFrom: fileKeyRef"),
    ],
)
def test_what_is_missing_is_named(variable: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(variable)
    assert str(refused.value) == message


def test_paths_below_a_mount_are_rewritten_and_others_are_not() -> None:
    container = {
        "volumeMounts": [
            {"name": "outer", "mountPath": "/etc/app/"},
            {"name": "inner", "mountPath": "/etc/app/tls", "subPath": "certs"},
            {"name": "unknown", "mountPath": "/etc"},
        ]
    }
    mounts = build_mounts(container, {"outer": Path("/v/o"), "inner": Path("/v/i")}, {})
    assert rewrite("/etc/app", mounts) == "/v/o"
    assert rewrite("/etc/app/x", mounts) == "/v/o/x"
    assert rewrite("/etc/app/tls/ca.crt", mounts) == "/v/i/certs/ca.crt"
    assert rewrite("/etc/application", mounts) == "/etc/application"
    assert rewrite("see /etc/app", mounts) == "see /etc/app"
