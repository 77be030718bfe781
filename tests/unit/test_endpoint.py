"""Where a Redis is: read from a resource and its Secret, without ever showing a secret."""

import pytest

from pelops.domain.endpoint import Node, build_endpoint, parse_node, parse_redis_url
from pelops.errors import InvalidSpec


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://redis", "redis:6379/0"),
        ("redis://Redis.Shop.:6379/", "redis.shop:6379/0"),
        ("rediss://redis:7000/3", "redis:7000/3"),
        ("redis://[::1]:6380", "[::1]:6380/0"),
        ("redis://user:secret@redis", "redis:6379/0"),
        ("valkeys://valkey", "valkey:6379/0"),
    ],
)
def test_an_address_has_one_spelling_and_no_credentials(url: str, address: str) -> None:
    assert parse_redis_url(url).address == address


def test_credentials_of_a_url_are_decoded() -> None:
    endpoint = parse_redis_url("redis://us%40er:p%2Fw%3F@redis")
    assert (endpoint.username, endpoint.password) == ("us@er", "p/w?")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis:6379", "does not begin"),
        ("http://redis", "does not begin"),
        ("unix:///run/redis.sock", "does not begin"),
        ("redis://", "does not begin"),
        ("redis://:6379", "has no host, or port 0"),
        ("redis://redis:0", "port 0"),
        ("redis://redis:sesame", "its port is not a number"),
        ("redis://redis:70000", "its port is not a number"),
        ("redis://[::1", "malformed"),
        ("redis://redis/orders", "not a number"),
        ("redis://redis/-1", "not a number"),
        ("redis://redis?ssl_cert_reqs=none", "options"),
        ("redis://redis/0#x", "options"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_to_write(url: str, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said) as refused:
        parse_redis_url(url)
    assert "redis://host:6379/0" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:sesame/x@redis",
        "redis://u:ses#ame@redis",
        "redis://u:sesame@redis:x",
        "redis://u:123/sesame@redis",
    ],
)
def test_a_refusal_never_repeats_the_password(url: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_redis_url(url)
    assert "ses" not in str(refused.value)
    assert refused.value.__cause__ is None  # its words would quote the port, a piece of it


def test_an_endpoint_does_not_show_its_secrets() -> None:
    endpoint = build_endpoint(
        url="rediss://redis",
        secret={"password": b"sesame", "ca.crt": b"CA", "tls.crt": b"CRT", "tls.key": b"KEY"},
    )
    shown = repr(endpoint)
    assert "sesame" not in shown
    assert "KEY" not in shown


def test_the_secret_gives_url_and_credentials() -> None:
    endpoint = build_endpoint(secret={"url": b"redis://u:p@redis\n"})
    assert (endpoint.node, endpoint.username, endpoint.password) == (Node("redis", 6379), "u", "p")


def test_the_keys_of_the_secret_win_over_its_url() -> None:
    endpoint = build_endpoint(
        secret={"url": b"redis://u:p@redis", "username": b"v", "password": b"q\n"}
    )
    assert (endpoint.username, endpoint.password) == ("v", "q")


def test_the_url_of_the_resource_wins_and_the_secret_gives_credentials() -> None:
    endpoint = build_endpoint(url="redis://one", secret={"url": b"redis://u:p@two"})
    assert (endpoint.address, endpoint.password) == ("one:6379/0", "p")


@pytest.mark.parametrize(
    ("url", "secret", "said"),
    [
        (None, None, "no Redis URL"),
        ("redis://u:p@redis", None, "into a Secret"),
        ("redis://redis", {"username": b"u"}, "no password: add the key password"),
        ("rediss://redis", {"tls.crt": b"x"}, "both tls.crt and tls.key"),
        ("redis://redis", {"ca.crt": b"x"}, "write rediss://"),
        ("redis://redis", {"password": b"\xff"}, "not UTF-8"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    url: str | None, secret: dict[str, bytes] | None, said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said):
        build_endpoint(url=url, secret=secret)


def test_sentinel_endpoints_are_equal_with_equal_master_and_nodes_in_any_order() -> None:
    one = build_endpoint(
        url="rediss://ignored/2", sentinel_master="orders", sentinel_nodes=["B:26379", "a"]
    )
    other = build_endpoint(
        url="rediss://other/2", sentinel_master="orders", sentinel_nodes=["a:26379", "b"]
    )
    assert one == other
    assert one.address == "sentinel:orders@a:26379,b:26379/2"


def test_sentinels_need_no_url() -> None:
    endpoint = build_endpoint(sentinel_master="orders", sentinel_nodes=["a"])
    assert (endpoint.tls, endpoint.db) == (False, 0)


def test_sentinels_without_a_master_name_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="masterName"):
        build_endpoint(sentinel_nodes=["a"])


@pytest.mark.parametrize("node", ["", ":1", "a:b", "a:0", "a/b", "u@a", "a:1:2"])
def test_a_node_that_is_none_is_refused(node: str) -> None:
    with pytest.raises(InvalidSpec, match="HOST:PORT"):
        parse_node(node)


def test_endpoints_with_other_credentials_are_not_equal() -> None:
    one = build_endpoint(url="redis://redis", secret={"password": b"old"})
    other = build_endpoint(url="redis://redis", secret={"password": b"new"})
    assert one != other
    assert one.address == other.address
