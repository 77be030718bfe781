"""The minimal ACL rules for each Redis user: the operator, workers, auditors and producers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Final

from pelops.domain.naming import GroupKeys, escape_glob
from pelops.redis_core.commands import NamedKeys, Need, Part
from pelops.scripts.declaration import (
    KEY_TYPES,
    OPERATOR_SCRIPTS,
    WORKER_SCRIPTS,
    Declaration,
    DeclaredCommand,
    list_scripts,
    parse_runs,
    read_declaration,
)


class UserRole(StrEnum):
    """The kind of program that a Redis user is for."""

    OPERATOR = "operator"
    WORKER = "worker"  # in any language: XREADGROUP and XACK
    SDK_WORKER = "sdk-worker"
    AUDITOR = "auditor"  # the job of a StreamAudit: reads, and writes its summary
    PRODUCER = "producer"  # in any language: XADD


class Feature(StrEnum):
    """A property of the servers, or a feature of the resource, that needs further rights."""

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
    SCALING = "scaling"  # repairs the lag that the server reports
    DELETING = "deleting"  # SDK workers that delete acknowledged entries, by XACKDEL
    CLIENT_INFO = "client-info"  # servers from 7.2, whose clients send CLIENT SETINFO


# Commands sent outside of scripts, in the syntax of the scripts' headers. Client libraries send the
# first ones themselves, and tolerate that one is unknown or forbidden.
_ANY_CLIENT: Final = (
    "[hello]; [auth]; [ping]; [client|setname];"
    " [client|setinfo for client-info]; [select for database];"
)
_ANY_CLUSTER: Final = (
    "[cluster|slots for cluster]; [cluster|shards for cluster]; [command for cluster];"
    "[asking for cluster];"
)
_SENT: Final[dict[UserRole, str]] = {
    # AUTH needs no rule: every user may run it. An earlier version needed XCLAIM; it stays granted.
    UserRole.OPERATOR: """
        [info]; time; type retry; hmget state worker_state audit; hset audit; hdel audit;
        xrange stream; [xrevrange stream retry dead_letter]; [xlen dead_letter];
        xinfo|groups stream retry for recovery; xinfo|consumers stream retry for recovery;
        xpending stream retry for recovery; [xclaim stream for recovery]; pttl locks for locks;
        psubscribe for expiry-events; punsubscribe for expiry-events;
        xread stream for wake; client|id for wake; client|unblock for wake;
        cluster|slots for cluster; asking for cluster; select for database
    """,
    UserRole.WORKER: f"{_ANY_CLIENT} xreadgroup stream retry offer_stream;"
    " xack stream retry offer_stream;"
    f"{_ANY_CLUSTER}",
    # XAUTOCLAIM is for workers that do not use the SDK's scripts.
    UserRole.SDK_WORKER: f"""
        {_ANY_CLIENT} hset started; hget worker_state; xreadgroup stream retry offer_stream;
        xack stream retry offer_stream; xpending stream retry; xrange stream retry;
        hincrby worker_state; hdel worker_state; [xautoclaim stream];
        [xackdel stream retry for deleting];
        {_ANY_CLUSTER}
    """,
    UserRole.AUDITOR: f"""
        {_ANY_CLIENT} info; time; multi; exec; xrange stream ledger dead_letter; xrevrange stream;
        xlen stream; xpending stream; xinfo|stream stream; xinfo|groups stream;
        xinfo|consumers stream; hset audit; {_ANY_CLUSTER}
    """,
    UserRole.PRODUCER: f"{_ANY_CLIENT} xadd stream; {_ANY_CLUSTER}",
}
_CHANNELS: Final = {Feature.EXPIRY_EVENTS: "&__keyevent@*__:expired"}
_RESET: Final = ("resetkeys", "resetchannels", "-@all", "clearselectors")
# The keys that some names of KEYS stand for.
_STANDS_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("stream", "retry"),
    "target": ("stream", "retry"),
    "further": ("retry", "offer_stream"),
    "others": ("retry", "offer_stream"),
}


def runs_of(role: UserRole) -> tuple[DeclaredCommand, ...]:
    """Every command of a role: those that it sends, then those that its scripts run."""
    of_scripts = tuple(
        replace(run, features=run.features or script.features)
        for script in scripts_of(role)
        for run in script.runs()
    )
    return (*sent_beside_scripts(role), *of_scripts)


def sent_beside_scripts(role: UserRole) -> tuple[DeclaredCommand, ...]:
    """The commands that a role sends outside of scripts."""
    return parse_runs(_SENT[role])


@cache
def scripts_of(role: UserRole) -> tuple[Declaration, ...]:
    """The scripts that a role runs."""
    found = (
        read_declaration(name, package)
        for package in (OPERATOR_SCRIPTS, WORKER_SCRIPTS)
        for name in list_scripts(package)
    )
    return tuple(script for script in found if role in script.roles)


def worker_needs(keys: NamedKeys) -> tuple[Need, ...]:
    """Every command that an SDK worker requires, on each key of its group."""
    return role_needs(UserRole.SDK_WORKER, keys)


def role_needs(
    role: UserRole, keys: NamedKeys, features: Collection[Feature] = frozenset()
) -> tuple[Need, ...]:
    """Every command that a role requires, on each key of its group.

    `locks` are left out, because their names depend on entries.
    """
    named = keys.by_name()
    places: dict[str, tuple[Part, ...]] = {name: (key,) for name, key in named.items()}
    places |= {name: tuple(named[one] for one in some) for name, some in _STANDS_FOR.items()}
    needs = (
        Need(run.command, key)
        for run in runs_of(role)
        if not run.is_optional and _is_wanted(run, features)
        for key in (
            [key for name in run.keys for key in places.get(name, ())] if run.keys else [None]
        )
    )
    return tuple(dict.fromkeys(needs))


def _is_wanted(run: DeclaredCommand, features: Collection[Feature]) -> bool:
    return not run.features or any(Feature(one) in features for one in run.features)


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of a user on one stream, or on one group of it."""

    keys: GroupKeys
    role: UserRole
    features: Collection[Feature] = frozenset()


@dataclass(frozen=True, slots=True)
class _Permission:
    """Commands and their allowed keys: the root permissions of a user, or a selector."""

    patterns: tuple[str, ...]
    words: tuple[str, ...]

    def as_selector(self) -> str:
        """In parentheses. Redis would parse a quote there, so `?` replaces each one."""
        patterns = (one.replace('"', "?").replace("'", "?") for one in self.patterns)
        return f"({' '.join((*patterns, *self.words))})"


def acl_rules(
    keys: GroupKeys, role: UserRole, features: Collection[Feature] = frozenset()
) -> tuple[str, ...]:
    """The words that follow `ACL SETUSER <name> on ><password>`, for one group.

    They begin with a reset, so that the user has no other rights.
    """
    return combined_rules([Access(keys, role, features)])


def combined_rules(accesses: Iterable[Access]) -> tuple[str, ...]:
    """As `acl_rules`, for a user of several groups and streams, in any roles.

    Rights for one of them do not apply to the others: each further one has selectors of its own.
    """
    first, *further = [one for access in accesses for one in _permissions(access)]
    selectors = dict.fromkeys(one.as_selector() for one in further)
    return (*_RESET, *first.patterns, *first.words, *selectors)


def producer_rules(stream: str, features: Collection[Feature] = frozenset()) -> tuple[str, ...]:
    """The rules of a producer, which only adds entries to a stream."""
    words = tuple(_words(UserRole.PRODUCER, features))
    return (*_RESET, f"~{escape_glob(stream)}", *words)


def _permissions(access: Access) -> Iterable[_Permission]:
    keys, role, features = access.keys, access.role, access.features
    if role == UserRole.SDK_WORKER:
        yield from _worker_permissions(keys, features)
    else:
        patterns = tuple(dict.fromkeys(_key_patterns(keys, role, features)))
        yield _Permission(patterns, tuple(_words(role, features)))


def _worker_permissions(keys: GroupKeys, features: Collection[Feature]) -> Iterable[_Permission]:
    """One permission for scripts on all keys of a worker, and one for each kind of use.

    Redis checks EVAL by one permission that must allow all keys of the script. It then checks each
    command of the script by itself. So a worker may only read and acknowledge entries, write
    records, and add events and dead letters, each on the keys for that.
    """
    named = keys.by_name()
    used: dict[str, dict[str, None]] = {}
    words: dict[str, dict[str, None]] = {kind: {} for kind in ("any", "stream", "add", "hash")}
    for run in runs_of(UserRole.SDK_WORKER):
        if not _is_wanted(run, features):
            continue
        places = [place for key in run.keys for place in _STANDS_FOR.get(key, (key,))]
        kind = _kind_of(run.command, places)
        words[kind][f"+{run.command}"] = None
        used.setdefault(kind, {}).update(dict.fromkeys(places))
    used["any"] = dict.fromkeys(place for places in used.values() for place in places)
    words["any"] = {"+eval": None, "+evalsha": None, **words["any"]}
    for kind, some in words.items():
        patterns = tuple(dict.fromkeys(f"~{escape_glob(named[place])}" for place in used[kind]))
        yield _Permission(patterns, tuple(some))


def _kind_of(command: str, places: Collection[str]) -> str:
    if not places or command == "type":
        return "any"
    if all(KEY_TYPES[place] == "hash" for place in places):
        return "hash"
    return "add" if command == "xadd" else "stream"


def _key_patterns(keys: GroupKeys, role: UserRole, features: Collection[Feature]) -> Iterable[str]:
    may = "%R~" if role == UserRole.AUDITOR else "~"
    yield f"{may}{escape_glob(keys.stream)}"
    if role == UserRole.PRODUCER:
        return
    if role == UserRole.WORKER:
        yield from (f"~{escape_glob(key)}" for key in (keys.retry, keys.offer_stream))
        return
    yield f"{may}{escape_glob(keys.prefix)}:*"
    if role == UserRole.AUDITOR:
        yield f"~{escape_glob(keys.audit)}"
    if not keys.dead_letter.startswith(f"{keys.prefix}:"):
        yield f"{may}{escape_glob(keys.dead_letter)}"
        if role == UserRole.OPERATOR:
            yield f"{may}{escape_glob(keys.dead_letter_owner)}"
    if role == UserRole.OPERATOR and Feature.LOCKS in features:
        yield f"~lock:{{{escape_glob(keys.tag)}}}:*"


def _words(role: UserRole, features: Collection[Feature]) -> Iterable[str]:
    commands = [f"+{run.command}" for run in runs_of(role) if _is_wanted(run, features)]
    scripting = ("+eval", "+evalsha") if scripts_of(role) else ()
    channels = (
        word
        for feature, word in _CHANNELS.items()
        if role == UserRole.OPERATOR and feature in features
    )
    return dict.fromkeys((*scripting, *commands, *channels))
