"""What an error means to the person who wrote the resource."""

from __future__ import annotations

import pytest

from pelops import errors
from pelops.domain.condition import shorten
from pelops.policy.status.diagnosis import diagnose

DIAGNOSES: dict[str, tuple[errors.PelopsError, str, bool, str]] = {
    "a wrong password": (
        errors.AuthenticationFailed("WRONGPASS invalid"),
        "AuthenticationFailed",
        True,
        "Correct the Secret",
    ),
    "a missing permission": (
        errors.PermissionDenied("xgroup|create is not allowed", command="xgroup|create"),
        "PermissionDenied",
        True,
        "not allowed. Pelops retries automatically",
    ),
    "a field": (
        errors.InvalidSpec("spec.template has no containers"),
        "InvalidSpec",
        True,
        "spec.template has no containers",
    ),
    "a key of another type": (
        errors.WrongType("s holds a list.", key="s", found="list"),
        "WrongType",
        True,
        "S holds a list. Nothing was changed",
    ),
    "a state of a newer version": (
        errors.NewerFormat("the key s was written in format 2"),
        "NewerFormat",
        True,
        "Nothing is written to the group. Upgrade the operator",
    ),
    "an address that is not allowed": (
        errors.AddressNotAllowed("Redis at r:1 is not allowed: it is a loopback address"),
        "AddressNotAllowed",
        True,
        "a loopback address. Correct spec.redis, or ask the administrator of Pelops",
    ),
    "credentials that may not go there": (
        errors.CredentialsNotAllowed("the credentials of Secret s may not go to r:1"),
        "CredentialsNotAllowed",
        True,
        "The credentials of Secret s",
    ),
    "Redis is down": (
        errors.RedisUnavailable("connection refused"),
        "RedisUnreachable",
        False,
        "Connection refused. Check spec.redis",
    ),
    "Redis is out of memory": (
        errors.OutOfMemory("Redis is out of memory and refuses writes (OOM)"),
        "RedisOutOfMemory",
        False,
        "(OOM). Raise maxmemory, or free memory: set spec.retention",
    ),
    "Redis cannot persist": (
        errors.WritesRefused("Redis refuses writes (MISCONF)"),
        "RedisRefusesWrites",
        False,
        "(MISCONF). Pelops retries automatically",
    ),
    "Redis loads its data": (
        errors.NotServing("Redis is loading its data (LOADING)"),
        "RedisNotReady",
        False,
        "(LOADING). Pelops retries automatically",
    ),
    "an answer is lost": (
        errors.OutcomeUnknown("timeout"),
        "RedisUnreachable",
        False,
        "retries automatically",
    ),
    "what is answered is no reply": (
        errors.InvalidReply("Redis answers TIME with what is no valid reply: a list is missing"),
        "InvalidRedisReply",
        False,
        "a list is missing. Check that spec.redis names a Redis or Valkey server",
    ),
    "dead letters elsewhere are more than an invalid spec": (
        errors.DeadLetterInAnotherSlot("in another slot"),
        "DeadLetterInAnotherSlot",
        True,
        "In another slot",
    ),
    "a group that vanished": (
        errors.NoSuchGroup("NOGROUP"),
        "GroupNotFound",
        False,
        "creates it again",
    ),
    "an unknown refusal by Redis": (errors.RedisError("ERR odd"), "RedisError", True, "ERR odd"),
    "a refused template": (
        errors.Rejected("spec.x: Invalid"),
        "Rejected",
        True,
        "rejects the object",
    ),
    "an unknown refusal by Kubernetes": (
        errors.KubernetesError("teapot"),
        "KubernetesError",
        True,
        "teapot",
    ),
    "an error without words is named by its class": (
        errors.PelopsError(""),
        "UnexpectedError",
        True,
        "PelopsError",
    ),
    "braces in an error are no template": (
        errors.InvalidSpec("{stream} {0}"),
        "InvalidSpec",
        True,
        "{stream} {0}",
    ),
}


@pytest.mark.parametrize("case", DIAGNOSES.values(), ids=DIAGNOSES)
def test_diagnosis(case: tuple[errors.PelopsError, str, bool, str]) -> None:
    error, reason, is_terminal, words = case
    finding = diagnose(error)
    assert (finding.reason, finding.is_terminal) == (reason, is_terminal)
    assert words in finding.message


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
