"""What each Redis user must be allowed: the least ACL for the operator and for workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from pelops.domain.naming import GroupKeys, escape_glob


class Role(StrEnum):
    """Who the Redis user is."""

    OPERATOR = "operator"
    WORKER = "worker"  # in any language: XREADGROUP and XACK
    SDK_WORKER = "sdk-worker"
    AUDITOR = "auditor"  # the job of a StreamAudit: reads, and writes what it found
    PRODUCER = "producer"  # in any language: XADD


class Feature(StrEnum):
    """What the servers are, or what the resource asks for, beyond the least."""

    CLUSTER = "cluster"
    DATABASE = "database"  # another database than 0
    DELETE_POLICY = "delete-policy"
    RECOVERY = "recovery"
    RETENTION = "retention"
    CLEANUP = "cleanup"  # of dead consumers
    LOCKS = "locks"
    EXPIRY_EVENTS = "expiry-events"
    WAKE = "wake"  # from zero replicas
    RELEASE = "release"  # servers with XNACK
    SCALING = "scaling"  # the server's count of what is owed, put right
    DELETING = "deleting"  # SDK workers that delete what is acknowledged, by XACKDEL


# Seeing, provisioning, remembering, and the end of old dead letters and records. AUTH needs no
# word: every user may.
_OPERATOR: Final = (
    *("+eval", "+evalsha", "+info", "+time", "+type", "+hmget", "+hset", "+hdel"),
    *("+xinfo|stream", "+xinfo|groups", "+xpending", "+xlen", "+xrange"),
    *("+xgroup|create", "+xadd", "+xdel", "+xtrim"),
)
_CLUSTER: Final = ("+cluster|slots", "+asking")
_OPERATOR_FEATURES: Final[dict[Feature, tuple[str, ...]]] = {
    Feature.CLUSTER: _CLUSTER,
    Feature.DATABASE: ("+select",),
    Feature.DELETE_POLICY: ("+xgroup|destroy", "+unlink"),
    Feature.RECOVERY: (
        *("+xack", "+xclaim", "+xinfo|consumers", "+xgroup|delconsumer"),
        *("+hget", "+hincrby", "+hscan"),
    ),
    Feature.RETENTION: ("+hincrby",),
    Feature.CLEANUP: ("+xinfo|consumers", "+xgroup|delconsumer"),
    Feature.LOCKS: ("+exists", "+pttl"),
    Feature.EXPIRY_EVENTS: ("+psubscribe", "+punsubscribe", "&__keyevent@*__:expired"),
    Feature.WAKE: ("+xread", "+client|id", "+client|unblock"),
    Feature.RELEASE: ("+xnack",),
    Feature.SCALING: ("+xgroup|setid",),
}
_RESET: Final = ("resetkeys", "resetchannels", "-@all")
# Client libraries send these on their own; an unknown one only costs them a refusal.
_ANY_CLIENT: Final = ("+hello", "+auth", "+ping", "+client|setname")
_ANY_CLIENT_CLUSTER: Final = ("+cluster|slots", "+cluster|shards", "+command", "+asking")
_WORKER: Final = (*_ANY_CLIENT, "+xreadgroup", "+xack")
_PRODUCER: Final = (*_ANY_CLIENT, "+xadd")
_SDK_WORKER: Final = (
    *(*_WORKER, "+eval", "+evalsha", "+time", "+type"),
    *("+xclaim", "+xautoclaim", "+xpending", "+xrange", "+xadd", "+xgroup|delconsumer"),
    *("+hget", "+hset", "+hdel", "+hincrby"),
)
_AUDITOR: Final = (
    *(*_ANY_CLIENT, "+eval", "+evalsha", "+time", "+type", "+info", "+multi", "+exec"),
    *(
        "+xrange",
        "+xrevrange",
        "+xlen",
        "+xpending",
        "+xinfo|stream",
        "+xinfo|groups",
        "+xinfo|consumers",
    ),
    *("+hmget", "+hset"),
)
_SDK_WORKER_FEATURES: Final = {Feature.RELEASE: "+xnack", Feature.DELETING: "+xackdel"}

_WORDS: Final = {Role.WORKER: _WORKER, Role.SDK_WORKER: _SDK_WORKER, Role.AUDITOR: _AUDITOR}


def acl_rules(
    keys: GroupKeys, role: Role, features: Collection[Feature] = frozenset()
) -> tuple[str, ...]:
    """The words that follow `ACL SETUSER <name> on ><password>`, for one group.

    They begin with a reset, so that the user may do nothing else. A user of several groups gets
    the key patterns of each.
    """
    if role == Role.PRODUCER:
        return producer_rules(keys.stream, features)
    return (
        *_RESET,
        *_key_patterns(keys, role, features),
        *dict.fromkeys(_commands(role, features)),
    )


def producer_rules(stream: str, features: Collection[Feature] = frozenset()) -> tuple[str, ...]:
    """The same for whoever only adds entries: a producer knows no group."""
    return (*_RESET, f"~{escape_glob(stream)}", *_PRODUCER, *_of_servers(features))


def _key_patterns(keys: GroupKeys, role: Role, features: Collection[Feature]) -> Iterable[str]:
    may = "%R~" if role == Role.AUDITOR else "~"
    yield f"{may}{escape_glob(keys.stream)}"
    yield f"{may}{escape_glob(keys.prefix)}:*"
    if role == Role.AUDITOR:
        yield f"~{escape_glob(keys.audit)}"
    if role != Role.WORKER and not keys.dead_letter.startswith(f"{keys.prefix}:"):
        yield f"{may}{escape_glob(keys.dead_letter)}"
    if role == Role.OPERATOR and Feature.LOCKS in features:
        yield f"~lock:{{{escape_glob(keys.tag)}}}:*"


def _commands(role: Role, features: Collection[Feature]) -> Iterable[str]:
    if role == Role.OPERATOR:
        yield from _OPERATOR
        for feature, words in _OPERATOR_FEATURES.items():
            yield from words if feature in features else ()
        return
    yield from _WORDS[role]
    if role == Role.SDK_WORKER:
        yield from (word for feature, word in _SDK_WORKER_FEATURES.items() if feature in features)
    yield from _of_servers(features)


def _of_servers(features: Collection[Feature]) -> Iterable[str]:
    if Feature.CLUSTER in features:
        yield from _ANY_CLIENT_CLUSTER
    if Feature.DATABASE in features:
        yield "+select"
