"""Every query of the dashboards returns data on a real Prometheus with metrics of a real run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from local_cluster.binaries import find_binaries
from local_cluster.kubectl import run_kubectl
from local_cluster.operators import ROOT
from pelops.domain.recovery import Trigger
from tests.monitoring.dashboards import ask, fill
from tests.monitoring.prometheus import (
    NoPrometheus,
    Prometheus,
    find_programs,
    run_promtool,
    serve_recording,
)
from tests.monitoring.recording import Recording, render_series
from tests.monitoring.shop import RECORDING
from tools.dashboards import DASHBOARDS
from tools.dashboards.fleet import FLEET
from tools.dashboards.model import NOTHING_HAPPENED, Dashboard, Kind, Panel, Query

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def recording() -> Recording:
    """The metrics of the shop."""
    return Recording.read(RECORDING)


@pytest.fixture(scope="module")
def prometheus(
    recording: Recording, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A server that has them."""
    try:
        find_programs()
    except NoPrometheus as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("prometheus")
    with serve_recording(recording, directory) as server:
        yield server


def test_the_recorded_triggers_are_those_of_the_operator(recording: Recording) -> None:
    recorded = re.findall(r'trigger="([^"]*)"', " ".join(recording.series))
    assert set(recorded) == set(Trigger)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_every_query_returns_data(
    prometheus: Prometheus, dashboard: Dashboard, recording: Recording
) -> None:
    empty = [
        f"{panel.title}: {fill(dashboard, query, recording)}"
        for panel, query in _list_queries(dashboard)
        if not ask(prometheus, dashboard, panel, query, recording)
    ]
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_every_legend_names_labels_that_the_result_has(
    prometheus: Prometheus, dashboard: Dashboard, recording: Recording
) -> None:
    for panel, query in _list_queries(dashboard):
        found = ask(prometheus, dashboard, panel, query, recording)
        happened = [one for one in found if NOTHING_HAPPENED not in one.labels.values()]
        for series in happened:
            missing = _find_labels(query.legend) - series.labels.keys()
            assert not missing, f"{panel.title}: {missing}"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_the_columns_of_a_table_are_labels_of_its_results(
    prometheus: Prometheus, dashboard: Dashboard, recording: Recording
) -> None:
    for panel in (one for one in dashboard.panels if one.kind is Kind.TABLE):
        found = [ask(prometheus, dashboard, panel, query, recording) for query in panel.queries]
        had = set[str]().union(*(series.labels for each in found for series in each))
        assert panel.labels.keys() == had - {"__name__"}, panel.title


def test_a_table_has_one_row_for_a_group_of_which_replicas_disagree(tmp_path: Path) -> None:
    recording = Recording(start=1_790_000_000, interval=5)
    for _ in range(10):
        recording.add({_a_condition("0", "Ready", "True"): 1.0})
        recording.add(
            {
                _a_condition("0", "Ready", "True"): 1.0,
                _a_condition("1", "CrashLooping", "False"): 1.0,
            }
        )
    (panel,) = (one for one in FLEET.panels if one.title == "Groups, worst first")
    query = panel.queries[1]
    try:
        find_programs()
    except NoPrometheus as error:
        pytest.skip(str(error))
    with serve_recording(recording, tmp_path) as prometheus:
        (row,) = ask(prometheus, FLEET, panel, query, recording)
    assert row.labels["reason"] == "CrashLooping"


def _a_condition(replica: str, reason: str, status: str) -> str:
    labels = {"kind": "StreamConsumerGroup", "namespace": "shop", "name": "orders", "pod": replica}
    labels |= {"type": "Ready", "status": status, "reason": reason}
    return render_series("pelops_condition", labels)


def test_a_series_that_is_missing_in_a_scrape_has_ended(tmp_path: Path) -> None:
    recording = Recording(start=1_790_000_000, interval=5)
    for reason in ("Ready", "CrashLooping", "Ready"):
        recording.add({_a_condition("0", reason, "True"): 1.0})
    try:
        find_programs()
    except NoPrometheus as error:
        pytest.skip(str(error))
    with serve_recording(recording, tmp_path) as prometheus:
        (row,) = prometheus.query("pelops_condition", recording.start + 5)
    assert row["metric"]["reason"] == "CrashLooping"


def test_a_query_without_data_is_found(prometheus: Prometheus, recording: Recording) -> None:
    assert prometheus.query("pelops_ready", recording.end)
    assert not prometheus.query("pelops_no_such_metric", recording.end)
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        prometheus.query("max(pelops_ready", recording.end)


def test_unknown_lag_and_missing_scrapes_survive_the_recording(tmp_path: Path) -> None:
    written = Recording(start=1_790_000_000, interval=5)
    written.add({'pelops_ready{name="a"}': 1.0, 'pelops_lag_entries{name="a b"}': float("nan")})
    written.add({'pelops_ready{name="a"}': 1.0})
    written.add({'pelops_ready{name="a"}': 0.0, 'pelops_lag_entries{name="a b"}': 1_790_000_010.4})
    written.write(tmp_path / "some.txt.gz")
    assert Recording.read(tmp_path / "some.txt.gz") == written
    text = written.render_open_metrics()
    assert 'pelops_lag_entries{name="a b"} NaN 1790000000\n' in text
    assert 'pelops_lag_entries{name="a b"} 1790000010 1790000010\n' in text
    assert text.count("pelops_ready") == 3 and text.endswith("# EOF\n")


def test_promtool_parses_every_query(recording: Recording, tmp_path: Path) -> None:
    rules = [
        {"record": "a:b", "expr": fill(dashboard, query, recording)}
        for dashboard in DASHBOARDS
        for _, query in _list_queries(dashboard)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    try:
        printed = run_promtool("check", "rules", "--lint=none", str(path))
    except NoPrometheus as error:
        pytest.skip(str(error))
    assert f"{len(rules)} rules found" in printed


def test_kustomize_makes_a_config_map_of_each_dashboard(tmp_path: Path) -> None:
    kubectl = find_binaries().paths["kubectl"]
    source = ROOT / "manifests/monitoring/dashboards"
    made = run_kubectl(kubectl, tmp_path / "none", "kustomize", str(source)).stdout
    maps = {one["metadata"]["name"]: one for one in yaml.safe_load_all(made)}
    assert set(maps) == {f"pelops-dashboard-{one.name}" for one in DASHBOARDS}
    for dashboard in DASHBOARDS:
        one = maps[f"pelops-dashboard-{dashboard.name}"]
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        written = (source / f"{dashboard.name}.json").read_text()
        assert one["data"] == {f"{dashboard.uid}.json": written}


def _list_queries(dashboard: Dashboard) -> list[tuple[Panel, Query]]:
    return [(panel, query) for panel in dashboard.panels for query in panel.queries]


def _find_labels(legend: str) -> set[str]:
    return {part.partition("}}")[0] for part in legend.split("{{")[1:]}
