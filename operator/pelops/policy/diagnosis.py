"""What an error means to the person who wrote the resource: a reason, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.condition import Finding
from pelops.errors import (
    AuthenticationFailed,
    Conflict,
    CrossSlot,
    DeadLetterInAnotherSlot,
    Forbidden,
    InvalidSpec,
    KubernetesUnavailable,
    NotFound,
    OutcomeUnknown,
    PelopsError,
    PermissionDenied,
    RedisUnavailable,
    Rejected,
    UnsupportedServer,
    WrongType,
)


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    """`template` quotes the error as {error}; terminal: somebody must change something."""

    kind: type[PelopsError]
    reason: str
    template: str
    is_terminal: bool = True


# The first match wins.
_DIAGNOSES: Final = (
    _Diagnosis(DeadLetterInAnotherSlot, "DeadLetterInAnotherSlot", "{error}"),
    _Diagnosis(InvalidSpec, "InvalidSpec", "{error}"),
    _Diagnosis(
        AuthenticationFailed,
        "AuthenticationFailed",
        "{error}. Correct the Secret that spec.redis.secretRef names; Pelops reads it again by "
        "itself",
    ),
    _Diagnosis(
        PermissionDenied,
        "PermissionDenied",
        "{error}. `pelops acl` prints the least rules; Pelops goes on by itself",
    ),
    _Diagnosis(WrongType, "WrongType", "{error}. Nothing was changed"),
    _Diagnosis(
        CrossSlot,
        "CrossSlot",
        "{error}. Give spec.deadLetter.stream the stream's hash tag, or leave it out",
    ),
    _Diagnosis(UnsupportedServer, "UnsupportedServer", "{error}"),
    _Diagnosis(
        RedisUnavailable,
        "RedisUnreachable",
        "{error}. Check spec.redis and the network; Pelops tries again by itself",
        is_terminal=False,
    ),
    _Diagnosis(
        OutcomeUnknown,
        "RedisUnreachable",
        "{error}. Pelops looks again by itself",
        is_terminal=False,
    ),
    _Diagnosis(
        KubernetesUnavailable,
        "KubernetesUnavailable",
        "{error}. Pelops tries again by itself",
        is_terminal=False,
    ),
    _Diagnosis(Conflict, "WriteConflict", "Another writer was faster: {error}", is_terminal=False),
    _Diagnosis(Forbidden, "Forbidden", "Kubernetes forbids it: {error}"),
    _Diagnosis(Rejected, "Rejected", "The API server refuses it: {error}"),
    _Diagnosis(NotFound, "NotFound", "Not found: {error}", is_terminal=False),
)


def diagnose(error: PelopsError) -> Finding:
    """The finding for any error of Pelops. Total: an unknown kind is named by its class."""
    for known in _DIAGNOSES:
        if isinstance(error, known.kind):
            message = known.template.format(error=str(error).rstrip("."))
            return Finding(
                reason=known.reason, message=_sentence(message), is_terminal=known.is_terminal
            )
    return Finding(reason=type(error).__name__, message=_sentence(str(error)))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
