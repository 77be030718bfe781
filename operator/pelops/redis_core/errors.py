"""Translates errors of Redis and redis-py into Pelops' own, by the question *did it happen?*

An error reply means that nothing was written, because scripts refuse first and write last. A
connection that ends after a write was sent leaves the outcome unknown.

Messages are shown in the status of a resource, whose author chose the server, which may not be a
Redis. They repeat no text from the server: only names that Pelops sent, and codes and commands of
fixed lists. The original error is chained as the cause, and logged at DEBUG.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from redis import exceptions

from pelops.errors import (
    AddressNotAllowed,
    AuthenticationFailed,
    CredentialsNotAllowed,
    CrossSlot,
    InvalidReply,
    InvalidSpec,
    NoSuchGroup,
    NoSuchStream,
    NotServing,
    OutcomeUnknown,
    OutOfMemory,
    PelopsError,
    PermissionDenied,
    RedisError,
    RedisUnavailable,
    SlotMigrating,
    UnknownRefusal,
    UnsupportedServer,
    WritesRefused,
    WrongType,
)
from pelops.redis_core.commands import COMMANDS
from pelops.redis_core.replies.wire import UnboundedReply

__all__ = [
    "AddressNotAllowed",
    "AuthenticationFailed",
    "InvalidReply",
    "InvalidSpec",
    "NoSuchGroup",
    "NoSuchStream",
    "PelopsError",
    "PermissionDenied",
    "RedisUnavailable",
    "WrongType",
    "common_kind",
    "describe_failure",
    "is_passing",
    "is_refusal",
    "permission_denied",
    "translate_failure",
    "translate_reply",
    "words_of",
]

log: Final = logging.getLogger(__name__)

_REFUSED: Final = {
    "LOADING": "Redis is loading its data set",
    "BUSY": "Redis is busy with a script of another client",
    "READONLY": "this Redis is a read-only replica: set spec.redis.url to the master, or use "
    "spec.redis.sentinel",
    "OOM": "Redis is out of memory and refuses writes",
    "NOREPLICAS": "Redis refuses writes because it has fewer replicas than min-replicas-to-write: "
    "restore the replicas, or lower min-replicas-to-write",
    "MISCONF": "Redis refuses writes because it cannot save its data to disk: see the log of Redis "
    "(disk space, permissions, memory for the fork)",
    "MASTERDOWN": "this Redis is a replica without a connection to its master",
    "TRYAGAIN": "the hash slot of the keys is being migrated to another node",
    "CLUSTERDOWN": "the Redis Cluster is down or does not cover all hash slots",
    "MOVED": "the Redis Cluster redirected the request too often",
    "ASK": "the hash slot of the keys is being migrated to another node",
    "NOSCRIPT": "Redis lost its script cache twice in a row",
    "UNBLOCKED": "Redis ended a blocking command",
}
_KINDS: Final[Mapping[str, type[RedisUnavailable]]] = {
    **dict.fromkeys(("TRYAGAIN", "ASK"), SlotMigrating),
    "OOM": OutOfMemory,
    **dict.fromkeys(("READONLY", "NOREPLICAS", "MISCONF"), WritesRefused),
    **dict.fromkeys(("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN"), NotServing),
}
# Errors that another node, or the same one later, may not return without any repair.
_PASSING: Final = frozenset(_REFUSED) - {"OOM", "NOREPLICAS", "MISCONF", "NOSCRIPT"}
_CLIENTS: Final = "max number of clients"
_DENIED: Final = re.compile(r"run the '([^']+)' command", re.IGNORECASE)
_DENIED_KEY: Final = re.compile(r"access the '(.+)' key", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"unknown (?:redis )?(?:sub)?command", re.IGNORECASE)
_LACKING: Final = re.compile(r"unknown (?:sub)?command ['`]?([^'`, ]+)", re.IGNORECASE)
_NO_DATABASE: Final = re.compile(
    r"DB index is out of range|SELECT is not allowed|Invalid Database", re.IGNORECASE
)
_WANTS_CREDENTIALS: Final = re.compile(
    r"without any password|invalid password|wrong number of arguments for 'auth'", re.IGNORECASE
)
_LONGEST: Final = 300  # characters of an error reply that are examined
# Words of commands and subcommands: messages may repeat these from a server's errors.
_WORDS: Final = frozenset(
    word
    for name in (*COMMANDS, "eval", "evalsha", "script|load", "sentinel|sentinels", "cluster|nodes")
    for word in name.split("|")
)
_SCRIPT_LINE: Final = re.compile(r" script: [0-9a-f, ]*on @user_script.*$", re.DOTALL)
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*$", re.DOTALL)  # may hold payload
_DENIED_IN_SCRIPT: Final = re.compile(r"ACL failure in script|user executing the script can't")


def translate_failure(error: Exception, *, address: str, sent: bool, writes: bool) -> PelopsError:
    """The error for a broken connection or a missing reply.

    `sent` is whether any byte of the command may have been sent, `writes` whether the command would
    write. Only if both are true the outcome is unknown.
    """
    if is_refusal(error):
        return translate_reply(error, command="AUTH", key=None, writes=False)
    log.debug("Redis at %s: %r", address, error)
    if isinstance(error, exceptions.InvalidResponse):
        why = str(error) if isinstance(error, UnboundedReply) else "it is not valid RESP2"
        return InvalidReply(f"Redis at {address} sent an invalid reply: {why}")
    shown = describe_failure(error)
    if sent and writes:
        return OutcomeUnknown(f"Redis at {address} did not answer a write: {shown}")
    return RedisUnavailable(f"Redis at {address} cannot be reached: {shown}")


# By the class name of an error in Python, ssl or redis-py; the most specific comes first.
_FAILURES: Final = {
    "SSLCertVerificationError": "its certificate is not accepted (CERTIFICATE_VERIFY_FAILED)",
    "SSLError": "the TLS handshake failed; one side may not use TLS",
    "gaierror": "its host name cannot be resolved",
    "ConnectionRefusedError": "connection refused",
    "InvalidResponse": "it does not speak Redis' protocol (RESP)",
    "ProtocolError": "it does not speak Redis' protocol (RESP)",
    "TimeoutError": "no answer in time",
    "ConnectionError": "the connection was closed",
    "IncompleteReadError": "the connection was closed",
    "OSError": "network error",
}
_CERTIFICATE: Final = {  # by X509_V_ERR_*
    10: "it has expired",
    18: "it is self-signed and not in ca.crt",
    19: "the certificate authority that signed it is not in ca.crt",
    20: "the certificate authority that signed it is not in ca.crt",
    62: "it is for another host name",
    64: "it is for another address",
}
_NO_ROUTE: Final = frozenset({101, 113})  # ENETUNREACH, EHOSTUNREACH


def describe_failure(error: BaseException) -> str:
    """Why a connection failed, in fixed words without any text from the server."""
    chain = list(_causes(error))
    kinds = [{kind.__name__ for kind in type(one).__mro__} for one in chain]
    for name, words in _FAILURES.items():
        for one, names in zip(chain, kinds, strict=True):
            if name not in names:
                continue
            if name == "SSLCertVerificationError":
                reason = _CERTIFICATE.get(getattr(one, "verify_code", 0))
                return f"{words}: {reason}" if reason else words
            if getattr(one, "errno", None) in _NO_ROUTE:
                return "no route to host"
            # asyncio raises one error for all addresses of a name, with the errors in its text.
            return _FAILURES["ConnectionRefusedError"] if _refused_all(one) else words
    return f"the connection failed ({type(error).__name__})"


def _refused_all(error: BaseException) -> bool:
    return str(error).startswith("Multiple exceptions: [Errno 111]")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and its chain of causes."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def common_kind(problems: Iterable[Exception]) -> type[RedisError]:
    """The kind of error for several servers none of which can be used."""
    kinds = {type(problem) for problem in problems}
    alike: tuple[type[RedisError], ...] = (AddressNotAllowed, CredentialsNotAllowed, InvalidReply)
    return next((kind for kind in alike if kinds == {kind}), RedisUnavailable)


def translate_reply(
    error: Exception, *, command: str, key: str | None, writes: bool
) -> PelopsError:
    """The Pelops error for an error reply to `command` on `key`."""
    code, text = _read_refusal(error)
    if code in _REFUSED:
        refused = _KINDS.get(code, RedisUnavailable)
        return refused(f"{_REFUSED[code]} ({code})")
    if code in {"WRONGPASS", "NOAUTH"} or _WANTS_CREDENTIALS.search(text):
        return _wrong_credentials(code)
    if isinstance(error, exceptions.AuthenticationError):  # raised by redis-py itself
        return _wrong_credentials(code)
    if code == "NOPERM" or _DENIED_IN_SCRIPT.search(text):
        return _denied(text, key)
    log.debug("%s was refused: %.500r", command, text)
    return (
        _named(code, text, key)
        or (None if writes else _named_within(text, key))
        or _unnamed(text, command, writes=writes)
    )


def _named(code: str, text: str, key: str | None) -> PelopsError | None:
    if code == "WRONGTYPE":
        return WrongType(
            f"the key {key} is not of the type that Pelops needs", key=key or "", found="unknown"
        )
    if code == "NOGROUP":
        return NoSuchGroup("the consumer group, or its stream, does not exist (NOGROUP)")
    if code == "CROSSSLOT" or "non local key" in text:
        return CrossSlot("the keys of this group are not in one hash slot of the Redis Cluster")
    return None


def _named_within(text: str, key: str | None) -> PelopsError | None:
    """Errors known by their text alone. Not for writes: it may come from the middle of a script."""
    if "NOGROUP" in text or "no such consumer group" in text.lower():
        return NoSuchGroup("the consumer group, or its stream, does not exist")
    if "WRONGTYPE" in text or "wrong kind of value" in text:
        return WrongType(
            f"the key {key} is not of the type that Pelops needs", key=key or "", found="unknown"
        )
    if "no such key" in text or "requires the key to exist" in text:
        return NoSuchStream("the stream does not exist")
    return None


def _unnamed(text: str, command: str, *, writes: bool) -> PelopsError:
    if _UNKNOWN.search(text):
        found = _LACKING.search(text)
        lacking = found[1] if found and found[1].lower() in _WORDS else command
        is_script = lacking.lower().split("|")[0] not in _WORDS
        what = f"a command of the script {lacking}.lua" if is_script else f"the command {lacking}"
        return UnsupportedServer(f"this Redis does not support {what}")
    if _NO_DATABASE.search(text):
        return InvalidSpec(
            "the database number in the Redis URL does not exist; a Redis Cluster has only "
            "database 0"
        )
    if _CLIENTS in text:
        return NotServing("Redis has reached maxclients: raise maxclients, or close connections")
    # An unknown error may come from the middle of a script.
    message = f"{command} returned an unknown error; see the log of Redis"
    return UnknownRefusal(message) if writes else RedisError(message)


def _wrong_credentials(code: str) -> AuthenticationFailed:
    if code == "NOAUTH":
        return AuthenticationFailed(
            "Redis asks for a password: add the keys username and password to the Secret"
        )
    return AuthenticationFailed("Redis rejects the username or password")


def _denied(text: str, key: str | None) -> PermissionDenied:
    named, named_key = _DENIED.search(text), _DENIED_KEY.search(text)
    command = named[1].lower() if named else None
    return permission_denied(
        command if command in COMMANDS or command in _WORDS else None,
        key if key is not None and named_key is not None and named_key[1] == key else None,
    )


def permission_denied(command: str | None, key: str | None) -> PermissionDenied:
    """The error for a command that the ACL forbids, in general or on one key.

    Redis often names neither the command nor the key; `Server` then determines them.
    """
    on_key = f" on the key {key}" if key else ""
    return PermissionDenied(
        f"the ACL of the Redis user forbids {command or 'a command'}{on_key}: add the rules that "
        "`pelops acl` prints",
        command=command,
        key=key,
    )


def words_of(error: BaseException) -> str:
    """The server's own text of an error reply: for decisions, never for messages."""
    return str(error.__cause__ or error)


def is_refusal(error: Exception) -> bool:
    """Whether the server replied with an error, so the connection did not fail."""
    # redis-py raises a ConnectionError for some error replies, such as LOADING.
    kinds = (exceptions.ResponseError, exceptions.AuthenticationError)
    return isinstance(error, kinds) or bool(getattr(error, "status_code", None))


def is_passing(error: Exception) -> bool:
    """Whether another node, or the same one later, may not return this error."""
    code, text = _read_refusal(error)
    return code in _PASSING or _CLIENTS in text


def _read_refusal(error: Exception) -> tuple[str, str]:
    text = _ARGUMENTS.sub("", _SCRIPT_LINE.sub("", str(error)))[:_LONGEST]
    return _code(error) or text.partition(" ")[0], text


def _code(error: BaseException) -> str | None:
    code = getattr(error, "status_code", None)
    return code if isinstance(code, str) and code != "ERR" else None
