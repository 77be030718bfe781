"""Dashboards as files: complete, as generated, and about metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from tools.dashboards import DASHBOARDS
from tools.dashboards.__main__ import DIRECTORY
from tools.dashboards.model import Dashboard, Kind
from tools.reference.metrics import SECTIONS, MetricDeclaration, list_metrics

METRICS = {one.name: one for section in SECTIONS for one in list_metrics(section)}
# Every process that uses Prometheus' client for Python exports these.
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
FROM_TARGETS = {"namespace", "pod"}  # labels that Prometheus adds to what it scrapes
FILES = sorted(DIRECTORY.glob("*.json"))


def _expressions(*dashboards: Dashboard) -> list[str]:
    return [q.expression for one in dashboards for panel in one.panels for q in panel.queries]


def _declaration(name: str) -> MetricDeclaration | None:
    return METRICS.get(name) or METRICS.get(re.sub(r"_(bucket|sum|count)$", "", name))


def _labels(name: str) -> set[str]:
    declared = _declaration(name)
    own = set(declared.labels) if declared else set()
    return own | FROM_TARGETS | ({"le"} if name.endswith("_bucket") else set())


def _find_metrics(expression: str) -> list[str]:
    return re.findall(r"\b(?:pelops|process)_\w+", expression)


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A dashboard as Grafana reads it."""
    found: dict[str, Any] = json.loads(request.param.read_text())
    return found


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_every_metric_and_label_exists(one: Dashboard) -> None:
    for expression in _expressions(one):
        _check_names(expression)


def _check_names(expression: str) -> None:
    names = _find_metrics(expression)
    assert names or expression == "vector(0)"
    for name in names:
        assert name in PROCESS or _declaration(name), f"the operator has no metric {name}"
    for name, selector in re.findall(r"\b((?:pelops|process)_\w+)\{([^}]*)\}", expression):
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert used <= _labels(name), f"{name} has no label {used - _labels(name)}"
    known = set[str]().union(*(_labels(name) for name in names))
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(labels.split(", ")) <= known, labels


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_counters_are_only_read_as_rates(one: Dashboard) -> None:
    for expression in _expressions(one):
        for name in filter(_is_counter, _find_metrics(expression)):
            assert re.search(rf"\b(?:rate|increase)\({name}\b", expression), expression


def _is_counter(name: str) -> bool:
    declared = _declaration(name)
    kind = declared.kind if declared else "counter" if name.endswith("_total") else ""
    return kind in {"counter", "histogram"}


def test_every_metric_of_a_group_is_on_a_dashboard() -> None:
    shown = {name for expression in _expressions(*DASHBOARDS) for name in _find_metrics(expression)}
    # What explains a limit or a name, and no person watches over time.
    left_out = {
        "pelops_created_timestamp_seconds",
        "pelops_scan_interval_seconds",
        "pelops_stream_oldest_pending_seconds",
        "pelops_arrival_rate",
    }
    found = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    sections = ("groups", "streams", "scaling", "recovery", "audits", "workers")
    declared = {one.name for section in sections for one in list_metrics(section)}
    assert declared - found - left_out == set()


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_every_preview_is_of_the_dashboard_as_it_is_now(one: Dashboard) -> None:
    path = DIRECTORY.parents[2] / f"docs/assets/dashboard-{one.name}.svg"
    assert path.stat().st_size < 300_000
    root = ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter(f"{SVG}text")]
    titles = [group.findtext(f"{SVG}text") for group in root.iter() if _is_title(group)]
    assert titles == [panel.title for panel in one.panels]
    assert {one.title, *(row.title for row in one.rows)} <= set(texts)
    for panel in one.panels:
        legends = [query.legend for query in panel.queries if "{{" not in query.legend]
        colors = [text for text, _ in panel.texts.values() if panel.kind is Kind.STATES]
        assert {*filter(None, legends), *panel.labels.values(), *colors} <= set(texts), panel.title


def _is_title(element: ElementTree.Element) -> bool:
    return element.get("id", "").startswith("panel-")
