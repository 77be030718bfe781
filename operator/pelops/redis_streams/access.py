"""What each Redis user must be allowed: the least ACL for the operator and for workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Final

from pelops.domain.naming import GroupKeys, escape_glob
from pelops.redis_core.commands import NamedKeys, Need, Part
from pelops.redis_core.declaration import (
    KEY_TYPES,
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
    CLIENT_INFO = "client-info"  # servers from 7.2, whose clients send CLIENT SETINFO


# What is sent beside scripts, as their headers list it. Client libraries send the first words on
# their own; an unknown one only costs them a refusal.
_ANY_CLIENT: Final = (
    "[hello]; [auth]; [ping]; [client|setname];"
    " [client|setinfo for client-info]; [select for database];"
)
_ANY_CLUSTER: Final = (
    "[cluster|slots for cluster]; [cluster|shards for cluster]; [command for cluster];"
    "[asking for cluster];"
)
_SENT: Final[dict[Role, str]] = {
    # AUTH needs no word: every user may. XCLAIM was needed once, and stays granted.
    Role.OPERATOR: """
        [info]; time; type retry; hmget state worker_state audit; hset audit; hdel audit;
        xrange stream; [xrevrange stream retry dead_letter]; [xlen dead_letter];
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
        {_ANY_CLIENT} hset started; hget worker_state; xreadgroup stream retry offer_stream;
        xack stream retry offer_stream; xpending stream retry; xrange stream retry;
        hincrby worker_state; hdel worker_state; [xautoclaim stream];
        [xackdel stream retry for deleting];
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
_RESET: Final = ("resetkeys", "resetchannels", "-@all", "clearselectors")
# What a key of KEYS stands for that is not the name of one.
_STANDS_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("stream", "retry"),
    "target": ("stream", "retry"),
    "further": ("retry", "offer_stream"),
    "others": ("retry", "offer_stream"),
}


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
    return role_needs(Role.SDK_WORKER, keys)


def role_needs(
    role: Role, keys: NamedKeys, features: Collection[Feature] = frozenset()
) -> tuple[Need, ...]:
    """Every command that a role cannot do without, on each key of its group.

    `locks` are left out: their names are those of entries.
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
    """What a user may do with one stream, or with one group on it."""

    keys: GroupKeys
    role: Role
    features: Collection[Feature] = frozenset()


@dataclass(frozen=True, slots=True)
class _Permission:
    """Commands, and the keys that they may name: the root permissions of a user, or a selector."""

    patterns: tuple[str, ...]
    words: tuple[str, ...]

    def as_selector(self) -> str:
        """In parentheses. Quotes would begin a quoted word there: `?` stands for each of them."""
        patterns = (one.replace('"', "?").replace("'", "?") for one in self.patterns)
        return f"({' '.join((*patterns, *self.words))})"


def acl_rules(
    keys: GroupKeys, role: Role, features: Collection[Feature] = frozenset()
) -> tuple[str, ...]:
    """The words that follow `ACL SETUSER <name> on ><password>`, for one group.

    They begin with a reset, so that the user may do nothing else.
    """
    return combined_rules([Access(keys, role, features)])


def combined_rules(accesses: Iterable[Access]) -> tuple[str, ...]:
    """The same for a user of several groups and streams, in any roles.

    What is allowed for one of them is allowed there alone: each further one is in selectors.
    """
    first, *further = [one for access in accesses for one in _permissions(access)]
    selectors = dict.fromkeys(one.as_selector() for one in further)
    return (*_RESET, *first.patterns, *first.words, *selectors)


def producer_rules(stream: str, features: Collection[Feature] = frozenset()) -> tuple[str, ...]:
    """The rules of whoever only adds entries: a producer knows no group."""
    words = tuple(_words(Role.PRODUCER, features))
    return (*_RESET, f"~{escape_glob(stream)}", *words)


def _permissions(access: Access) -> Iterable[_Permission]:
    keys, role, features = access.keys, access.role, access.features
    if role == Role.SDK_WORKER:
        yield from _worker_permissions(keys, features)
    else:
        patterns = tuple(dict.fromkeys(_key_patterns(keys, role, features)))
        yield _Permission(patterns, tuple(_words(role, features)))


def _worker_permissions(keys: GroupKeys, features: Collection[Feature]) -> Iterable[_Permission]:
    """A worker may run scripts about keys that it may use, and use each of them in its own way.

    EVAL must be allowed for all keys of a script at once, by one permission. What the script runs
    is judged command by command: entries are read and acknowledged, letters and events added,
    records written, and nothing of that on other keys.
    """
    named = keys.by_name()
    used: dict[str, dict[str, None]] = {}
    words: dict[str, dict[str, None]] = {kind: {} for kind in ("any", "stream", "add", "hash")}
    for run in runs_of(Role.SDK_WORKER):
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


def _key_patterns(keys: GroupKeys, role: Role, features: Collection[Feature]) -> Iterable[str]:
    may = "%R~" if role == Role.AUDITOR else "~"
    yield f"{may}{escape_glob(keys.stream)}"
    if role == Role.PRODUCER:
        return
    if role == Role.WORKER:
        yield from (f"~{escape_glob(key)}" for key in (keys.retry, keys.offer_stream))
        return
    yield f"{may}{escape_glob(keys.prefix)}:*"
    if role == Role.AUDITOR:
        yield f"~{escape_glob(keys.audit)}"
    if not keys.dead_letter.startswith(f"{keys.prefix}:"):
        yield f"{may}{escape_glob(keys.dead_letter)}"
        if role == Role.OPERATOR:
            yield f"{may}{escape_glob(keys.dead_letter_owner)}"
    if role == Role.OPERATOR and Feature.LOCKS in features:
        yield f"~lock:{{{escape_glob(keys.tag)}}}:*"


def _words(role: Role, features: Collection[Feature]) -> Iterable[str]:
    commands = [f"+{run.command}" for run in runs_of(role) if _is_wanted(run, features)]
    scripting = ("+eval", "+evalsha") if scripts_of(role) else ()
    channels = (
        word for feature, word in _CHANNELS.items() if role == Role.OPERATOR and feature in features
    )
    return dict.fromkeys((*scripting, *commands, *channels))
