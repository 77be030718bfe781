"""Previews show what the queries returned."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.charts import save
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
from tools.dashboards.preview import Series, TimeRange, draw_dashboard, render_number

pytestmark = pytest.mark.full

TIMES = range(1000, 1101, 10)
LAG = Query(expression="lag", legend="{{name}}", color=RED)
RED_LINE = "stroke: #c4162a"


def _draw(path: Path, panel: Panel, *results: list[Series]) -> tuple[str, list[str]]:
    """Return the picture, and its texts."""
    rows = (Row(title="Now", panels=(panel,)),)
    one = Dashboard(name="a", title="A", description="All.", variables=(), rows=rows)
    save(draw_dashboard(one, [results], TimeRange(1000, 1100, 10)), path / "a.svg", "A")
    texts = ElementTree.parse(path / "a.svg").iter("{http://www.w3.org/2000/svg}text")
    return (path / "a.svg").read_text(), [text.text or "" for text in texts]


def _series(values: list[float], **labels: str) -> Series:
    return Series(labels, list(zip(map(float, TIMES), values, strict=False)))


@pytest.mark.parametrize(
    ("found", "text", "color"),
    [
        ([_series([0.0])], "0", "#37872d"),
        ([_series([3.0])], "3", "#c4162a"),
        ([_series([math.nan])], "NaN", "#ffffff"),
        ([], "-", "#ffffff"),
    ],
)
def test_a_tile_has_the_color_of_its_value(
    tmp_path: Path, found: list[Series], text: str, color: str
) -> None:
    drawn, texts = _draw(tmp_path, stat("Lost", "lost", "Number.", steps=red_from(1)), found)
    assert text in texts and f"fill: {color}" in drawn


def test_a_line_breaks_at_an_unknown_value_or_a_missing_scrape(tmp_path: Path) -> None:
    panel = time_series("Lag", [LAG], "Number.")
    known = [(float(at), 1.0) for at in TIMES]
    counts = []
    for points in (known, [*known[:4], (1040.0, math.nan), *known[5:]], known[:4] + known[6:]):
        drawn, _ = _draw(tmp_path, panel, [Series({"name": "a"}, points)])
        line = next(path for path in drawn.split("<path") if f"{RED_LINE}; stroke-width" in path)
        counts.append(line.count("M"))
    assert counts == [1, 2, 2]


def test_stacked_series_are_added(tmp_path: Path) -> None:
    queries = [Query(expression="a", legend="a"), Query(expression="b", legend="b")]
    found = [[_series([30.0] * 11)], [_series([30.0] * 11)]]
    for stacked in (True, False):
        panel = time_series("Backlog", queries, "Number.", stacked=stacked)
        _, texts = _draw(tmp_path, panel, *found)
        assert ("60" in texts) is stacked  # the highest tick


def test_legends_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    many = [_series([1.0] * 11, name=f"a-group-with-a-long-name-{number}") for number in range(12)]
    _, texts = _draw(tmp_path, time_series("Lag", [LAG], "Number."), many)
    shown = [text for text in texts if text.startswith("a-group")]
    assert f"and {12 - len(shown)} more" in texts


def test_a_table_joins_queries_by_labels_and_starts_with_the_worst(tmp_path: Path) -> None:
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
    _, texts = _draw(tmp_path, panel, ages, reasons, limits)
    cells = [text for text in texts if text not in {"A", "Now", "Groups", ""}][1:]
    assert cells == [
        *("Namespace", "Name", "Ready", "Age", "Max."),
        *("shop", "orders", "Ready", "1.5 min"),
        *("shop", "mailing", "Ready", "5 s", "7"),
    ]


def test_states_are_bars_in_the_color_of_the_state(tmp_path: Path) -> None:
    texts = {"0": ("Not ready", RED), "1": ("Ready", GREEN)}
    panel = states("Ready", Query(expression="ready", legend="{{name}}"), "All.", texts=texts)
    drawn, _ = _draw(tmp_path, panel, [_series([1.0] * 4 + [0.0] * 3 + [1.0] * 4, name="a")])
    assert drawn.count("fill: #37872d") == 3  # two periods and the legend
    assert drawn.count("fill: #c4162a") == 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, Unit.SECONDS, "0 s"),
        (0.0123, Unit.SECONDS, "12.3 ms"),
        (59, Unit.SECONDS, "59 s"),
        (90, Unit.SECONDS, "1.5 min"),
        (7200, Unit.SECONDS, "2 h"),
        (0.125, Unit.RATIO, "12.5%"),
        (1234, Unit.COUNT, "1.23 K"),
        (100, Unit.COUNT, "100"),
        (12.34, Unit.PER_SECOND, "12.3 /s"),
        (3 << 20, Unit.BYTES, "3 MiB"),
        (math.nan, Unit.COUNT, "NaN"),
    ],
)
def test_numbers_are_written_with_their_unit(value: float, unit: Unit, text: str) -> None:
    assert render_number(value, unit) == text
