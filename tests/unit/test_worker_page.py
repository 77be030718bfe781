"""The tables of docs/worker/sdk.md, and the tests of handlers that it shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pelops.worker import Entry, RetryPolicy, WorkerSettings
from pelops.worker.metrics import build_metrics, render_metrics
from pelops.worker.producer import AddOptions
from pelops.worker.testing import MemoryGroup
from tests.worker_page import blocks, names, rows


def _tests_of_the_page() -> list[Callable[[], None]]:
    (program,) = blocks("Testing handlers", "python")
    defined: dict[str, Any] = {}
    exec(program, defined)
    return [found for name, found in defined.items() if name.startswith("test_")]


@pytest.mark.parametrize("shown", _tests_of_the_page(), ids=lambda shown: shown.__name__)
def test_a_test_that_the_page_shows_passes(shown: Callable[[], None]) -> None:
    shown()


def test_the_page_names_all_of_the_double() -> None:
    reported = {
        re.split(r"[(.]", name)[0] for row in rows("Testing handlers") for name in names(row[0])
    }
    public = {name for name in vars(MemoryGroup) if not name.startswith("_")}
    assert reported - {"MemoryGroup", "clock"} == public - {"adapter"}


@pytest.mark.parametrize("name", [one.name for one in fields(WorkerSettings)])
def test_an_option_has_the_variable_and_the_default_that_the_page_says(name: str) -> None:
    (row,) = [row for row in rows("Options") if names(row[0]) == [name]]
    _, variable, reported, _ = row
    default = getattr(WorkerSettings(), name)
    if isinstance(default, int | float) and "MiB" not in reported:
        assert float(reported) == default
    for value in ("70", "90") if names(variable) else ():
        changed = getattr(WorkerSettings.from_env({names(variable)[0]: value}), name)
        changed = changed.max_retries if isinstance(changed, RetryPolicy) else changed
        assert str(changed).removesuffix(".0") == value


@pytest.mark.parametrize("name", [one.name for one in fields(AddOptions)])
def test_an_option_of_the_producer_has_the_default_that_the_page_says(name: str) -> None:
    (row,) = [row for row in rows("Adding entries") if names(row[0]) == [name]]
    default = getattr(AddOptions(), name)
    assert row[1].strip("`") == ("none" if default is None else f"{default}".removesuffix(".0"))


def test_defaults_in_words_are_true() -> None:
    reported = {names(row[0])[0]: row[2] for row in rows("Options")[1:] if names(row[0])}
    assert (
        WorkerSettings().prefetch_bytes == 64 * 1024 * 1024
        and reported["prefetch_bytes"] == "64 MiB"
    )
    policy = WorkerSettings().retry
    assert [policy.wait_s(failures) for failures in (1, 2, 3)] == [1, 2, 4]
    assert policy.max_retries == 3 and "3 retries after 1, 2, 4 s" in reported["retry"]
    assert {reported[name] for name in ("timeout_s", "health_port")} == {"none"}
    assert (
        WorkerSettings().spoken_for_s == 60
        and WorkerSettings(processing_timeout_ms=300_000).spoken_for_s == 600
    )


def test_the_page_names_what_an_entry_has() -> None:
    shown = {re.split(r"[(\[]", name)[0] for row in rows("The entry")[1:] for name in names(row[0])}
    for name in shown - {"entry"} - {"id", "stream"}:
        assert hasattr(Entry, name), name
    inner = {"batch", "key", "raw_id", "refreshed_s", "source", "order", "cancelled_for"}
    inner |= {"failures", "started_s", "seconds", "has_finished", "runs_isolated", "was_put_back"}
    public = {name for name in vars(Entry) if not name.startswith("_")}
    assert public - inner == shown - {"entry"}


def test_the_page_names_all_metrics() -> None:
    registry = CollectorRegistry()  # the operator's metrics have the same beginning
    build_metrics("a", "b", registry=registry)
    text = render_metrics(registry).decode()
    known = set(re.findall(r"^# TYPE pelops_worker_(\S+)", text, flags=re.M))
    reported = {
        name.removeprefix("...").removeprefix("pelops_worker").removeprefix("_")
        for row in rows("Probes, metrics, and logs")
        for name in names(row[0])
        if "_" in name
    }
    assert reported == known
