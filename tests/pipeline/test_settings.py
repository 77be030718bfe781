"""What a run is told, and how it says no."""

from __future__ import annotations

import argparse
import json

import pytest

from pelops.pipeline.errors import WrongSettings
from pelops.pipeline.main import main
from pelops.pipeline.settings import Payload, Settings, add_arguments, read_settings

ENVIRONMENT = {
    "PELOPS_REDIS_URL": "redis://redis:6379/1",
    "PELOPS_REDIS_USERNAME": "auditor",
    "PELOPS_REDIS_PASSWORD": "secret",
    "PELOPS_AUDIT_NAME": "shop/orders",
    "PELOPS_AUDIT_GROUPS": json.dumps(
        [{"stream": "orders", "group": "mail", "dead_letter": None, "stuck_after_ms": 5000}]
    ),
    "PELOPS_AUDIT_ARCHIVE": "s3a://bucket/prefix/",
    "PELOPS_AUDIT_PAYLOAD": "none",
    "PELOPS_AUDIT_WINDOW_SECONDS": "900",
    "PELOPS_AUDIT_FINDINGS_EXIT": "0",
}


def read(*arguments: str, **changes: str | None) -> Settings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    told = {**ENVIRONMENT, **changes}
    return read_settings(
        parser.parse_args(arguments),
        {name: text for name, text in told.items() if text is not None},
    )


def test_the_environment_that_the_operator_sets_is_understood() -> None:
    settings = read()
    (target,) = settings.targets
    assert (target.stream, target.group, target.stuck_after_ms) == ("orders", "mail", 5000)
    assert settings.archive == "s3a://bucket/prefix"
    assert (settings.payload, settings.findings_exit) == (Payload.NONE, 0)
    assert settings.window is not None and settings.window.total_seconds() == 900


def test_no_password_reaches_the_plans_of_spark() -> None:
    options = read().place.options
    assert options["passwordEnv"] == "PELOPS_REDIS_PASSWORD"
    assert "secret" not in options.values()


def test_arguments_win_over_variables() -> None:
    settings = read("--stream", "s", "--group", "a", "--group", "b", "--stuck-after-seconds", "7")
    assert [(one.group, one.stuck_after_ms) for one in settings.targets] == [
        ("a", 7000),
        ("b", 7000),
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"PELOPS_AUDIT_GROUPS": "["}, "PELOPS_AUDIT_GROUPS"),
        ({"PELOPS_AUDIT_GROUPS": '[{"stream": "s"}]'}, "PELOPS_AUDIT_GROUPS"),
        ({"PELOPS_AUDIT_GROUPS": None}, "nothing to audit"),
        ({"PELOPS_AUDIT_PAYLOAD": "some"}, "PELOPS_AUDIT_PAYLOAD"),
        ({"PELOPS_AUDIT_ARCHIVE": None}, "PELOPS_AUDIT_ARCHIVE"),
        ({"PELOPS_AUDIT_WINDOW_SECONDS": "-1"}, "PELOPS_AUDIT_WINDOW_SECONDS"),
        ({"PELOPS_AUDIT_NAME": "a b"}, "PELOPS_AUDIT_NAME"),
        ({"PELOPS_REDIS_URL": "http://x"}, "PELOPS_REDIS"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, str | None], told: str) -> None:
    with pytest.raises(WrongSettings, match=told):
        read(**changes)


def test_bad_settings_end_with_their_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELOPS_AUDIT_GROUPS", raising=False)
    assert main(["audit", "--archive", "/nowhere"]) == 2
