"""The shipped alerts: each fires on its fault, as recorded, and none fires without a fault.

`record.py` says how the recordings were made, and what in them is simulated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import pytest
import yaml

from tests.monitoring.playback import Firing, Playback
from tests.monitoring.prometheus import NoPrometheus, find_programs, run_promtool
from tests.monitoring.recording import Recording
from tests.monitoring.rules import MANIFESTS, ROOT, list_metrics, list_rules, read_groups
from tools.reference.metrics import SECTIONS
from tools.reference.metrics import list_metrics as list_declared

FOLDER: Final = Path(__file__).parent
SITE: Final = "/docs/latest/"
EVERY_5_MINUTES: Final = 10  # scrapes


def of_group(alert: str, *names: str, **labels: str) -> list[Firing]:
    """This alert about these groups."""
    return [Firing(alert, {"namespace": "shop", "name": name, **labels}) for name in names]


def of_worker(alert: str, name: str) -> Firing:
    """This alert about the workers of a stream."""
    return Firing(
        alert, {"namespace": "shop", "stream": f"{name}:jobs", "group": "order-processing"}
    )


RECONCILES_FAIL: Final = (
    Firing("PelopsReconcileErrors", {}),
    Firing("PelopsKubernetesRequestsFail", {}),
)
# What fires at the end of each phase of a recording: all of it.
EXPECTED: Final[Mapping[str, Mapping[str, Iterable[Firing]]]] = {
    "faults": {
        "healthy": [],
        "faults": [
            *of_group("PelopsGroupNotReady", "stuck", "unreachable"),
            *of_group("PelopsEntriesStuck", "stuck"),
            *of_group("PelopsLagGrowsAtMaximum", "at-maximum"),
            *of_group("PelopsUndeliveredTooOld", "undelivered", "at-maximum"),
            *of_group("PelopsDeadLettersGrow", "poison", "rejected"),
            *of_group("PelopsDeadLettersExpireSoon", "expiring"),
            *of_group("PelopsDataLoss", "trimmed", type="DataLoss"),
            *of_group("PelopsDataLoss", "dropped", type="PendingEntriesDropped"),
            *of_group("PelopsPositionWentBack", "went-back"),
            *of_group("PelopsAuditFailing", "unaudited", type="AuditFailing"),
            *of_group("PelopsAuditFoundLoss", "audited", stream="audited:events", group="audited"),
        ],
    },
    "workers": {  # no operator runs beside them
        "healthy": [Firing("PelopsOperatorDown", {})],
        "faults": [
            of_worker("PelopsWorkerHandlerErrors", "failing"),
            of_worker("PelopsWorkerRequestsFail", "cut-off"),
            Firing("PelopsOperatorDown", {}),
        ],
    },
    "operator": {
        "healthy": [],
        "no right to write status": [
            *RECONCILES_FAIL,
            Firing("PelopsStatusWritesFail", {"resource": "streamconsumergroups/status"}),
        ],
        "the right is back": [],
        "the API server hangs": [
            *RECONCILES_FAIL,
            *of_group("PelopsGroupNotReady", "orders"),  # passes reach their deadline
        ],
        "the API server answers": [],
        "one replica": [Firing("PelopsOperatorReplicasMissing", {})],
        "no replica": [Firing("PelopsOperatorDown", {})],
    },
    "unscanned": {"never scanned": of_group("PelopsScanOverdue", "orders")},
}
ALERTS: Final = {rule["alert"]: rule for rule in list_rules("alert")}
# Where each alert fires first: the recording and its phase.
FIRST: Final = {
    one.alert: (name, phase)
    for name, phases in reversed(list(EXPECTED.items()))
    for phase, alerts in reversed(list(phases.items()))
    for one in alerts
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An empty directory, on a machine with promtool."""
    try:
        find_programs()
    except NoPrometheus as error:
        pytest.skip(str(error))
    return tmp_path


def played(name: str) -> Playback:
    """A recording."""
    return Playback(Recording.read(FOLDER / f"{name}.txt.gz"))


@pytest.mark.parametrize("name", EXPECTED)
def test_each_alert_fires_on_its_fault_and_on_nothing_else(name: str, directory: Path) -> None:
    playback = played(name)
    phases = playback.phases()
    firing = {phases[phase][1]: alerts for phase, alerts in EXPECTED[name].items()}
    playback.check(firing, directory)


def test_no_alert_fires_in_an_hour_without_a_fault(directory: Path) -> None:
    playback = played("healthy")
    first, last = playback.phases()["healthy"]
    assert (last - first) * 30 > 3600
    playback.check(dict.fromkeys(range(first, last, EVERY_5_MINUTES), ()), directory)


def test_every_alert_is_in_a_recording() -> None:
    assert sorted(FIRST) == sorted(ALERTS)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_alerts_say_has_their_labels_and_their_values(name: str, directory: Path) -> None:
    playback = played(name)
    phases = playback.phases()
    fired = {alert: phases[first[1]][1] for alert, first in FIRST.items() if first[0] == name}
    said = playback.render_annotations(fired, directory)
    assert said.keys() == fired.keys()
    for alert, texts in said.items():
        expected = ALERTS[alert]["annotations"]
        assert texts["summary"] == expected["summary"]
        assert texts["runbook_url"] == expected["runbook_url"]
        description = texts["description"]
        assert not re.search(r"<no value>|<error|{{|%!|NaN", description), description
        example = next(one for one in EXPECTED[name][FIRST[alert][1]] if one.alert == alert)
        assert set(re.findall(r"\$labels\.(\w+)", expected["description"])) <= set(example.labels)


def test_promtool_accepts_the_rules(directory: Path) -> None:
    rules = directory / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": read_groups()}))
    assert f"{len(ALERTS) + len(list_rules('record'))} rules found" in run_promtool(
        "check", "rules", "--lint-fatal", str(rules)
    )


def test_every_alert_has_a_severity_a_summary_and_a_runbook() -> None:
    assert 12 <= len(ALERTS) <= 18
    for name, rule in ALERTS.items():
        assert re.fullmatch(r"Pelops([A-Z][a-z]+)+", name)
        assert rule["labels"]["severity"] in {"critical", "warning"}
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert annotations["summary"].endswith(".") and "{{" not in annotations["summary"]
        assert rule.get("for", "0m").endswith("m")


@pytest.mark.parametrize("alert", ALERTS)
def test_the_runbook_has_a_section_for_each_alert(alert: str) -> None:
    url = urlparse(ALERTS[alert]["annotations"]["runbook_url"])
    assert (url.scheme, url.netloc) == ("https", "pelops.dev")
    page = ROOT / "docs" / f"{url.path.removeprefix(SITE).strip('/')}.md"
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert alert in headings
    assert url.fragment == alert.lower()


def test_the_rules_use_only_metrics_that_pelops_exports() -> None:
    declared = {one.name for section in SECTIONS for one in list_declared(section)}
    assert list_metrics() <= declared


def test_the_monitors_select_what_the_manifests_install() -> None:
    def read(path: Path) -> Any:
        return yaml.safe_load(path.read_text())

    monitor = read(MANIFESTS / "service_monitor.yaml")
    service = read(ROOT / "manifests" / "base" / "metrics_service.yaml")
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert endpoint["honorLabels"] is True  # namespace is a label of the metrics themselves
    workers = read(MANIFESTS / "worker_pod_monitor.yaml")
    guide = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    ((label, value),) = workers["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = workers["spec"]["podMetricsEndpoints"]
    assert f"{label}: {json.dumps(value)}" in guide
    assert f"name: {endpoint['port']}" in guide
    listed = set(read(MANIFESTS / "kustomization.yaml")["resources"])
    assert {one.name for one in MANIFESTS.glob("*.yaml")} == listed | {"kustomization.yaml"}
