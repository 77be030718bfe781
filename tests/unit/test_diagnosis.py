"""What an error means to the person who wrote the resource."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pelops import errors
from pelops.domain.condition import shorten
from pelops.policy.status.diagnosis import diagnose


class Case(NamedTuple):
    error: errors.PelopsError
    reason: str
    words: str  # a part of the message
    is_terminal: bool


DIAGNOSES: dict[str, Case] = {
    "a wrong password": Case(
        errors.AuthenticationFailed("WRONGPASS invalid"),
        "AuthenticationFailed",
        "Correct the Secret",
        is_terminal=True,
    ),
    "a missing permission": Case(
        errors.PermissionDenied("xgroup|create is not allowed", command="xgroup|create"),
        "PermissionDenied",
        "not allowed. Pelops retries automatically",
        is_terminal=True,
    ),
    "a field": Case(
        errors.InvalidSpec("spec.template has no containers"),
        "InvalidSpec",
        "spec.template has no containers",
        is_terminal=True,
    ),
    "a key of another type": Case(
        errors.WrongType("s holds a list.", key="s", found="list"),
        "WrongType",
        "S holds a list. Nothing was changed",
        is_terminal=True,
    ),
    "a state of a newer version": Case(
        errors.NewerFormat("the key s was written in format 2"),
        "NewerFormat",
        "Nothing is written to the group. Upgrade the operator",
        is_terminal=True,
    ),
    "an address that is not allowed": Case(
        errors.AddressNotAllowed("Redis at r:1 is not allowed: it is a loopback address"),
        "AddressNotAllowed",
        "a loopback address. Correct spec.redis, or ask the administrator of Pelops",
        is_terminal=True,
    ),
    "credentials that may not go there": Case(
        errors.CredentialsNotAllowed("the credentials of Secret s may not go to r:1"),
        "CredentialsNotAllowed",
        "The credentials of Secret s",
        is_terminal=True,
    ),
    "Redis is down": Case(
        errors.RedisUnavailable("connection refused"),
        "RedisUnreachable",
        "Connection refused. Check spec.redis",
        is_terminal=False,
    ),
    "Redis is out of memory": Case(
        errors.OutOfMemory("Redis is out of memory and refuses writes (OOM)"),
        "RedisOutOfMemory",
        "(OOM). Raise maxmemory, or free memory: set spec.retention",
        is_terminal=False,
    ),
    "Redis cannot persist": Case(
        errors.WritesRefused("Redis refuses writes (MISCONF)"),
        "RedisRefusesWrites",
        "(MISCONF). Pelops retries automatically",
        is_terminal=False,
    ),
    "Redis loads its data": Case(
        errors.NotServing("Redis is loading its data (LOADING)"),
        "RedisNotReady",
        "(LOADING). Pelops retries automatically",
        is_terminal=False,
    ),
    "an answer is lost": Case(
        errors.OutcomeUnknown("timeout"),
        "RedisUnreachable",
        "retries automatically",
        is_terminal=False,
    ),
    "what is answered is no reply": Case(
        errors.InvalidReply("Redis answers TIME with what is no valid reply: a list is missing"),
        "InvalidRedisReply",
        "a list is missing. Check that spec.redis names a Redis or Valkey server",
        is_terminal=False,
    ),
    "dead letters elsewhere are more than an invalid spec": Case(
        errors.DeadLetterInAnotherSlot("in another slot"),
        "DeadLetterInAnotherSlot",
        "In another slot",
        is_terminal=True,
    ),
    "a group that vanished": Case(
        errors.NoSuchGroup("NOGROUP"), "GroupNotFound", "creates it again", is_terminal=False
    ),
    "an unknown refusal by Redis": Case(
        errors.RedisError("ERR odd"), "RedisError", "ERR odd", is_terminal=True
    ),
    "a refused template": Case(
        errors.Rejected("spec.x: Invalid"), "Rejected", "rejects the object", is_terminal=True
    ),
    "an unknown refusal by Kubernetes": Case(
        errors.KubernetesError("teapot"), "KubernetesError", "teapot", is_terminal=True
    ),
    "an error without words is named by its class": Case(
        errors.PelopsError(""), "UnexpectedError", "PelopsError", is_terminal=True
    ),
    "braces in an error are no template": Case(
        errors.InvalidSpec("{stream} {0}"), "InvalidSpec", "{stream} {0}", is_terminal=True
    ),
}


@pytest.mark.parametrize("case", DIAGNOSES.values(), ids=DIAGNOSES)
def test_an_error_has_a_reason_and_says_what_to_do(case: Case) -> None:
    finding = diagnose(case.error)
    assert (finding.reason, finding.is_terminal) == (case.reason, case.is_terminal)
    assert case.words in finding.message


def test_a_long_error_is_cut_and_the_advice_stays() -> None:
    message = diagnose(errors.RedisUnavailable("x" * 100_000)).message
    assert len(message) < 3000
    assert message.endswith("…. Check spec.redis and the network; Pelops retries automatically")


def test_a_shortened_text_shows_that_some_is_missing() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "ab…"


@pytest.mark.parametrize("text", ["", ".", "\r", " \n"])
def test_an_error_that_says_nothing_is_named(text: str) -> None:
    assert diagnose(errors.InvalidSpec(text)).message == "InvalidSpec"
