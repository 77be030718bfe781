"""The StreamRedrives that `pelops dlq` builds from flags."""

from __future__ import annotations

import argparse

import pytest

from pelops.cli.commands.dlq import REASONS, add_arguments, build_redrive, find_meant_reason
from pelops.cli.errors import CommandFailed
from pelops.domain.recovery import LetterReason
from pelops.worker.outcomes import HANDLER_FAILED, MAX_RETRIES, REJECTED, UNDECODABLE


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_without_flags_all_dead_letters_are_selected_with_the_defaults() -> None:
    built = build_redrive(parsed("redrive", "orders"), "shop")
    assert built == {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamRedrive",
        "metadata": {"namespace": "shop", "generateName": "orders-redrive-"},
        "spec": {"groupRef": {"name": "orders"}, "action": "Redrive"},
    }


def test_every_flag_has_its_field() -> None:
    words = (
        *("--id", "1-1", "--id", "1-2", "--reason", "Rejected", "--cluster", "0f", "--error", "a"),
        *("--error-matches", "b.*", "--field", "k=v=w", "--after", "2026-11-22T08:00:00Z"),
        *("--before", "2026-11-23T08:00:00+01:00", "--max-returned", "0", "--plan", "plans/a"),
        *("--max", "10", "--rate", "20", "--to", "RetryStream", "--max-backlog", "7"),
        *("--trial", "5", "--trial-wait", "2m", "--stop-on-failed-again", "10"),
        *("--approval", "--redrive-name", "again", "--dry-run"),
    )
    built = build_redrive(parsed("redrive", "orders", *words), "shop")
    assert built["metadata"] == {"namespace": "shop", "name": "again"}
    assert built["spec"] == {
        "groupRef": {"name": "orders"},
        "action": "Redrive",
        "selection": {
            "ids": ["1-1", "1-2"],
            "reasons": ["Rejected"],
            "clusters": ["0f"],
            "errorContains": "a",
            "errorMatches": "b.*",
            "fields": [{"name": "k", "value": "v=w"}],
            "deadLetteredAfter": "2026-11-22T08:00:00Z",
            "deadLetteredBefore": "2026-11-23T08:00:00+01:00",
            "maxReturned": 0,
            "planRef": {"name": "plans", "key": "a"},
        },
        "maxEntries": 10,
        "ratePerSecond": 20,
        "destination": "RetryStream",
        "maxBacklog": 7,
        "stopOnFailedAgainPercent": 10,
        "trial": {"entries": 5, "waitSeconds": 120},
        "mode": "DryRun",
        "approval": "Required",
    }


@pytest.mark.parametrize(("command", "action"), [("discard", "Discard"), ("restore", "Restore")])
def test_discard_and_restore_are_actions_of_the_same_kind(command: str, action: str) -> None:
    spec = build_redrive(parsed(command, "orders", "--id", "1-1"), "shop")["spec"]
    assert spec == {
        "groupRef": {"name": "orders"},
        "action": action,
        "selection": {"ids": ["1-1"]},
    }


@pytest.mark.parametrize(
    "words", [("--field", "k"), ("--plan", "p"), ("--after", "yesterday"), ("--trial-wait", "5")]
)
def test_a_flag_without_a_valid_value_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed) as refused:
        build_redrive(parsed("redrive", "orders", *words), "shop")
    assert refused.value.code == 2


def test_a_misspelled_reason_is_answered_with_the_correct_one() -> None:
    assert set(REASONS) == {*LetterReason, HANDLER_FAILED, MAX_RETRIES, REJECTED, UNDECODABLE}
    assert find_meant_reason("MaxRetries") == "MaxRetriesExceeded"
    assert find_meant_reason("maxretriesexceeded") == "MaxRetriesExceeded"
    for reason in (*REASONS, "OutOfStock"):  # handlers have reasons of their own
        assert find_meant_reason(reason) is None
