"""Settings of the operator: a flag wins over a variable, and a variable over a default."""

from __future__ import annotations

import pytest

from pelops.controller.runtime.settings import parse_settings


def test_metrics_are_guarded_when_asked_for() -> None:
    assert not parse_settings([], {}).guards_metrics
    assert parse_settings(["--metrics-authentication", "token"], {}).guards_metrics
    assert parse_settings([], {"PELOPS_METRICS_AUTHENTICATION": "token"}).guards_metrics
    with pytest.raises(SystemExit):
        parse_settings([], {"PELOPS_METRICS_AUTHENTICATION": "yes"})


def test_without_flags_and_variables_there_are_defaults() -> None:
    settings = parse_settings([], {})
    assert (settings.namespaces, settings.http_host, settings.http_port) == ((), "127.0.0.1", 8080)
    assert (settings.log_format, settings.log_level) == ("json", "INFO")
    assert (settings.observe_s, settings.status_s, settings.resync_s) == (5, 10, 450)
    assert settings.identity == settings.identity.lower() != ""


def test_a_flag_wins_over_its_variable() -> None:
    variables = {"PELOPS_HTTP_PORT": "1", "PELOPS_OBSERVE_INTERVAL": "2.5", "PELOPS_NAMESPACE": "a"}
    reported = parse_settings([], variables)
    assert (reported.http_port, reported.observe_s, reported.namespaces) == (1, 2.5, ("a",))
    given = parse_settings(["--http-port=0", "--namespace", "b"], variables)
    assert (given.http_port, given.namespaces) == (0, ("b",))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--namespace", "shop", "store"],
        ["--namespace", "shop", "--namespace", "store"],
        ["--namespace=shop,store"],
        ["--namespace", "store", "shop", "shop"],
    ],
)
def test_no_namespace_that_was_given_is_lost(arguments: list[str]) -> None:
    assert parse_settings(arguments, {}).namespaces == ("shop", "store")


@pytest.mark.parametrize("text", ["shop,store", "shop store", " store, shop "])
def test_namespaces_may_be_a_variable(text: str) -> None:
    assert parse_settings([], {"PELOPS_NAMESPACE": text}).namespaces == ("shop", "store")


def test_the_usual_kubeconfig_is_used_unless_another_is_named() -> None:
    variables = {"KUBECONFIG": "/a", "PELOPS_KUBECONFIG": "/b"}
    assert parse_settings([], {"KUBECONFIG": "/a"}).kubeconfig == "/a"
    assert parse_settings([], variables).kubeconfig == "/b"
    assert parse_settings(["--kubeconfig", "/c"], variables).kubeconfig == "/c"


def test_a_log_level_may_be_written_small() -> None:
    assert parse_settings([], {"PELOPS_LOG_LEVEL": "debug"}).log_level == "DEBUG"


WRONG: dict[str, tuple[list[str], dict[str, str], str]] = {
    "a network that is none": ([], {"PELOPS_ALLOWED_NETWORKS": "10.0.0.1/8"}, "is not a network"),
    "a host that is none": (["--allowed-hosts", "a/b"], {}, "--allowed-hosts"),
    "an interval of nothing": (["--observe-interval", "0"], {}, "must be greater than 0 (seconds)"),
    "an interval that is not a number": (
        [],
        {"PELOPS_STATUS_INTERVAL": "nan"},
        "must be greater than 0",
    ),
    "an interval without end": (["--resync-interval", "inf"], {}, "must be greater than 0"),
    "an interval in words": ([], {"PELOPS_OBSERVE_INTERVAL": "often"}, "--observe-interval"),
    "a port that cannot be": (
        ["--http-port", "70000"],
        {},
        "--http-port must be from 0 to 65535; it is 70000",
    ),
    "a port in words": ([], {"PELOPS_HTTP_PORT": "http"}, "--http-port"),
    "an unknown format": ([], {"PELOPS_LOG_FORMAT": "xml"}, "json, console"),
    "an unknown level": (["--log-level", "loud"], {}, "--log-level"),
    "an unknown level in a variable": ([], {"PELOPS_LOG_LEVEL": "loud"}, "DEBUG, INFO"),
    "an unknown flag": (["--leader-elect"], {}, "--leader-elect"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_the_operator_refuses_to_start_with(
    case: tuple[list[str], dict[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, variables, words = case
    with pytest.raises(SystemExit) as ended:
        parse_settings(arguments, variables)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_addresses_are_allowed_by_two_lists() -> None:
    rules = parse_settings([], {}).address_rules
    assert rules.objection("redis", "10.0.0.1") is None
    assert rules.objection("redis", "127.0.0.1") == "a loopback address"
    variables = {"PELOPS_ALLOWED_NETWORKS": "127.0.0.0/8", "PELOPS_ALLOWED_HOSTS": "*.test"}
    both = parse_settings([], variables).address_rules
    assert both.objection("redis", "127.0.0.1") is None
    assert both.objection("redis", "10.0.0.1") is not None
    assert both.objection("redis.test", "10.0.0.1") is None
    flags = parse_settings(["--allowed-networks=routable"], variables).address_rules
    assert flags.objection("redis", "10.0.0.1") is None
