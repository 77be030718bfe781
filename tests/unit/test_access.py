"""The ACL lines: what docs show and `pelops acl` prints. That they suffice is tested on servers."""

from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import Feature, Role, acl_rules

KEYS = derive_keys("orders:events", "g")


def test_everybody_begins_with_nothing() -> None:
    for role in Role:
        assert acl_rules(KEYS, role)[:3] == ("resetkeys", "resetchannels", "-@all")


def test_a_worker_may_read_and_acknowledge_and_little_else() -> None:
    rules = acl_rules(KEYS, Role.WORKER)
    assert "~orders:events" in rules
    assert "~{orders:events}:g:*" in rules
    assert {"+xreadgroup", "+xack"} <= set(rules)
    assert not {"+xgroup|create", "+eval", "+del", "+flushall"} & set(rules)


def test_a_producer_may_add_to_its_stream_and_see_nothing() -> None:
    rules = acl_rules(KEYS, Role.PRODUCER, frozenset(Feature))
    assert [rule for rule in rules if rule.startswith("~")] == ["~orders:events"]
    assert [rule for rule in rules if rule.startswith("+x")] == ["+xadd"]
    assert not {"+eval", "+evalsha", "+hset", "+del"} & set(rules)


def test_a_dead_letter_stream_of_the_users_own_is_granted_to_those_who_write_it() -> None:
    keys = derive_keys("orders", "g", dead_letter="{orders}:given-up")
    assert "~{orders}:given-up" in acl_rules(keys, Role.OPERATOR)
    assert "~{orders}:given-up" in acl_rules(keys, Role.SDK_WORKER)
    assert "~{orders}:given-up" not in acl_rules(keys, Role.WORKER)


def test_a_name_with_wildcards_grants_no_other_name() -> None:
    assert "~a\\*" in acl_rules(derive_keys("a*", "g"), Role.OPERATOR)


def test_nobody_is_given_more_than_what_is_asked_for() -> None:
    least = set(acl_rules(KEYS, Role.OPERATOR))
    assert not {"+xgroup|destroy", "+unlink", "+xack", "+xread", "~lock:{orders:events}:*"} & least
    everything = set(acl_rules(KEYS, Role.OPERATOR, frozenset(Feature)))
    assert least < everything
    assert {"+xgroup|destroy", "+unlink", "~lock:{orders:events}:*"} <= everything


def test_an_auditor_reads_everything_of_a_group_and_writes_one_key() -> None:
    keys = derive_keys("orders", "g", dead_letter="{orders}:given-up")
    patterns = [word for word in acl_rules(keys, Role.AUDITOR) if "~" in word]
    assert patterns == [
        *("%R~orders", "%R~{orders}:g:*", "~{orders}:g:audit"),
        "%R~{orders}:given-up",
    ]


def test_no_word_is_said_twice() -> None:
    for role in Role:
        rules = acl_rules(KEYS, role, frozenset(Feature))
        assert len(rules) == len(set(rules))


def test_recovery_may_move_entries_and_remove_consumers() -> None:
    words = set(acl_rules(KEYS, Role.OPERATOR, {Feature.RECOVERY}))
    assert {"+xrange", "+xack", "+xpending", "+xinfo|consumers", "+xgroup|delconsumer"} <= words
    assert not {"+xgroup|destroy", "+xgroup|setid", "+xreadgroup", "+del"} & words


def test_scaling_may_put_a_count_right_and_wait_for_entries() -> None:
    words = set(acl_rules(KEYS, Role.OPERATOR, {Feature.SCALING, Feature.WAKE}))
    assert {"+xgroup|setid", "+xrange", "+xread", "+client|id", "+client|unblock"} <= words
    assert "+xreadgroup" not in words


def test_no_role_may_do_what_is_never_needed() -> None:
    for role in Role:
        words = acl_rules(KEYS, role, frozenset(Feature))
        assert not any(word.startswith(("+@", "+config", "+keys", "+flush")) for word in words)
        assert "+acl" not in words
