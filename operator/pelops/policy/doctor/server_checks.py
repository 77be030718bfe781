"""Checks of the category `redis`: the server, its settings and the rights of its user.

Texts from the server are not trusted: messages contain only its numbers, and words known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pelops.policy.doctor.check import (
    Check,
    CheckVerdict,
    NotAnswered,
    Result,
    count,
    error,
    known,
    list_names,
    ok,
    unknown,
    warning,
)
from pelops.policy.doctor.facts import (
    DeniedCommand,
    RedisNodeFacts,
    ServerFacts,
    ServerKindFacts,
)

OLDEST: Final = {"redis": (7, 0, 0), "valkey": (7, 2, 0)}
FULL_PERCENT: Final = 80  # of maxmemory, or of maxclients: then a warning
SMALLEST_BUFFER: Final = 8 * 1024 * 1024  # bytes: the largest answer of a script
_NAMES: Final = {"redis": "Redis", "valkey": "Valkey"}
_POLICIES: Final = frozenset(
    {
        "noeviction",
        *(f"{keys}-{by}" for keys in ("allkeys", "volatile") for by in ("lru", "lfu", "random")),
        "volatile-ttl",
        "allkeys-lrm",
        "volatile-lrm",
    }
)
_WORST: Final = (Result.ERROR, Result.WARNING, Result.UNKNOWN, Result.OK)


def _answers(facts: ServerFacts) -> CheckVerdict:
    try:
        kind = known(facts.kind)
    except NotAnswered as reason:
        return error(
            str(reason),
            "check address, network policies, TLS and credentials from where this command runs",
        )
    return ok(f"answers as {_name(kind)}, {kind.topology}")


def _version(facts: ServerFacts) -> CheckVerdict:
    kind = known(facts.kind)
    oldest = OLDEST.get(kind.flavour)
    if kind.version is None or oldest is None:
        return unknown("INFO does not show the version", "use Redis 7.0 or Valkey 7.2, or later")
    if kind.version < oldest:
        return error(
            f"{_name(kind)} is too old: {_dotted(oldest)} or later is needed",
            "upgrade the server; entries are not recovered until then",
        )
    return ok(f"version {_dotted(kind.version)} is supported")


def _serving(facts: ServerFacts) -> CheckVerdict:
    return _each_node(facts, _serving_of)


def _serving_of(node: RedisNodeFacts) -> CheckVerdict:
    info = known(node.info)
    if info.get("loading") == "1":
        return error("loads its data set and refuses commands", "wait until it has loaded")
    if info.get("role") == "slave":
        return error(
            "is a read-only replica, and Pelops must write",
            "set the address of the master, or use spec.redis.sentinel",
        )
    return ok("accepts writes")


def _acl(facts: ServerFacts) -> CheckVerdict | None:
    if facts.denied is None:
        return None
    denied = known(facts.denied)
    if not denied:
        return ok("the user may run every command that Pelops needs, on the keys of the group")
    keys = Counter(one.command for one in denied)
    first = {one.command: one for one in reversed(denied)}
    names = list_names(_describe_denied(first[name], keys[name]) for name in sorted(keys))
    return error(
        f"the ACL forbids {count(len(keys), 'command')}: {names}",
        f"add the rules that `{facts.acl_command}` prints",
    )


def _describe_denied(denied: DeniedCommand, keys: int) -> str:
    return f"{denied} and {count(keys - 1, 'more key', 'more keys')}" if keys > 1 else str(denied)


def _eviction(facts: ServerFacts) -> CheckVerdict:
    return _each_node(facts, _eviction_of)


def _eviction_of(node: RedisNodeFacts) -> CheckVerdict:
    policy = known(node.info).get("maxmemory_policy", "")
    if policy not in _POLICIES:
        return unknown("INFO does not show maxmemory-policy", "make sure that it is noeviction")
    if policy.startswith("allkeys-"):
        return warning(
            f"maxmemory-policy is {policy}: Redis can evict the stream and its dead letters",
            "set maxmemory-policy to noeviction",
        )
    return ok(f"maxmemory-policy is {policy}")


def _memory(facts: ServerFacts) -> CheckVerdict:
    return _each_node(facts, _memory_of)


def _memory_of(node: RedisNodeFacts) -> CheckVerdict:
    info = known(node.info)
    used, limit = _number(info, "used_memory"), _number(info, "maxmemory")
    if used is None or limit is None:
        return unknown("INFO does not show the memory")
    if limit == 0:
        return ok(f"uses {_size(used)}; maxmemory is not set")
    percent = used * 100 // limit
    shown = f"uses {percent} % of maxmemory ({_size(used)} of {_size(limit)})"
    advice = "raise maxmemory, or trim streams with spec.retention"
    if used >= limit:
        return error(f"{shown} and refuses or evicts", advice)
    if percent >= FULL_PERCENT:
        return warning(f"{shown}: when it is full, Redis refuses writes or evicts keys", advice)
    return ok(shown)


def _persistence(facts: ServerFacts) -> CheckVerdict:
    return _each_node(facts, _persistence_of)


def _persistence_of(node: RedisNodeFacts) -> CheckVerdict:
    info = known(node.info)
    if info.get("aof_last_write_status") == "err" or info.get("rdb_last_bgsave_status") == "err":
        return error(
            "the last write of the data set to disk failed",
            "see the log of Redis: disk space, permissions, memory for the fork",
        )
    if info.get("aof_enabled") == "1":
        return ok("appendonly is on")
    if info.get("aof_enabled") != "0":
        return unknown("INFO does not show the persistence", "make sure that appendonly is on")
    config = node.config
    if not isinstance(config, Mapping) or "save" not in config:
        return unknown(
            "appendonly is off; the save points cannot be read (CONFIG GET is refused)",
            "make sure that appendonly or save is set: redis-cli CONFIG GET save",
        )
    if config["save"]:
        return warning(
            "appendonly is off: a crash loses everything since the last save point",
            "set appendonly to yes",
        )
    return warning(
        "appendonly is off and no save point is set: a restart loses every stream",
        "set appendonly to yes",
    )


def _replication(facts: ServerFacts) -> CheckVerdict:
    return _each_node(facts, _replication_of)


def _replication_of(node: RedisNodeFacts) -> CheckVerdict:
    info = known(node.info)
    replicas = _number(info, "connected_slaves")
    if replicas is None:
        return unknown("INFO does not show the replicas")
    # INFO shows how many replicas are good only if min-replicas-to-write is set.
    good = _number(info, "min_slaves_good_slaves")
    config = node.config if isinstance(node.config, Mapping) else {}
    wanted = _number(config, "min-replicas-to-write")
    if good is not None and wanted is not None and good < wanted:
        return error(
            f"refuses writes: {count(good, 'good replica')}, and min-replicas-to-write is {wanted}",
            "restore the replicas, or lower min-replicas-to-write",
        )
    if good == 0:
        return error(
            "refuses writes: min-replicas-to-write is set, and no replica is good",
            "restore the replicas, or lower min-replicas-to-write",
        )
    if good is not None:
        return ok(f"min-replicas-to-write is set; {count(good, 'replica')} in sync")
    if replicas:
        return warning(
            f"has {count(replicas, 'replica')} and min-replicas-to-write is 0: a master that lost "
            "its replicas accepts writes that a failover loses",
            "set min-replicas-to-write to 1 and min-replicas-max-lag to 10",
        )
    return ok("has no replicas")


def _clients(facts: ServerFacts) -> CheckVerdict:
    return _each_node(facts, _clients_of)


def _clients_of(node: RedisNodeFacts) -> CheckVerdict:
    info = known(node.info)
    connected, most = _number(info, "connected_clients"), _number(info, "maxclients")
    if connected is None or not most:
        return unknown("INFO does not show maxclients")
    shown = f"{connected} of {most} clients are connected"
    if connected * 100 >= most * FULL_PERCENT:
        return warning(
            f"{shown}: above maxclients Redis refuses connections",
            "raise maxclients, or close connections that are not used",
        )
    return ok(shown)


def _buffers(facts: ServerFacts) -> CheckVerdict | None:
    return _each_node(facts, _buffers_of)


def _buffers_of(node: RedisNodeFacts) -> CheckVerdict:
    config = known(node.config)
    words = config.get("client-output-buffer-limit", "").split()
    limits = {words[at]: words[at + 1] for at in range(0, len(words) - 3, 4)}
    hard = limits.get("normal", "")
    if not hard.isdigit():
        return unknown("CONFIG GET does not show client-output-buffer-limit")
    if 0 < int(hard) < SMALLEST_BUFFER:
        return warning(
            f"client-output-buffer-limit of normal clients is {_size(int(hard))}: Redis ends the "
            "connection of a client with a larger answer",
            f"set it to 0, or to {_size(SMALLEST_BUFFER)} or more",
        )
    return ok("client-output-buffer-limit leaves room for every answer")


def _each_node(facts: ServerFacts, check: Callable[[RedisNodeFacts], CheckVerdict]) -> CheckVerdict:
    """The worst verdict of all nodes; with several nodes it names those that have it."""
    nodes = known(facts.nodes)
    checked_nodes = [(node, _check_node(node, check)) for node in nodes]
    if not checked_nodes:
        return unknown("no node of the cluster is known")
    worst = min((verdict for _, verdict in checked_nodes), key=lambda one: _WORST.index(one.result))
    if len(nodes) == 1:
        return worst
    where = list_names(
        node.address for node, verdict in checked_nodes if verdict.result is worst.result
    )
    return CheckVerdict(worst.result, f"{where}: {worst.message}", worst.hint)


def _check_node(
    node: RedisNodeFacts, check: Callable[[RedisNodeFacts], CheckVerdict]
) -> CheckVerdict:
    try:
        return check(node)
    except NotAnswered as reason:
        return unknown(str(reason))


def _name(kind: ServerKindFacts) -> str:
    name = _NAMES.get(kind.flavour)
    if name is None:
        return "a server that does not say what it is"
    return f"{name} {_dotted(kind.version)}" if kind.version else f"{name} of unknown version"


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _size(number: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


SERVER_CHECKS: Final[tuple[Check[ServerFacts], ...]] = (
    Check("connection", "connection to Redis", _answers),
    Check("version", "version of the server", _version),
    Check("writes", "loading, read-only replica", _serving),
    Check("acl", "rights of the Redis user", _acl),
    Check("eviction", "maxmemory-policy", _eviction),
    Check("memory", "memory headroom", _memory),
    Check("persistence", "appendonly and save", _persistence),
    Check("replication", "min-replicas-to-write", _replication),
    Check("clients", "maxclients", _clients),
    Check("output-buffers", "client output buffer limits", _buffers),
)
