"""The chart and the manifests have one source: by default they are the same objects."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.binaries import find_binaries
from tests.chart.helm import CHART, NAMESPACE, Helm, Object, Renderer, read_objects, refused
from tests.operators import ROOT
from tools.chart import find_stale, main, read_files

# What the chart adds to each object.
ADDED = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "helm.sh/resource-policy",
}


def kustomize(directory: Path) -> list[Object]:
    """What `kubectl kustomize` renders."""
    kubectl = str(find_binaries().paths["kubectl"])
    done = subprocess.run(
        [kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=True
    )
    return read_objects(done.stdout)


def strip(value: Any) -> Any:
    """Without what the chart adds, what is empty, and the line breaks of long expressions."""
    if isinstance(value, dict):
        kept = {name: strip(one) for name, one in value.items() if name not in ADDED}
        return {name: one for name, one in kept.items() if one != {} or name == "selector"}
    if isinstance(value, list):
        return [strip(one) for one in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    def key(one: Object) -> tuple[str, str, str]:
        meta = one["metadata"]
        return one["kind"], meta.get("namespace", ""), meta["name"]

    return {key(one): strip(one) for one in objects}


def test_by_default_the_chart_has_the_objects_of_the_base(render: Renderer) -> None:
    base = by_name(kustomize(ROOT / "manifests" / "base"))
    # `helm install --create-namespace` makes it.
    del base["Namespace", "", NAMESPACE]
    chart = by_name(render().objects)
    assert sorted(chart) == sorted(base)
    for key, wanted in base.items():
        assert chart[key] == wanted, key


def test_with_values_the_chart_has_the_objects_of_components_and_overlays(render: Renderer) -> None:
    chart = by_name(
        render({"networkPolicy": {"enabled": True}, "metrics": {"authentication": "token"}}).objects
    )
    for file in ("network-policies/operator.yaml", "metrics-authentication/roles.yaml"):
        path = ROOT / "manifests" / "components" / file
        for key, wanted in by_name([*yaml.safe_load_all(path.read_text())]).items():
            assert chart[key] == wanted, key


def test_the_roles_of_watched_namespaces_are_those_of_the_overlay(render: Renderer) -> None:
    overlay = by_name(kustomize(ROOT / "manifests" / "overlays" / "several-namespaces"))
    del overlay["Namespace", "", NAMESPACE]
    chart = by_name(
        render({"watchNamespaces": ["shop", "billing"], "clusterResources": False}).objects
    )
    assert sorted(chart) == sorted(overlay)
    for key, wanted in overlay.items():
        assert chart[key] == wanted, key


def test_monitoring_of_the_chart_is_that_of_the_manifests(render: Renderer) -> None:
    monitoring = ROOT / "manifests" / "monitoring"
    if not (monitoring / "rules.yaml").exists():
        with refused() as messages:
            render({"rules": {"enabled": True}})
        assert "it was packaged without it" in messages[0]
        return
    objects = render(
        {
            "rules": {"enabled": True},
            "dashboards": {"enabled": True},
            "metrics": {
                "serviceMonitor": {"enabled": True},
                "workerPodMonitor": {"enabled": True},
            },
        }
    )
    chart = by_name(objects.objects)
    for name in ("rules", "worker_pod_monitor"):
        (wanted,) = by_name([yaml.safe_load((monitoring / f"{name}.yaml").read_text())]).items()
        assert chart[wanted[0]] == wanted[1]
    wanted_monitor = yaml.safe_load((monitoring / "service_monitor.yaml").read_text())
    assert objects.one("ServiceMonitor")["spec"]["endpoints"] == wanted_monitor["spec"]["endpoints"]
    kustomized = by_name(kustomize(monitoring / "dashboards"))
    contents = [one["data"] for one in kustomized.values()]
    assert sorted(map(json.dumps, contents)) == sorted(
        json.dumps(strip(one["data"])) for one in objects.of("ConfigMap")
    )


def test_the_copies_in_the_chart_are_those_of_the_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out
    files = read_files(ROOT)
    assert main(["--check", "--root", str(tmp_path)]) == 1
    (tmp_path / "chart" / "pelops-operator" / "files").mkdir(parents=True)
    (tmp_path / "chart" / "pelops-operator" / "files" / "old.yaml").touch()
    assert find_stale(tmp_path, files) == ["chart/pelops-operator/files/old.yaml"]


def test_the_chart_is_linted_and_packaged(helm: Helm, tmp_path: Path) -> None:
    linted = helm.run("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in linted and "[ERROR]" not in linted
    copy = tmp_path / "pelops-operator"
    shutil.copytree(CHART, copy)
    helm.run("package", str(copy), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    project = (ROOT / "pyproject.toml").read_text()
    version = package.name.removeprefix("pelops-operator-").removesuffix(".tgz")
    assert f'version = "{version}"' in project
    described = yaml.safe_load(helm.run("show", "chart", str(package)))
    assert described["version"] == described["appVersion"] == version
