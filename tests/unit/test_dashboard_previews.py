"""Previews show what the queries returned."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from tools.dashboards.model import (
    GREEN,
    RED,
    Dashboard,
    Panel,
    Query,
    Row,
    Unit,
    red_from,
    stat,
    states,
    table,
    time_series,
)
from tools.dashboards.preview import Series, TimeRange, draw_dashboard

pytestmark = pytest.mark.full

SHOWN = TimeRange(start=1000, end=1100, step=10)
TIMES = range(1000, 1101, 10)


def _draw(panel: Panel, *results: list[Series]) -> str:
    rows = (Row(title="Now", panels=(panel,)),)
    one = Dashboard(name="a", title="A", description="All.", variables=(), rows=rows)
    drawn = draw_dashboard(one, [results], SHOWN)
    ElementTree.fromstring(drawn)
    return drawn


def _texts(drawn: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn)


def _series(values: list[float], **labels: str) -> Series:
    return Series(labels, list(zip(map(float, TIMES), values, strict=False)))


def test_a_tile_has_the_color_of_its_value() -> None:
    panel = stat("Lost", "lost", "Number.", steps=red_from(1))
    good, bad = (_draw(panel, [_series([value])]) for value in (0, 3))
    assert "#2a6e32" in good and "#b0243a" not in good
    assert "#b0243a" in bad and "3" in _texts(bad)


def test_a_tile_without_data_is_empty_and_an_unknown_value_uncolored() -> None:
    panel = stat("Lost", "lost", "Number.", steps=red_from(1))
    assert "-" in _texts(_draw(panel, []))
    unknown = _draw(panel, [_series([math.nan])])
    assert "NaN" in _texts(unknown) and "#2a6e32" not in unknown


def test_a_line_breaks_at_an_unknown_value_or_a_missing_scrape() -> None:
    panel = time_series("Lag", [Query(expression="lag", legend="{{name}}", color=RED)], "Number.")
    known = [float(number) for number in range(11)]
    unknown = [*known[:4], math.nan, *known[5:]]
    whole, broken = (_draw(panel, [_series(each, name="a")]) for each in (known, unknown))
    missing = Series({"name": "a"}, [(float(at), 1.0) for at in TIMES if at not in {1040, 1050}])
    count = 'fill="none" stroke="#f2495c"'
    assert [whole.count(count), broken.count(count)] == [1, 2]
    assert _draw(panel, [missing]).count(count) == 2


def test_stacked_series_are_added() -> None:
    queries = [Query(expression="a", legend="a"), Query(expression="b", legend="b")]
    panel = time_series("Backlog", queries, "Number.", stacked=True)
    drawn = _draw(panel, [_series([30.0] * 11)], [_series([30.0] * 11)])
    assert "60" in _texts(drawn)  # the highest tick
    plain = time_series("Backlog", queries, "Number.")
    assert "60" not in _texts(_draw(plain, [_series([30.0] * 11)], [_series([30.0] * 11)]))


def test_legends_that_do_not_fit_are_counted() -> None:
    panel = time_series("Lag", [Query(expression="lag", legend="{{name}}")], "Number.")
    many = [_series([1.0] * 11, name=f"a-group-with-a-long-name-{number}") for number in range(12)]
    shown = [text for text in _texts(_draw(panel, many)) if text.startswith("a-group")]
    assert f"and {12 - len(shown)} more" in _texts(_draw(panel, many))


def test_a_table_joins_queries_by_labels_and_starts_with_the_worst() -> None:
    panel = table(
        "Groups",
        [
            Query(expression="age", legend="Age", unit=Unit.SECONDS),
            Query(expression="reason"),
            Query(expression="max", legend="Max."),
        ],
        "All.",
        labels={"namespace": "Namespace", "name": "Name", "reason": "Ready"},
    )
    groups = [{"namespace": "shop", "name": name} for name in ("mailing", "orders")]
    ages = [_series([age], **labels) for age, labels in zip((5.0, 90.0), groups, strict=True)]
    reasons = [_series([1.0], **labels, reason="Ready") for labels in groups]
    limits = [_series([7.0], **groups[0])]
    cells = _texts(_draw(panel, ages, reasons, limits))[3:]
    assert [text for text in cells if text in {"Namespace", "Name", "Age", "Max."}] == [
        *("Namespace", "Name", "Age", "Max.")
    ]
    assert cells.index("orders") < cells.index("mailing")
    assert cells.index("1.5 min") < cells.index("5 s")
    assert cells.count("7") == 1


def test_states_are_bars_in_the_color_of_the_state() -> None:
    texts = {"0": ("Not ready", RED), "1": ("Ready", GREEN)}
    panel = states("Ready", Query(expression="ready", legend="{{name}}"), "All.", texts=texts)
    drawn = _draw(panel, [_series([1.0] * 4 + [0.0] * 3 + [1.0] * 4, name="a")])
    assert drawn.count('fill="#73bf69"') == 3  # two periods and the legend
    assert drawn.count('fill="#f2495c"') == 2
