"""Pod templates are held to a Pod Security level: filled in where open, refused beyond."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from pelops.controller.runtime.namespaces import MAX_AGE_S, NamespaceLevels
from pelops.errors import Forbidden, InvalidSpec, KubernetesUnavailable, NotFound
from pelops.kube.client import Address, KubeApi
from pelops.kube.pod_security import (
    ENFORCE_LABEL,
    PodSecurity,
    find_violations,
    hold_to_level,
    level_of,
)
from tests.pod_templates import BASELINE, BEYOND, RESTRICTED, WITHIN, container, plain

PRIVILEGED = PodSecurity.PRIVILEGED
Template = dict[str, Any]


@pytest.mark.parametrize(("level", "template"), BEYOND.values(), ids=BEYOND)
def test_what_a_level_forbids_is_refused_by_it_and_by_stricter_ones(
    level: PodSecurity, template: Template
) -> None:
    assert hold_to_level(template, PRIVILEGED) == template
    with pytest.raises(
        InvalidSpec, match=r"violates the Pod Security level .* Change the template, or"
    ):
        hold_to_level(template, RESTRICTED)
    if level is BASELINE:
        with pytest.raises(InvalidSpec, match="level baseline of"):
            hold_to_level(template, BASELINE)
    else:
        assert hold_to_level(template, BASELINE) == template


@pytest.mark.parametrize("template", WITHIN.values(), ids=WITHIN)
def test_what_is_left_open_is_filled_in(template: Template) -> None:
    before = copy.deepcopy(template)
    held = hold_to_level(template, RESTRICTED)
    assert template == before
    assert [*find_violations(held, RESTRICTED)] == []
    assert hold_to_level(held, RESTRICTED) == held
    for level in (BASELINE, PRIVILEGED):
        assert hold_to_level(template, level) == before


def test_a_refusal_names_the_container_and_the_field() -> None:
    asked = container(securityContext={"privileged": True}, ports=[{"hostPort": 80}])
    with pytest.raises(InvalidSpec) as refused:
        hold_to_level(asked, RESTRICTED)
    assert "container worker: securityContext.privileged is true" in str(refused.value)
    assert "container worker: hostPort 80 is set" in str(refused.value)
    assert ENFORCE_LABEL in str(refused.value)


def test_a_refusal_of_many_things_stays_short() -> None:
    volumes = [{"name": f"v{number}", "hostPath": {"path": "/"}} for number in range(1000)]
    with pytest.raises(InvalidSpec) as refused:
        hold_to_level(plain(volumes=volumes), RESTRICTED)
    assert len(str(refused.value)) < 1500


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": ["worker"]}},
        {"spec": {"containers": {"name": "worker"}}},
        {"spec": {"containers": [], "volumes": "data"}},
        {"spec": {"containers": [], "securityContext": []}},
        {"spec": "pods"},
        container(securityContext="privileged"),
        container(securityContext={"capabilities": ["ALL"]}),
    ],
)
def test_another_shape_is_refused(template: Template) -> None:
    for level in (BASELINE, RESTRICTED):
        with pytest.raises(InvalidSpec, match=r"in spec\.template"):
            hold_to_level(template, level)


def test_ports_of_another_shape_are_left_to_the_api_server() -> None:
    for ports in ("8080", ["8080"], {"hostPort": 80}):
        asked = container(ports=ports)
        assert hold_to_level(asked, RESTRICTED)["spec"]["containers"][0]["ports"] == ports


def test_windows_has_no_linux_fields() -> None:
    held = hold_to_level(plain(os={"name": "windows"}), RESTRICTED)
    assert held["spec"]["securityContext"] == {"runAsNonRoot": True}
    assert held["spec"]["containers"][0]["securityContext"] == {}
    windows = plain(
        os={"name": "windows"}, securityContext={"windowsOptions": {"hostProcess": True}}
    )
    with pytest.raises(InvalidSpec, match="hostProcess"):
        hold_to_level(windows, BASELINE)


@pytest.mark.parametrize(
    ("labels", "level"),
    [
        (None, RESTRICTED),
        ({}, RESTRICTED),
        ({ENFORCE_LABEL: "privileged"}, PRIVILEGED),
        ({ENFORCE_LABEL: "baseline"}, BASELINE),
        ({ENFORCE_LABEL: "restricted"}, RESTRICTED),
        ({ENFORCE_LABEL: "Privileged"}, RESTRICTED),
        ({"pod-security.kubernetes.io/warn": "privileged"}, RESTRICTED),
    ],
)
def test_the_namespace_says_the_level(labels: dict[str, str] | None, level: PodSecurity) -> None:
    assert level_of({"metadata": {"labels": labels}}) is level


# --- The Pod Security level of a namespace, as the operator caches it


class Namespaces:
    """What the API server answers, and how often it was asked."""

    def __init__(self) -> None:
        self.answer: str | Exception = "baseline"
        self.asked = 0

    async def get(self, address: Address) -> dict[str, Any]:
        assert address.path == "/api/v1/namespaces/shop"
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"metadata": {"labels": {ENFORCE_LABEL: self.answer}}}


async def test_a_level_is_read_once_a_minute_and_outlives_an_outage() -> None:
    server, now = Namespaces(), [0.0]
    levels = NamespaceLevels(cast(KubeApi, server), lambda: now[0])
    assert await levels.level("shop") is PodSecurity.BASELINE
    server.answer = "privileged"
    assert await levels.level("shop") is PodSecurity.BASELINE
    now[0] += MAX_AGE_S
    server.answer = KubernetesUnavailable("away")
    assert await levels.level("shop") is PodSecurity.BASELINE
    now[0] += MAX_AGE_S
    server.answer = "privileged"
    assert await levels.level("shop") is PodSecurity.PRIVILEGED
    assert server.asked == 3


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("none")])
async def test_what_may_not_be_read_is_restricted(error: Exception) -> None:
    server = Namespaces()
    server.answer = error
    levels = NamespaceLevels(cast(KubeApi, server), lambda: 0.0)
    assert await levels.level("shop") is PodSecurity.RESTRICTED


async def test_without_an_answer_nothing_is_guessed() -> None:
    server = Namespaces()
    server.answer = KubernetesUnavailable("away")
    with pytest.raises(KubernetesUnavailable):
        await NamespaceLevels(cast(KubeApi, server), lambda: 0.0).level("shop")
