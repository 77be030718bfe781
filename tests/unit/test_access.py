"""The ACL lines: what docs show and `pelops acl` prints. That they suffice is tested on servers."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pelops.domain.naming import derive_keys
from pelops.redis_core.commands import COMMANDS
from pelops.redis_streams.access import (
    Access,
    Feature,
    UserRole,
    acl_rules,
    combined_rules,
    sent_beside_scripts,
)

ROOT = Path(__file__).parents[2]
KEYS = derive_keys("orders:events", "g")


def test_every_role_starts_without_rights() -> None:
    for role in UserRole:
        assert acl_rules(KEYS, role)[:3] == ("resetkeys", "resetchannels", "-@all")


def test_a_worker_may_read_and_acknowledge_and_little_else() -> None:
    rules = acl_rules(KEYS, UserRole.WORKER)
    assert "~orders:events" in rules
    assert [rule for rule in rules if rule.startswith("~")] == [
        *("~orders:events", "~{orders:events}:g:retry", "~{orders:events}:g:handover")
    ]
    assert {"+xreadgroup", "+xack"} <= set(rules)
    assert not {"+xgroup|create", "+eval", "+del", "+flushall"} & set(rules)


def test_a_producer_may_add_to_its_stream_and_see_nothing() -> None:
    rules = acl_rules(KEYS, UserRole.PRODUCER, frozenset(Feature))
    assert [rule for rule in rules if rule.startswith("~")] == ["~orders:events"]
    assert [rule for rule in rules if rule.startswith("+x")] == ["+xadd"]
    assert not {"+eval", "+evalsha", "+hset", "+del"} & set(rules)


def test_a_custom_dead_letter_stream_is_granted_to_roles_that_write_it() -> None:
    keys = derive_keys("orders", "g", dead_letter="{orders}:given-up")
    assert "~{orders}:given-up" in acl_rules(keys, UserRole.OPERATOR)
    assert "~{orders}:given-up" in acl_rules(keys, UserRole.SDK_WORKER)
    assert not any(":dlq" in rule for rule in acl_rules(keys, UserRole.SDK_WORKER))
    assert "~{orders}:given-up" not in acl_rules(keys, UserRole.WORKER)


def test_a_name_with_wildcards_grants_no_other_name() -> None:
    assert "~a\\*" in acl_rules(derive_keys("a*", "g"), UserRole.OPERATOR)


def test_an_optional_feature_is_granted_only_on_request() -> None:
    least = set(acl_rules(KEYS, UserRole.OPERATOR))
    assert not {"+xgroup|destroy", "+unlink", "+xack", "+xread", "~lock:{orders:events}:*"} & least
    everything = set(acl_rules(KEYS, UserRole.OPERATOR, frozenset(Feature)))
    assert least < everything
    assert {"+xgroup|destroy", "+unlink", "~lock:{orders:events}:*"} <= everything


def test_an_auditor_reads_everything_of_a_group_and_writes_one_key() -> None:
    keys = derive_keys("orders", "g", dead_letter="{orders}:given-up")
    patterns = [word for word in acl_rules(keys, UserRole.AUDITOR) if "~" in word]
    assert patterns == [
        *("%R~orders", "%R~{orders}:g:*", "~{orders}:g:audit"),
        "%R~{orders}:given-up",
    ]


def test_no_word_is_said_twice() -> None:
    for role in UserRole:
        rules = acl_rules(KEYS, role, frozenset(Feature))
        assert len(rules) == len(set(rules))


def test_no_role_may_do_what_is_never_needed() -> None:
    for role in UserRole:
        words = acl_rules(KEYS, role, frozenset(Feature))
        assert not any(word.startswith(("+@", "+config", "+keys", "+flush")) for word in words)
        assert "+acl" not in words


# What users have been granted by the names of features: a rule that vanishes is seen here.
CLIENT = "hello auth ping client|setname"
CLUSTER = "cluster|slots cluster|shards command asking"
OPERATOR = (
    "eval evalsha info time type hmget hset hdel xinfo|stream xinfo|groups xpending xlen xrange"
    " xrevrange xgroup|create xadd xdel xtrim hscan"
)
SDK = (
    f"{CLIENT} xreadgroup xack eval evalsha time type xclaim xautoclaim xpending xrange xadd"
    " xgroup|delconsumer hget hset hdel hincrby"
)
AUDITOR = (
    f"{CLIENT} eval evalsha time type info multi exec xrange xrevrange xlen xpending xinfo|stream"
    " xinfo|groups xinfo|consumers hmget hset"
)
LEAST = {
    UserRole.OPERATOR: OPERATOR,
    UserRole.WORKER: f"{CLIENT} xreadgroup xack",
    UserRole.SDK_WORKER: SDK,
    UserRole.AUDITOR: AUDITOR,
    UserRole.PRODUCER: f"{CLIENT} xadd",
}
BEYOND = {
    (UserRole.OPERATOR, Feature.CLUSTER): "cluster|slots asking",
    (UserRole.OPERATOR, Feature.DATABASE): "select",
    (UserRole.OPERATOR, Feature.DELETE_POLICY): "xgroup|destroy unlink",
    (UserRole.OPERATOR, Feature.RECOVERY): (
        "xack xclaim xinfo|consumers xgroup|delconsumer hget hincrby"
    ),
    (UserRole.OPERATOR, Feature.RETENTION): "hincrby",
    # HGET: the script that removes a consumer asks by it who acts on the group.
    (UserRole.OPERATOR, Feature.CLEANUP): "xinfo|consumers xgroup|delconsumer hget",
    (UserRole.OPERATOR, Feature.LOCKS): "exists pttl",
    (UserRole.OPERATOR, Feature.EXPIRY_EVENTS): "psubscribe punsubscribe",
    (UserRole.OPERATOR, Feature.WAKE): "xread client|id client|unblock",
    (UserRole.OPERATOR, Feature.RELEASE): "xnack",
    (UserRole.OPERATOR, Feature.SCALING): "xgroup|setid",
    (UserRole.SDK_WORKER, Feature.RELEASE): "xnack",
    (UserRole.SDK_WORKER, Feature.DELETING): "xackdel",
}
for role in set(UserRole) - {UserRole.OPERATOR}:
    BEYOND |= {(role, Feature.CLUSTER): CLUSTER, (role, Feature.DATABASE): "select"}
    BEYOND |= {(role, Feature.CLIENT_INFO): "client|setinfo"}


@pytest.mark.parametrize("feature", [None, *Feature])
@pytest.mark.parametrize("role", UserRole)
def test_each_role_and_feature_is_granted_these_words(
    role: UserRole, feature: Feature | None
) -> None:
    rules = acl_rules(KEYS, role, {feature} if feature else set())
    words = f"{LEAST[role]} {BEYOND.get((role, feature), '')}" if feature else LEAST[role]
    assert words_of(rules) == {f"+{one}" for one in words.split()}


def words_of(rules: Iterable[str]) -> set[str]:
    """The commands that are granted, by selectors too."""
    parts = [part for rule in rules for part in rule.strip("()").split()]
    return {part for part in parts if part.startswith("+")}


def permissions_of(rules: Iterable[str]) -> list[list[str]]:
    """What each selector of a user grants, the root permissions first."""
    root = [rule for rule in rules if not rule.startswith("(")]
    return [root, *(rule[1:-1].split(" ") for rule in rules if rule.startswith("("))]


def may(rules: Iterable[str], command: str, key: str) -> bool:
    return any(f"+{command}" in one and f"~{key}" in one for one in permissions_of(rules))


def test_an_sdk_worker_gets_only_the_commands_it_needs_on_each_key() -> None:
    rules = acl_rules(KEYS, UserRole.SDK_WORKER, frozenset(Feature))
    for key in (KEYS.state, KEYS.ledger, KEYS.audit):
        assert not any(f"~{key}" in one for one in permissions_of(rules)), key
    assert not any("*" in part for one in permissions_of(rules) for part in one)
    adds = {key for key in KEYS.by_name().values() if may(rules, "xadd", key)}
    assert adds == {KEYS.dead_letter, KEYS.worker_ledger, KEYS.offer_stream}
    writes = {key for key in KEYS.by_name().values() if may(rules, "hset", key)}
    assert writes == {KEYS.started, KEYS.worker_state}
    reads = {key for key in KEYS.by_name().values() if may(rules, "xreadgroup", key)}
    assert reads == {KEYS.stream, KEYS.retry, KEYS.offer_stream}


def test_a_user_of_several_groups_gets_the_rights_of_each_role() -> None:
    other, third = derive_keys("invoices", "h"), derive_keys('it\'s "odd"', "x")
    rules = combined_rules(
        [
            Access(KEYS, UserRole.SDK_WORKER),
            Access(other, UserRole.SDK_WORKER),
            Access(third, UserRole.PRODUCER),
        ]
    )
    assert rules[:4] == ("resetkeys", "resetchannels", "-@all", "clearselectors")
    assert rules.count("resetkeys") == 1
    assert len(rules) == len(set(rules))
    for keys in (KEYS, other):
        assert may(rules, "xreadgroup", keys.stream) and not may(rules, "xadd", keys.stream)
    assert may(rules, "xadd", "it?s??odd?") and not may(rules, "xreadgroup", "it?s??odd?")


# Commands that Python sends and no rule grants: a refusal of them is handled. The Sentinels have
# users of their own.
UNGRANTED = {"eval", "evalsha", "config|get", "sentinel|get-master-addr-by-name"}
UNGRANTED |= {"sentinel|sentinels"}
CONTAINERS = {"XINFO", "XGROUP", "CLIENT", "CLUSTER", "CONFIG", "SENTINEL"}
SOURCES = {
    UserRole.OPERATOR: ("redis_core", "redis_streams", "controller"),
    UserRole.SDK_WORKER: ("worker/server",),
}


def sent_by(folder: Path) -> Iterator[str]:
    """The commands that Python code spells out: in a call, as a Command, or as a tuple."""
    for path in folder.rglob("*.py"):
        if path.parent.name == "replies":
            continue  # a table of what commands are answered with
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "execute":
                yield from spelt(node.args)
            elif isinstance(node, ast.keyword) and node.arg == "parts":
                yield from spelt(getattr(node.value, "elts", []))
            elif isinstance(node, ast.Tuple):
                yield from (one for one in spelt(node.elts) if one in COMMANDS)


def spelt(parts: list[ast.expr]) -> Iterator[str]:
    words = [part.value for part in parts[:2] if isinstance(part, ast.Constant)]
    if words and isinstance(words[0], str) and words[0].isupper():
        yield "|".join(map(str, words if words[0] in CONTAINERS else words[:1])).lower()


@pytest.mark.parametrize("role", SOURCES)
def test_what_is_sent_beside_scripts_is_declared(role: UserRole) -> None:
    package = ROOT / "operator" / "pelops"
    sent = {command for folder in SOURCES[role] for command in sent_by(package / folder)}
    assert len(sent) > 5
    assert sent - UNGRANTED <= {run.command for run in sent_beside_scripts(role)}
