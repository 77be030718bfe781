"""Objects that are written to Kubernetes mean there what is meant here, whatever the names."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.kube.client import render_yaml, translate_status
from pelops.kube.container_environment import WorkerAccess, build_environment, literal
from pelops.kube.event_recorder import NOTE_LIMIT, EventContent, build_event
from pelops.kube.worker_deployment import build_deployment, is_applied
from pelops.kube.workload_observation import Requirement, Selector, parse_selector
from tests.builders import NOW, TEMPLATE, later, resource
from tests.properties.strategies import NAME, TEXT

SECRET = "hunter2"
KEY = st.sampled_from(["app", "tier", "pelops.dev/x", "in", "notin"])
VALUE = st.sampled_from(["", "a", "b", "in", "notin", "a.b-c_d"])
REQUIREMENT = st.one_of(
    st.builds(Requirement, KEY, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        Requirement,
        KEY,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUE, min_size=1, max_size=3).map(tuple),
    ),
)
SELECTOR = st.lists(REQUIREMENT, max_size=4).map(lambda found: Selector(tuple(found)))
LABELS = st.dictionaries(KEY, VALUE)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NAME | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
ACCESS = st.builds(
    WorkerAccess,
    url=st.none() | st.just("redis://redis:6379"),
    url_secret=st.none() | st.just("redis"),
    secret=st.none() | st.just("redis"),
    secret_keys=st.frozensets(st.sampled_from(["url", "username", "password", "ca.crt"])),
)


def expand(text: str, mapping: Callable[[str], str]) -> str:
    """The kubelet's expansion, from the API documentation of EnvVar.value.

    "Variable references $(VAR_NAME) are expanded using the previously defined environment
    variables in the container ... If a variable cannot be resolved, the reference in the input
    string will be unchanged. Double $$ are reduced to a single $ ... "$$(VAR_NAME)" will
    produce the string literal "$(VAR_NAME)". Escaped references will never be expanded."
    """
    out, at = "", 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        end = text.find(")", at)
        if text[at] != "$" or not following:
            out, at = out + text[at], at + 1
        elif following == "$":
            out, at = out + "$", at + 2
        elif following == "(" and end > 0:
            out, at = out + mapping(text[at + 2 : end]), end + 1
        else:
            out, at = out + text[at : at + 2], at + 2
    return out


@given(NAME)
def test_a_literal_survives_the_kubelet_whatever_variables_there_are(text: str) -> None:
    assert expand(literal(text), lambda name: f"<{name}>") == text


@given(NAME, NAME, ACCESS)
def test_workers_read_exactly_the_names_that_were_declared(
    stream: str, group: str, access: WorkerAccess
) -> None:
    asked = resource(stream=stream, group=group)
    keys = derive_keys(stream, group)
    seen: dict[str, str] = {"POD_NAME": "w-1", "POD_UID": "u-1"}
    for variable in build_environment(asked, keys, access):
        if "value" in variable:
            seen[variable["name"]] = expand(
                variable["value"], lambda name: seen.get(name, f"$({name})")
            )
    assert seen["PELOPS_CONSUMER"] == "w-1:u-1"
    assert (seen["PELOPS_STREAM"], seen["PELOPS_GROUP"]) == (stream, group)
    assert seen["PELOPS_DEAD_LETTER_STREAM"] == keys.dead_letter


def deployment_of(asked: StreamConsumerGroup, access: WorkerAccess) -> dict[str, Any]:
    return build_deployment(asked, derive_keys(asked.spec.stream, asked.group_name), access)


@st.composite
def deployments(draw: st.DrawFn) -> dict[str, Any]:
    """Deployments of all kinds of templates."""
    container = {
        "name": "worker",
        "image": "orders:1",
        "args": draw(st.lists(st.sampled_from(["a", "b"]), max_size=2)),
        "env": draw(
            st.lists(
                st.builds(lambda n: {"name": n, "value": "v"}, st.sampled_from(["A", "POD_NAME"])),
                max_size=2,
                unique_by=lambda variable: variable["name"],
            )
        ),
    }
    template = {
        "metadata": draw(st.sampled_from([None, {}, {"labels": {"app": "w"}}])),
        "spec": {"containers": [container], "volumes": draw(st.sampled_from([None, []]))},
    }
    asked = resource(stream=draw(NAME), group=draw(NAME), template=template)
    return deployment_of(asked, draw(ACCESS))


@given(NAME, ACCESS)
def test_a_deployment_is_built_of_the_same_bytes_again(stream: str, access: WorkerAccess) -> None:
    one, other = (
        deployment_of(resource(stream=stream, template=TEMPLATE), access) for _ in range(2)
    )
    assert json.dumps(one) == json.dumps(other)
    assert "replicas" not in one["spec"]


@given(deployments())
def test_what_was_built_counts_as_applied(wished: dict[str, Any]) -> None:
    assert is_applied(wished, copy.deepcopy(wished))
    others = {**wished, "status": {"replicas": 1}, "spec": {**wished["spec"], "replicas": 3}}
    assert is_applied(wished, others)


@given(deployments())
def test_no_leaf_can_be_missing_unnoticed(wished: dict[str, Any]) -> None:
    for path in leaves(wished):
        live = copy.deepcopy(wished)
        remove(live, path)
        assert not is_applied(wished, live), path


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all plain values that say something."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        if isinstance(child, (dict, list)):
            yield from leaves(child, (*path, key))
        elif child not in (None, "", False, 0):
            yield (*path, key)


def remove(node: Any, path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]


@given(SELECTOR)
def test_a_selector_reads_back_from_its_text(selector: Selector) -> None:
    assert parse_selector(str(selector)) == selector


@given(SELECTOR, LABELS)
def test_a_selector_selects_as_kubernetes_documents_it(
    selector: Selector, labels: dict[str, str]
) -> None:
    def is_met(wish: Requirement) -> bool:
        there = wish.key in labels
        return {
            "In": there and labels.get(wish.key) in wish.values,
            "NotIn": not there or labels.get(wish.key) not in wish.values,
            "Exists": there,
            "DoesNotExist": not there,
        }[wish.operator]

    expected = [is_met(wish) for wish in selector.requirements]
    assert selector.matches(labels) == (bool(expected) and all(expected))


@given(SELECTOR, LABELS, KEY)
def test_a_required_value_is_on_all_that_is_selected(
    selector: Selector, labels: dict[str, str], key: str
) -> None:
    value = selector.required_value(key)
    if value is not None and selector.matches(labels):
        assert labels[key] == value


HAPPENING = st.builds(
    EventContent,
    type=st.sampled_from(["Normal", "Warning"]),
    reason=st.sampled_from(["Ready", "Conflict"]),
    action=st.just("Reconcile"),
    note=st.sampled_from(["", "a", "é" * 600, "😀" * 2000]) | TEXT,
    occurrence=st.sampled_from(["", "1", "2"]),
)
UID = st.sampled_from(["uid-1", "uid-2"])


@given(UID, UID, HAPPENING, HAPPENING)
def test_an_event_has_one_name_per_happening(
    uid: str, other_uid: str, one: EventContent, other: EventContent
) -> None:
    def name(uid: str, happening: EventContent, reporter: str) -> str:
        subject = {"metadata": {"name": "orders", "namespace": "shop", "uid": uid}}
        now = later(seconds=len(reporter))
        return str(build_event(subject, happening, reporter=reporter, now=now)["metadata"]["name"])

    def what(uid: str, happening: EventContent) -> tuple[str, ...]:
        return uid, happening.reason, happening.note, happening.occurrence

    assert name(uid, one, "a") == name(uid, one, "another replica")
    same = what(uid, one) == what(other_uid, other)
    assert (name(uid, one, "a") == name(other_uid, other, "a")) == same


@given(HAPPENING)
def test_a_note_fits_into_an_event_in_whole_characters(happening: EventContent) -> None:
    subject = {"metadata": {"name": "orders", "namespace": "shop", "uid": "u"}}
    note = build_event(subject, happening, reporter="r", now=NOW)["note"]
    assert len(note.encode()) <= NOTE_LIMIT
    assert happening.note.startswith(note)


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_an_apply_reads_as_yaml_what_was_meant(body: dict[str, Any]) -> None:
    assert yaml.safe_load(render_yaml(body)) == body


@given(st.integers(300, 599), st.binary(max_size=200) | JSON.map(json.dumps).map(str.encode))
def test_any_refusal_of_the_api_server_becomes_a_kubernetes_error(status: int, body: bytes) -> None:
    assert str(translate_status(status, body)) or not body


@given(NAME, NAME)
def test_no_secret_and_no_replicas_stand_in_a_deployment(stream: str, group: str) -> None:
    keys: GroupKeys = derive_keys(stream, group)
    asked = resource(
        stream=stream, group=group, template=TEMPLATE, redis={"secretRef": {"name": "r"}}
    )
    access = WorkerAccess(url_secret="r", secret="r", secret_keys=frozenset({"url", "password"}))
    environment = build_deployment(asked, keys, access)["spec"]["template"]["spec"]["containers"][0]
    for variable in environment["env"]:
        if variable["name"] in {
            "PELOPS_REDIS_URL",
            "PELOPS_REDIS_USERNAME",
            "PELOPS_REDIS_PASSWORD",
        }:
            assert "value" not in variable
            assert variable["valueFrom"]["secretKeyRef"]["name"] == "r"
