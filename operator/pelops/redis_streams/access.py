"""What each Redis user must be allowed: the least ACL for the operator and for workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from enum import StrEnum
from functools import cache
from typing import Final

from pelops.domain.naming import GroupKeys, escape_glob
from pelops.redis_core.commands import NamedKeys, Need, Part
from pelops.redis_core.declaration import (
    OPERATOR_SCRIPTS,
    WORKER_SCRIPTS,
    Declaration,
    DeclaredCommand,
    list_scripts,
    parse_runs,
    read_declaration,
)


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
    SCALING = "scaling"  # the server's count of the backlog, put right
    DELETING = "deleting"  # SDK workers that delete what is acknowledged, by XACKDEL


# What is sent beside scripts, as their headers list it. Client libraries send the first words on
# their own; an unknown one only costs them a refusal.
_ANY_CLIENT: Final = "[hello]; [auth]; [ping]; [client|setname]; [select for database];"
_ANY_CLUSTER: Final = (
    "[cluster|slots for cluster]; [cluster|shards for cluster]; [command for cluster];"
    "[asking for cluster];"
)
_SENT: Final[dict[Role, str]] = {
    # AUTH needs no word: every user may. XCLAIM was needed once, and stays granted.
    Role.OPERATOR: """
        [info]; time; type retry; hmget state audit; hset audit; hdel audit; xrange stream;
        xinfo|groups stream retry for recovery; xinfo|consumers stream retry for recovery;
        xpending stream retry for recovery; [xclaim stream for recovery]; pttl locks for locks;
        psubscribe for expiry-events; punsubscribe for expiry-events;
        xread stream for wake; client|id for wake; client|unblock for wake;
        cluster|slots for cluster; asking for cluster; select for database
    """,
    Role.WORKER: f"{_ANY_CLIENT} xreadgroup stream retry offer_stream;"
    " xack stream retry offer_stream;"
    f"{_ANY_CLUSTER}",
    # XAUTOCLAIM is for workers without our scripts.
    Role.SDK_WORKER: f"""
        {_ANY_CLIENT} hset started; hget state; xreadgroup stream retry offer_stream;
        xack stream retry offer_stream; xpending stream retry; xrange stream retry;
        hincrby state; hdel state; [xautoclaim stream]; [xackdel stream retry for deleting];
        {_ANY_CLUSTER}
    """,
    Role.AUDITOR: f"""
        {_ANY_CLIENT} info; time; multi; exec; xrange stream ledger dead_letter; xrevrange stream;
        xlen stream; xpending stream; xinfo|stream stream; xinfo|groups stream;
        xinfo|consumers stream; hset audit; {_ANY_CLUSTER}
    """,
    Role.PRODUCER: f"{_ANY_CLIENT} xadd stream; {_ANY_CLUSTER}",
}
_CHANNELS: Final = {Feature.EXPIRY_EVENTS: "&__keyevent@*__:expired"}
_RESET: Final = ("resetkeys", "resetchannels", "-@all")


def runs_of(role: Role) -> tuple[DeclaredCommand, ...]:
    """Every command of a role: what is sent, then what its scripts run."""
    of_scripts = tuple(
        replace(run, features=run.features or script.features)
        for script in scripts_of(role)
        for run in script.runs()
    )
    return (*sent_beside_scripts(role), *of_scripts)


def sent_beside_scripts(role: Role) -> tuple[DeclaredCommand, ...]:
    """The commands that a role sends itself."""
    return parse_runs(_SENT[role])


@cache
def scripts_of(role: Role) -> tuple[Declaration, ...]:
    """The scripts that a role runs."""
    found = (
        read_declaration(name, package)
        for package in (OPERATOR_SCRIPTS, WORKER_SCRIPTS)
        for name in list_scripts(package)
    )
    return tuple(script for script in found if role in script.roles)


def worker_needs(keys: NamedKeys) -> tuple[Need, ...]:
    """Every command that an SDK worker cannot do without, on each key of its group."""
    named = keys.by_name()
    sources = (named["stream"], named["retry"])
    places: dict[str, tuple[Part, ...]] = {name: (key,) for name, key in named.items()}
    places |= {"source": sources, "others": (named["retry"], named["offer_stream"])}
    needs = (
        Need(run.command, key)
        for run in runs_of(Role.SDK_WORKER)
        if not run.is_optional and not run.features
        for key in ([key for name in run.keys for key in places[name]] if run.keys else [None])
    )
    return tuple(dict.fromkeys(needs))


def acl_rules(
    keys: GroupKeys, role: Role, features: Collection[Feature] = frozenset()
) -> tuple[str, ...]:
    """The words that follow `ACL SETUSER <name> on ><password>`, for one group.

    They begin with a reset, so that the user may do nothing else. A user of several groups gets
    the key patterns of each.
    """
    if role == Role.PRODUCER:
        return producer_rules(keys.stream, features)
    return (*_RESET, *_key_patterns(keys, role, features), *_words(role, features))


def producer_rules(stream: str, features: Collection[Feature] = frozenset()) -> tuple[str, ...]:
    """The same for whoever only adds entries: a producer knows no group."""
    return (*_RESET, f"~{escape_glob(stream)}", *_words(Role.PRODUCER, features))


def _key_patterns(keys: GroupKeys, role: Role, features: Collection[Feature]) -> Iterable[str]:
    may = "%R~" if role == Role.AUDITOR else "~"
    yield f"{may}{escape_glob(keys.stream)}"
    yield f"{may}{escape_glob(keys.prefix)}:*"
    if role == Role.AUDITOR:
        yield f"~{escape_glob(keys.audit)}"
    if role != Role.WORKER and not keys.dead_letter.startswith(f"{keys.prefix}:"):
        yield f"{may}{escape_glob(keys.dead_letter)}"
        if role == Role.OPERATOR:
            yield f"{may}{escape_glob(keys.dead_letter_owner)}"
    if role == Role.OPERATOR and Feature.LOCKS in features:
        yield f"~lock:{{{escape_glob(keys.tag)}}}:*"


def _words(role: Role, features: Collection[Feature]) -> Iterable[str]:
    commands = [
        f"+{run.command}"
        for run in runs_of(role)
        if not run.features or any(Feature(one) in features for one in run.features)
    ]
    scripting = ("+eval", "+evalsha") if scripts_of(role) else ()
    channels = (
        word for feature, word in _CHANNELS.items() if role == Role.OPERATOR and feature in features
    )
    return dict.fromkeys((*scripting, *commands, *channels))
