"""Redis' and redis-py's errors in our words, by the question *did it happen?*

A reply that is an error was refused before anything was written: our scripts refuse first and write
last. A connection that ends after a write was sent leaves the outcome unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from redis import exceptions

from pelops.errors import (
    AuthenticationFailed,
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
    UnsupportedServer,
    WritesRefused,
    WrongType,
)
from pelops.redis_core.replies.wire import UnboundedReply

__all__ = [
    "AuthenticationFailed",
    "InvalidReply",
    "InvalidSpec",
    "NoSuchGroup",
    "NoSuchStream",
    "PelopsError",
    "PermissionDenied",
    "RedisUnavailable",
    "WrongType",
    "is_passing",
    "is_refusal",
    "permission_denied",
    "translate_failure",
    "translate_reply",
]

_REFUSED: Final = {
    "LOADING": "Redis is loading its data; it will be asked again",
    "BUSY": "Redis is busy with a script of someone else; it will be asked again",
    "READONLY": "this Redis is a read-only replica; name the master, or use spec.redis.sentinel",
    "OOM": "Redis is out of memory and refuses writes",
    "NOREPLICAS": "Redis refuses writes: it has fewer replicas than min-replicas-to-write; bring"
    " the replicas back, or lower that number",
    "MISCONF": "Redis refuses writes, because it cannot save its data to the disk; its log says why"
    " (disk space, permissions, memory for the fork)",
    "MASTERDOWN": "this replica has lost its master",
    "TRYAGAIN": "the slot is being migrated; it will be asked again",
    "CLUSTERDOWN": "the cluster is down or does not cover all slots",
    "MOVED": "the cluster keeps moving the slot; it will be asked again",
    "ASK": "the slot is being migrated; it will be asked again",
    "NOSCRIPT": "Redis lost its script cache twice in a row; it will be asked again",
    "UNBLOCKED": "Redis ended the wait; it will be asked again",
}
_KINDS: Final[Mapping[str, type[RedisUnavailable]]] = {
    **dict.fromkeys(("TRYAGAIN", "ASK"), SlotMigrating),
    "OOM": OutOfMemory,
    **dict.fromkeys(("READONLY", "NOREPLICAS", "MISCONF"), WritesRefused),
    **dict.fromkeys(("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN"), NotServing),
}
# What another node would not refuse, or the same one later, without anybody's help.
_PASSING: Final = frozenset(_REFUSED) - {"OOM", "NOREPLICAS", "MISCONF", "NOSCRIPT"}
_CLIENTS: Final = "max number of clients"
_DENIED: Final = re.compile(r"run the '([^']+)' command", re.IGNORECASE)
_DENIED_KEY: Final = re.compile(r"access the '(.+)' key", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"unknown (?:redis )?(?:sub)?command", re.IGNORECASE)
_LACKING: Final = re.compile(r"unknown (?:sub)?command '?([^', ]+)", re.IGNORECASE)
_NO_DATABASE: Final = re.compile(
    r"DB index is out of range|SELECT is not allowed|Invalid Database", re.IGNORECASE
)
_WANTS_CREDENTIALS: Final = re.compile(
    r"without any password|invalid password|wrong number of arguments for 'auth'", re.IGNORECASE
)
_LONGEST: Final = 300  # characters of a refusal that are shown
_SCRIPT_LINE: Final = re.compile(r" script: [0-9a-f, ]*on @user_script.*$", re.DOTALL)
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*$", re.DOTALL)  # may hold payload
_DENIED_IN_SCRIPT: Final = re.compile(r"ACL failure in script|user executing the script can't")


def translate_failure(error: Exception, *, address: str, sent: bool, writes: bool) -> PelopsError:
    """What a broken connection or a missed answer means.

    `sent` says whether any byte of the command may have left, `writes` whether it would change
    anything: only both together leave the outcome unknown.
    """
    if is_refusal(error):
        return translate_reply(error, command="AUTH", key=None, writes=False)
    if isinstance(error, exceptions.InvalidResponse):
        why = str(error) if isinstance(error, UnboundedReply) else "it is none of RESP2"
        return InvalidReply(f"Redis at {address} answers what is no valid reply: {why}")
    silent = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    shown = str(error) or silent
    if sent and writes:
        return OutcomeUnknown(f"Redis at {address} was asked to write and did not answer: {shown}")
    return RedisUnavailable(f"Redis at {address} cannot be reached: {shown}")


def translate_reply(
    error: Exception, *, command: str, key: str | None, writes: bool
) -> PelopsError:
    """What an error means that Redis answered to `command` on `key`."""
    code, text = _read_refusal(error)
    if code in _REFUSED:
        refused = _KINDS.get(code, RedisUnavailable)
        return refused(f"{_REFUSED[code]} ({code})")
    if code in {"WRONGPASS", "NOAUTH"} or _WANTS_CREDENTIALS.search(text):
        return _wrong_credentials(code)
    if isinstance(error, exceptions.AuthenticationError):  # redis-py says so in its own words
        return _wrong_credentials(code)
    if code == "NOPERM" or _DENIED_IN_SCRIPT.search(text):
        return _denied(text)
    return (
        _named(code, text, key)
        or (None if writes else _named_within(text, key))
        or _unnamed(text, command, writes=writes)
    )


def _named(code: str, text: str, key: str | None) -> PelopsError | None:
    if code == "WRONGTYPE":
        return WrongType(f"{key} holds another type", key=key or "", found="unknown")
    if code == "NOGROUP":
        return NoSuchGroup(text)
    if code == "CROSSSLOT" or "non local key" in text:
        return CrossSlot("the keys of this group do not lie in one slot of the cluster")
    return None


def _named_within(text: str, key: str | None) -> PelopsError | None:
    """What only the sentence says: of a write it may come from the middle of a script."""
    if "NOGROUP" in text or "no such consumer group" in text.lower():
        return NoSuchGroup(text)
    if "WRONGTYPE" in text or "wrong kind of value" in text:
        return WrongType(f"{key} holds another type", key=key or "", found="unknown")
    if "no such key" in text or "requires the key to exist" in text:
        return NoSuchStream(text)
    return None


def _unnamed(text: str, command: str, *, writes: bool) -> PelopsError:
    if _UNKNOWN.search(text):
        found = _LACKING.search(text)
        return UnsupportedServer(
            f"this Redis does not know the command {found[1] if found else command}"
        )
    if _NO_DATABASE.search(text):
        return InvalidSpec("Redis has no such database; a cluster has only database 0")
    if _CLIENTS in text:
        return NotServing("Redis accepts no more clients (maxclients); raise it, or close some")
    # An error that no list knows may come from the middle of a script.
    return OutcomeUnknown(f"{command}: {text}") if writes else RedisError(f"{command}: {text}")


def _wrong_credentials(code: str) -> AuthenticationFailed:
    if code == "NOAUTH":
        return AuthenticationFailed("Redis asks for a password; add one to the Secret")
    return AuthenticationFailed("Redis does not accept the username or password; check the Secret")


def _denied(text: str) -> PermissionDenied:
    named, named_key = _DENIED.search(text), _DENIED_KEY.search(text)
    return permission_denied(
        named[1].lower() if named else None, named_key[1] if named_key else None
    )


def permission_denied(command: str | None, key: str | None) -> PermissionDenied:
    """The error for a command that the ACL forbids, altogether or on one key.

    Redis itself often names neither; `Server` then looks for what it was.
    """
    on_key = f" on the key {key}" if key else ""
    return PermissionDenied(
        f"the ACL of the Redis user forbids {command or 'a command'}{on_key}; "
        "`pelops acl` prints the rules that are needed",
        command=command,
        key=key,
    )


def is_refusal(error: Exception) -> bool:
    """Whether the server answered, and refused: nothing broke on the way."""
    # redis-py ends the connection for some replies, such as LOADING: still a refusal.
    kinds = (exceptions.ResponseError, exceptions.AuthenticationError)
    return isinstance(error, kinds) or bool(getattr(error, "status_code", None))


def is_passing(error: Exception) -> bool:
    """Whether another node, or the same one a while later, would not give this answer."""
    code, text = _read_refusal(error)
    return code in _PASSING or _CLIENTS in text


def _read_refusal(error: Exception) -> tuple[str, str]:
    text = _ARGUMENTS.sub("", _SCRIPT_LINE.sub("", str(error)))[:_LONGEST]
    return _code(error) or text.partition(" ")[0], text


def _code(error: BaseException) -> str | None:
    code = getattr(error, "status_code", None)
    return code if isinstance(code, str) and code != "ERR" else None
