"""What the command line says about a group: state, rates, order, the command that helps."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.api.schema.kind_definitions import KINDS
from pelops.cli.commands.status import COLUMNS, describe_group, describe_rates, show_events
from pelops.cli.commands.top import COLUMNS as TOP_COLUMNS
from pelops.cli.commands.top import sort_rows
from pelops.cli.console import Console
from pelops.cli.display.gauges import GroupGauges, read_gauges
from pelops.cli.display.group_facts import DisplayedGroup, read_group, render_facts, suggest_next
from pelops.cli.display.rates import RateWindow, Row, build_row
from pelops.cli.display.tables import Style
from tests.builders import NOW


def a_group(
    name: str = "orders", *, spec: dict[str, Any] | None = None, **status: Any
) -> DisplayedGroup:
    """A group whose status describes its newest spec, unless it has another generation."""
    return read_group(
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "generation": 2,
                "creationTimestamp": "2026-05-04T02:02:01Z",
            },
            "spec": {"stream": "orders:events", **(spec or {})},
            "status": {"observedGeneration": 2, **status},
        }
    )


def condition(kind: str, status: str = "True", reason: str = "Any") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": f"{kind} {status}"}


READY = condition("Ready")
NOT_READY = condition("Ready", "False", "RedisUnavailable")
SEEN = {"name": "orders", "pending": 3, "lag": 1000, "lagKnown": True}


def test_a_group_without_a_status_is_not_ready_and_in_progress() -> None:
    group = a_group(observedGeneration=-1)
    assert (group.is_ready, group.style) == (False, Style.WARNING)
    assert (group.ready.status, group.ready.reason) == ("Unknown", "NotObserved")
    assert (group.lag_cell, group.pending, group.workers_cell) == (None, None, None)


def test_a_status_of_an_older_spec_is_not_ready() -> None:
    assert a_group(conditions=[READY]).is_ready
    older = a_group(conditions=[READY], observedGeneration=1)
    assert (older.is_ready, older.ready.reason) == (False, "NotObserved")
    failed = a_group(conditions=[NOT_READY], observedGeneration=1)
    assert failed.ready.reason == "RedisUnavailable"


@pytest.mark.parametrize(
    ("group", "cell"),
    [
        ({"lag": 1240, "lagKnown": True}, "1,240"),
        ({"lag": 312, "lagKnown": False}, ">=312"),
        ({"pending": 0}, "unknown"),
        (None, None),
    ],
)
def test_a_lag_that_is_not_known_is_not_shown_as_a_number(group: Any, cell: str | None) -> None:
    assert a_group(group=group).lag_cell == cell


@pytest.mark.parametrize(
    ("facts", "style"),
    [
        (a_group(conditions=[READY]), Style.GOOD),
        (a_group(conditions=[NOT_READY]), Style.BAD),
        (a_group(conditions=[NOT_READY, condition("Stalled")]), Style.BAD),
        (a_group(conditions=[NOT_READY, condition("Reconciling")]), Style.WARNING),
        (a_group(conditions=[READY], spec={"suspend": True}), Style.WARNING),
        (a_group(conditions=[NOT_READY], spec={"suspend": True}), Style.WARNING),
    ],
)
def test_the_color_says_whether_a_person_must_act(facts: DisplayedGroup, style: Style) -> None:
    assert facts.style is style


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (a_group(conditions=[READY], group=SEEN), ()),
        (a_group(conditions=[READY], group=SEEN, spec={"suspend": True}), ("resume",)),
        (a_group(conditions=[NOT_READY, condition("GroupReady", "False")]), ("doctor",)),
        (a_group(conditions=[NOT_READY, condition("RecoveryHealthy", "False")], group=SEEN),
         ("pending",)),
        (a_group(conditions=[READY], group=SEEN, recovery={"stuck": 2}), ("pending",)),
        (a_group(conditions=[READY], group=SEEN, deadLetter={"length": 2}), ("dlq", "list")),
        (a_group(conditions=[NOT_READY, condition("WorkloadReady", "False")], group=SEEN), ()),
        (a_group(), ("doctor",)),
    ],
)  # fmt: skip
def test_the_next_command_is_the_one_that_helps(
    facts: DisplayedGroup, words: tuple[str, ...]
) -> None:
    expected = (*words, "orders", "-n", "shop") if words else ()
    assert suggest_next(facts) == expected


def test_a_true_alarm_is_a_problem_a_true_health_condition_is_not() -> None:
    group = a_group(conditions=[READY, condition("GroupReady"), condition("DataLoss")])
    good = {one.type: one.is_good for one in group.other_conditions}
    assert good == {"GroupReady": True, "DataLoss": False}


def test_json_shows_unknown_numbers_as_null_and_who_paused() -> None:
    rendered = render_facts(a_group())
    assert (rendered["lag"], rendered["stuck"], rendered["suspended"]) == (None, None, False)
    assert rendered["pausedBy"] is None


METRICS = """\
# HELP pelops_lag_entries Number of undelivered entries.
pelops_lag_entries{namespace="shop",name="orders"} 1000.0
pelops_pending_entries{namespace="shop",name="orders"} NaN
pelops_arrival_rate{namespace="shop",name="orders"} 310.5
pelops_lag_entries{namespace="shop",name="mail"} 0.0
pelops_oldest_pending_seconds{namespace="shop",name="orders"} +Inf
pelops_lag_entries{broken
pelops_other{namespace="shop",name="orders"} 7
"""


def test_gauges_of_all_replicas_are_read_without_unknown_values() -> None:
    other = 'pelops_pending_entries{namespace="shop",name="orders"} 240\n'
    other += 'pelops_lag_entries{namespace="shop",name="orders"} 900\n'
    gauges = read_gauges([METRICS, other])
    assert gauges["shop", "orders"] == GroupGauges(lag=1000.0, pending=240.0, arrival_rate=310.5)
    assert gauges["shop", "mail"] == GroupGauges(lag=0.0)


def a_row(name: str = "orders", **gauges: float) -> Row:
    return build_row(a_group(name, group=SEEN), GroupGauges(**gauges), NOW)


@pytest.mark.parametrize(
    ("arrivals", "done", "trend", "empty_in"),
    [
        (310.0, 290.0, "↗", "never"),
        (100.0, 110.0, "↘", "100s"),
        (100.0, 99.0, "→", "never"),
        (0.0, 1.0, "↘", "16m"),
    ],
)
def test_the_trend_follows_from_the_rates(
    arrivals: float, done: float, trend: str, empty_in: str
) -> None:
    row = a_row(arrival_rate=arrivals, acknowledge_rate=done, lag=997)
    assert (row.trend, row.empty_in) == (trend, empty_in)
    assert describe_rates(row).startswith("in ")


def test_without_rates_nothing_is_guessed() -> None:
    row = a_row()
    assert (row.trend, row.empty_in, row.lag, row.pending) == (None, None, 1000, 3)
    empty = a_row(arrival_rate=1.0, acknowledge_rate=2.0, lag=0, pending=0)
    assert (empty.trend, empty.empty_in) == ("→", None)


def test_rows_are_sorted_by_the_key_with_unknown_numbers_last() -> None:
    rows = [a_row("a", lag=5), a_row("b", lag=50, arrival_rate=1), a_row("c", lag=5)]
    assert [row.group.name for row in sort_rows(rows, "l")] == ["b", "a", "c"]
    assert [row.group.name for row in sort_rows(rows, "r")] == ["b", "a", "c"]
    by_age = [a_row("old", oldest_s=9), a_row("none"), a_row("older", oldest_s=99)]
    assert [row.group.name for row in sort_rows(by_age, "a")] == ["older", "old", "none"]


def test_rates_that_the_operator_does_not_measure_are_counted_over_a_window() -> None:
    window, name = RateWindow(window_s=10.0), ("shop", "orders")

    def sample(at_s: float, **gauges: float) -> tuple[float | None, float | None]:
        found = window.complete({name: GroupGauges(**gauges)}, at_s)[name]
        return found.arrival_rate, found.acknowledge_rate

    assert sample(0.0, added=100, delivered=50, pending=10) == (None, None)
    assert sample(5.0, added=150, delivered=90, pending=20) == (10.0, 6.0)
    assert sample(10.0, added=200, delivered=140, pending=10) == (10.0, 9.0)
    # The window moves on: the samples of 5 s and 15 s count.
    assert sample(15.0, added=150 + 30, delivered=140, pending=0) == (3.0, 7.0)
    # The operator restarted, so its counters begin again.
    assert sample(16.0, added=1, delivered=1, pending=0) == (None, None)
    measured = {"arrival_rate": 7.0, "acknowledge_rate": 8.0}
    assert sample(17.0, added=2, delivered=2, pending=0, **measured) == (7.0, 8.0)


def test_columns_have_the_names_that_kubectl_shows() -> None:
    (group,) = (one for one in KINDS if one.kind == "StreamConsumerGroup")
    served = [column.name.upper() for column in group.columns]
    shown = [column.name for column in COLUMNS]
    assert set(shown) - set(served) == {"NAME", "MESSAGE"}
    common = [name for name in shown if name in served]
    narrow = common[: common.index("AGE")]
    assert narrow == served[: len(narrow)]
    assert {"DLQ", "REPLICAS", "OLDEST"} <= {column.name for column in TOP_COLUMNS}


@pytest.mark.parametrize(
    ("letters", "text"),
    [(1, "1 dead letter"), (37, "37 dead letters"), (1240, "1,240 dead letters")],
)
def test_dead_letters_are_counted_in_words(letters: int, text: str) -> None:
    group = a_group(conditions=[READY], group=SEEN, deadLetter={"length": letters, "stream": "dlq"})
    lines = {label: parts for label, *parts in describe_group(group, None, NOW)}
    assert [getattr(part, "text", part) for part in lines["DLQ"]] == [text, " in dlq"]


def test_events_have_a_header_for_each_column(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"metadata": {}, "type": "Normal", "reason": "Requeued", "message": "Requeued 1 entry"}
    show_events([event], Console(), NOW)
    header, line = capsys.readouterr().out.splitlines()[1:]
    assert header.index("MESSAGE") == line.index("Requeued 1 entry")
