"""Which addresses may be connected to, and which hosts a Secret's credentials may go to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.destinations import (
    REDIS_HOSTS,
    CredentialGrant,
    is_host,
    parse_address_rules,
    parse_host_patterns,
)
from pelops.domain.endpoint import RedisEndpoint, build_endpoint, confine_credentials
from pelops.errors import CredentialsNotAllowed, InvalidSpec

SPECIAL = (
    *("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::127.0.0.1"),
    *("64:ff9b::7f00:1", "2002:7f00:1::", "169.254.1.1", "fe80::1", "fe80::1%eth0", "febf::1"),
    *("169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "fd20:ce::254"),
    *("100.100.100.200", "168.63.129.16", "169.254.170.2", "192.0.0.192", "64:ff9b::a9fe:a9fe"),
    *("0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1", "255.255.255.255"),
    *("240.0.0.1", "fec0::1"),
)
ROUTABLE = (
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "8.8.8.8",
    "fd00::1",
    "2001:db8::1",
    "::ffff:8.8.8.8",
)


@pytest.mark.parametrize("address", SPECIAL)
@pytest.mark.parametrize(
    ("networks", "hosts"),
    [
        ("", ""),
        ("routable", ""),
        ("0.0.0.0/0,::/0", ""),
        ("fd00::/8,100.64.0.0/10", "*"),
        ("", "*"),
    ],
)
def test_a_special_address_is_refused_unless_its_own_range_is_allowed(
    address: str, networks: str, hosts: str
) -> None:
    assert parse_address_rules(networks, hosts).objection("redis.shop", address) is not None


@pytest.mark.parametrize("address", ROUTABLE)
def test_every_other_address_is_allowed_by_default(address: str) -> None:
    assert parse_address_rules("", "").objection("redis.shop", address) is None


@pytest.mark.parametrize(
    ("networks", "address", "is_allowed"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.1/32", "127.0.0.2", False),
        ("127.0.0.0/8", "::ffff:127.0.0.1", True),
        ("127.0.0.0/8", "::1", False),
        ("127.0.0.0/8", "10.0.0.1", False),
        ("routable 127.0.0.0/8", "10.0.0.1", True),
        ("169.254.0.0/16", "169.254.1.1", True),
        ("169.254.0.0/16", "169.254.169.254", False),
        ("169.254.169.254/32", "169.254.169.254", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("64:ff9b::7f00:1/128", "64:ff9b::7f00:1", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "nonsense", False),
    ],
)
def test_networks_allow_what_lies_in_them(networks: str, address: str, is_allowed: bool) -> None:
    objection = parse_address_rules(networks, "").objection("redis.shop", address)
    assert (objection is None) is is_allowed


def test_a_host_pattern_allows_names_beside_the_networks() -> None:
    rules = parse_address_rules("10.0.0.0/8", "*.cache.example.com")
    assert rules.objection("a.b.cache.example.com", "8.8.8.8") is None
    assert rules.objection("cache.example.com", "8.8.8.8") is not None
    assert rules.objection("8.8.8.8", "8.8.8.8") is not None
    assert rules.objection("a.cache.example.com", "127.0.0.1") == "a loopback address"
    alone = parse_address_rules("", "*.cache.example.com")
    assert alone.objection("redis.shop", "8.8.8.8") is not None


@pytest.mark.parametrize(
    ("networks", "hosts"),
    [
        ("", ""),
        ("10.0.0.0/8", ""),
        ("routable,127.0.0.0/8", "*.a"),
        ("", "*.a,b"),
        ("fd00::/8", ""),
    ],
)
def test_rules_survive_being_written_and_read(networks: str, hosts: str) -> None:
    rules = parse_address_rules(networks, hosts)
    assert parse_address_rules(rules.networks_text, rules.hosts_text) == rules


@pytest.mark.parametrize(
    ("networks", "hosts"),
    [("10.0.0.1/8", ""), ("loopback", ""), ("", "a:1"), ("", "10.0.0.0/8"), ("", "a/b"), ("", "ä")],
)
def test_rules_that_cannot_be_read_are_refused(networks: str, hosts: str) -> None:
    with pytest.raises(ValueError):
        parse_address_rules(networks, hosts)


@given(st.ip_addresses())
def test_an_objection_never_fails(address: object) -> None:
    found = parse_address_rules("", "").objection("redis.shop", str(address))
    assert found is None or " " in found


@pytest.mark.parametrize(
    ("listed", "host", "port", "is_listed"),
    [
        ("redis.shop", "redis.shop", 1, True),
        ("Redis.Shop.", "redis.shop", 1, True),
        ("redis.shop", "REDIS.shop", 1, True),
        ("redis.shop", "redis.shop.evil.test", 1, False),
        ("redis.shop", "evil-redis.shop", 1, False),
        ("redis*", "redis.evil.test", 1, False),
        ("redis-*.shop", "redis-1.shop", 1, True),
        ("redis.shop:6379", "redis.shop", 6379, True),
        ("redis.shop:6379", "redis.shop", 6380, False),
        ("*.shop", "a.b.shop", 1, True),
        ("*.shop", "shop", 1, False),
        ("*.shop", "evilshop", 1, False),
        ("*", "anything", 1, True),
        ("10.0.0.0/8", "10.1.2.3", 1, True),
        ("10.0.0.0/8", "167837955", 1, False),
        ("10.0.0.0/8", "10.evil.test", 1, False),
        ("10.1.2.3", "10.1.2.3", 1, True),
        ("10.1.2.3:5", "10.1.2.3", 6, False),
        ("[fd00::1]:5", "fd00::1", 5, True),
        ("[fd00::1]:5", "fd00::1", 6, False),
        ("fd00::1", "fd00:0::1", 6, True),
        ("a, b\nc", "c", 1, True),
        ("", "a", 1, False),
        ("a.b", "axb", 1, False),
    ],
)
def test_hosts_are_listed_by_name_pattern_port_and_network(
    listed: str, host: str, port: int, is_listed: bool
) -> None:
    grant = CredentialGrant(owner="Secret redis", hosts=parse_host_patterns(listed))
    assert (grant.objection(host, port) is None) is is_listed


@pytest.mark.parametrize(
    "listed", ["a b/c", "a:0", "a:x", "a:99999", "a@b", "re[dis]", "a:1:2", "ä"]
)
def test_a_list_that_cannot_be_read_is_refused(listed: str) -> None:
    with pytest.raises(ValueError):
        parse_host_patterns(listed)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *[("redis-1.shop", True), ("10.0.0.1", True), ("fe80::1%eth0", True), ("", False)],
        *[("a b", False), ("a\n", False), ("x" * 254, False), ("<b>", False)],
    ],
)
def test_a_host_holds_no_characters_of_other_texts(text: str, is_one: bool) -> None:
    assert is_host(text) is is_one


def confined(
    secret: dict[str, str], url: str | None = None, sentinels: tuple[str, ...] = ()
) -> RedisEndpoint:
    fields = {name: text.encode() for name, text in secret.items()}
    endpoint = build_endpoint(
        url=url,
        secret=fields,
        sentinel_master="m" if sentinels else None,
        sentinel_nodes=sentinels,
    )
    return confine_credentials(endpoint, fields, name="redis")


OWN = "redis://u:p@one:6379/0"
TWO = "redis://two"


@pytest.mark.parametrize(
    ("secret", "url", "sentinels"),
    [
        ({"username": "u", "password": "p"}, TWO, ()),
        ({"password": "p"}, TWO, ()),
        ({"url": OWN}, TWO, ()),
        ({"url": OWN}, "redis://one:6380", ()),
        ({"url": OWN, REDIS_HOSTS: "three"}, TWO, ()),
        ({"url": OWN, REDIS_HOSTS: ""}, TWO, ()),
        ({"url": OWN, REDIS_HOSTS: "two:6380"}, TWO, ()),
        ({"url": OWN}, None, ("one:6379",)),
        ({"password": "p"}, None, ("one",)),
        ({"tls.crt": "c", "tls.key": "k"}, "rediss://two", ()),
    ],
)
def test_credentials_without_leave_are_refused(
    secret: dict[str, str], url: str | None, sentinels: tuple[str, ...]
) -> None:
    with pytest.raises(CredentialsNotAllowed, match=r"Secret redis .* annotation") as refused:
        confined(secret, url, sentinels)
    assert "one" not in str(refused.value).split()  # what the Secret holds is for its readers


@pytest.mark.parametrize(
    ("secret", "url", "granted"),
    [
        ({"url": OWN}, None, None),
        ({"url": OWN}, "redis://ONE./3", None),
        ({"url": "rediss://u:p@one"}, "rediss://one", None),
        ({"url": OWN, REDIS_HOSTS: "two"}, TWO, ["two", "one:6379"]),
        ({"password": "p", REDIS_HOSTS: "two"}, TWO, ["two"]),
        ({"password": "p", REDIS_HOSTS: "*"}, TWO, ["*"]),
        ({"url": OWN, REDIS_HOSTS: "ten"}, None, ["ten", "one:6379"]),
        ({"ca.crt": "c"}, "rediss://two", None),
        ({}, TWO, None),
    ],
)
def test_credentials_go_where_the_secret_allows(
    secret: dict[str, str], url: str | None, granted: list[str] | None
) -> None:
    grant = confined(secret, url).grant
    assert (grant and [str(host) for host in grant.hosts]) == granted


def test_a_secret_with_tls_refuses_an_address_without() -> None:
    for two in ("redis://one", TWO):
        with pytest.raises(InvalidSpec, match="uses TLS, but"):
            confined({"url": "rediss://u:p@one", REDIS_HOSTS: "*"}, two)


def test_an_annotation_that_cannot_be_read_is_reported_without_it() -> None:
    with pytest.raises(InvalidSpec, match=r"pelops\.dev/redis-hosts of Secret redis") as refused:
        confined({"url": OWN, REDIS_HOSTS: "my/own/secret"})
    assert "my/own" not in str(refused.value)
