"""What an error means for the author of the resource: a reason, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.condition import Finding, capitalize, shorten
from pelops.domain.site import page_url
from pelops.errors import (
    AddressNotAllowed,
    AuthenticationFailed,
    Conflict,
    CredentialsNotAllowed,
    CrossSlot,
    DeadLetterInAnotherSlot,
    DeadLetterStreamInUse,
    DeadlineExceeded,
    Forbidden,
    InternalError,
    InvalidReply,
    InvalidSpec,
    KubernetesError,
    KubernetesUnavailable,
    NewerFormat,
    NoSuchGroup,
    NotFound,
    NotOurs,
    NotServing,
    OutcomeUnknown,
    OutOfMemory,
    PelopsError,
    PermissionDenied,
    PositionAhead,
    RedisError,
    RedisUnavailable,
    Rejected,
    SlotMigrating,
    StreamInUse,
    UnknownRefusal,
    UnsupportedServer,
    WouldDuplicate,
    WritesRefused,
    WrongType,
)
from pelops.policy.status.reasons import Reason

# A long error is cut, so that the advice after it is not.
_ERROR_LIMIT: Final = 2048


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    """`template` quotes the error as {error}; terminal: a user must change something."""

    kind: type[PelopsError]
    reason: Reason
    template: str
    is_terminal: bool = True


# The first match wins.
_DIAGNOSES: Final = (
    _Diagnosis(DeadLetterInAnotherSlot, Reason.DEAD_LETTER_IN_ANOTHER_SLOT, "{error}"),
    _Diagnosis(InvalidSpec, Reason.INVALID_SPEC, "{error}"),
    _Diagnosis(
        AuthenticationFailed,
        Reason.AUTHENTICATION_FAILED,
        "{error}. Correct the Secret that spec.redis names; Pelops reads it again automatically",
    ),
    _Diagnosis(
        PermissionDenied,
        Reason.PERMISSION_DENIED,
        "{error}. Pelops retries automatically",
    ),
    _Diagnosis(WrongType, Reason.WRONG_TYPE, "{error}. Nothing was changed"),
    _Diagnosis(
        NewerFormat,
        Reason.NEWER_FORMAT,
        "{error}. Nothing is written to the group. Upgrade the operator to that version; to go "
        f"back to this version, see {page_url('runbook/newer-format')}",
    ),
    _Diagnosis(
        DeadLetterStreamInUse,
        Reason.DEAD_LETTER_STREAM_IN_USE,
        "{error}. Nothing was changed. Set spec.deadLetter.stream to another key, or remove it",
    ),
    _Diagnosis(
        StreamInUse,
        Reason.STREAM_IN_USE,
        "{error}. Nothing was changed. Choose another name in spec.group, or rename the existing "
        "key",
    ),
    _Diagnosis(
        CrossSlot,
        Reason.CROSS_SLOT,
        "{error}. Use the hash tag of spec.stream in spec.deadLetter.stream, or remove the field",
    ),
    _Diagnosis(
        UnsupportedServer,
        Reason.UNSUPPORTED_SERVER,
        "{error}. Use Redis 7.0 or later, or Valkey 7.2 or later, on which the command is not "
        "renamed",
    ),
    _Diagnosis(
        SlotMigrating,
        Reason.SLOT_MIGRATING,
        "{error}. Recovery continues when the migration of the slot has ended",
        is_terminal=False,
    ),
    _Diagnosis(
        OutOfMemory,
        Reason.REDIS_OUT_OF_MEMORY,
        "{error}. Raise maxmemory, or free memory: set spec.retention, which trims entries that "
        "every group has finished, and check which other keys fill this Redis. Do not set "
        "maxmemory-policy to allkeys-*: Redis would delete streams. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        WritesRefused,
        Reason.REDIS_REFUSES_WRITES,
        "{error}. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        NotServing,
        Reason.REDIS_NOT_READY,
        "{error}. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(CredentialsNotAllowed, Reason.CREDENTIALS_NOT_ALLOWED, "{error}"),
    _Diagnosis(
        AddressNotAllowed,
        Reason.ADDRESS_NOT_ALLOWED,
        "{error}. Correct spec.redis, or ask the administrator of Pelops to allow the address with "
        "PELOPS_ALLOWED_NETWORKS or PELOPS_ALLOWED_HOSTS",
    ),
    _Diagnosis(
        RedisUnavailable,
        Reason.REDIS_UNREACHABLE,
        "{error}. Check spec.redis and the network; Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        InvalidReply,
        Reason.INVALID_REDIS_REPLY,
        "{error}. Check that spec.redis names a Redis or Valkey server, and which proxies are "
        "between Pelops and it; Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        UnknownRefusal,
        Reason.REDIS_ERROR,
        "Redis returned an error: {error}. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        OutcomeUnknown,
        Reason.REDIS_UNREACHABLE,
        "{error}. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        KubernetesUnavailable,
        Reason.KUBERNETES_UNAVAILABLE,
        "{error}. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        Conflict,
        Reason.WRITE_CONFLICT,
        "Another client changed the object at the same time: {error}. Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        Forbidden,
        Reason.FORBIDDEN,
        "Kubernetes forbids the request: {error}. Check the RBAC rules of the operator, quotas and "
        "admission policies",
    ),
    _Diagnosis(
        Rejected,
        Reason.REJECTED,
        "The API server rejects the object as invalid: {error}. Correct the field of the spec",
    ),
    _Diagnosis(
        NotFound,
        Reason.NOT_FOUND,
        "Not found: {error}. Create the object, or correct the reference to it; Pelops retries "
        "automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        NoSuchGroup,
        Reason.GROUP_NOT_FOUND,
        "{error}. Pelops creates it again; find out what deleted it (XGROUP DESTROY, DEL, EXPIRE)",
        is_terminal=False,
    ),
    _Diagnosis(
        WouldDuplicate,
        Reason.REQUEUE_WOULD_DUPLICATE,
        "{error}. Set spec.recovery.strategy: RetryStream and let the workers read that stream as "
        "well, or Release for workers that claim entries",
    ),
    _Diagnosis(
        PositionAhead,
        Reason.POSITION_AHEAD,
        "{error}. Redis does not deliver new entries with lower IDs either: set the position back "
        "with XGROUP SETID, or delete the group if the stream was replaced",
    ),
    _Diagnosis(NotOurs, Reason.CONFLICT, "{error}. Pelops changes nothing for this resource"),
    _Diagnosis(
        RedisError,
        Reason.REDIS_ERROR,
        "Redis returned an error: {error}. Pelops retries automatically",
    ),
    _Diagnosis(
        KubernetesError,
        Reason.KUBERNETES_ERROR,
        "The API server returned an error: {error}. See the log of the operator; Pelops retries "
        "automatically",
    ),
    _Diagnosis(
        DeadlineExceeded,
        Reason.DEADLINE_EXCEEDED,
        "{error}, so that other resources do not wait. Check that the servers that spec.redis "
        "names answer; Pelops retries automatically",
        is_terminal=False,
    ),
    _Diagnosis(
        InternalError,
        Reason.UNEXPECTED_ERROR,
        "{error}. Other resources are not affected; Pelops retries automatically. Report this as "
        "a bug",
        is_terminal=False,
    ),
    _Diagnosis(
        PelopsError,
        Reason.UNEXPECTED_ERROR,
        "{error}. See the log of the operator, and report this as a bug",
    ),
)


def diagnose(error: PelopsError) -> Finding:
    """Return the finding for any error of Pelops. Total."""
    known = next(known for known in _DIAGNOSES if isinstance(error, known.kind))
    text = str(error).strip().rstrip(".")
    summary = shorten(text or type(error).__name__, _ERROR_LIMIT)
    message = known.template.format(error=summary)
    return Finding(
        reason=known.reason,
        message=capitalize(message),
        is_terminal=known.is_terminal,
    )
