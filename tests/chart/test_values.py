"""Each value of the chart does what its description says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pelops.controller.runtime.settings import build_parser
from tests.chart.helm import CHART, HelmFailed, Object, Rendered, Renderer, refused
from tools.chart import read_values

SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
VALUES: Final = (CHART / "values.yaml").read_text()
FREE: Final = frozenset({"resources"})  # its schema has the fields of Kubernetes
ROLLOUTS: Final = {
    "apiGroups": ["argoproj.io"],
    "resources": ["rollouts/scale"],
    "verbs": ["get", "patch"],
}
# Values that belong together are rendered together: a call of Helm costs 0.3 s.
POD: Final[Mapping[str, Any]] = {
    "fullnameOverride": "streams",
    "commonLabels": {"team": "platform"},
    "commonAnnotations": {"owner": "platform@example.com"},
    "replicaCount": 3,
    "image": {
        "registry": "registry.example:5000",
        "repository": "mirror/pelops-operator",
        "tag": "1.2.3",
        "pullPolicy": "Always",
        "pullSecrets": [{"name": "pull"}],
    },
    "config": {
        "logLevel": "DEBUG",
        "logFormat": "console",
        "observeIntervalSeconds": 0.5,
        "statusIntervalSeconds": 1,
        "resyncIntervalSeconds": 2,
        "clockSkewSeconds": 0,
        "allowedNetworks": ["10.0.0.0/8", "routable"],
        "allowedHosts": ["*.cache.example.com"],
    },
    "serviceAccount": {"name": "redis-groups", "annotations": {"cloud/role": "pelops"}},
    "podLabels": {"cost": "redis"},
    "podAnnotations": {"scrape": "no"},
    "podSecurityContext": {"runAsUser": 1000},
    "containerSecurityContext": {"runAsGroup": 1000},
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        {
            **{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
            "labelSelector": {"matchLabels": {"a": "b"}},
        },
    ],
    "priorityClassName": "system-cluster-critical",
    "terminationGracePeriodSeconds": 45,
    "extraArgs": ["--http-port=8081"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "metrics": {
        "authentication": "token",
        "service": {"labels": {"scraped": "yes"}, "annotations": {"prometheus.io/port": "9"}},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "interval": "20s",
            "scrapeTimeout": "5s",
            "honorLabels": False,
            "endpoint": {"authorization": {"type": "Bearer"}},
        },
    },
    "crds": {"annotations": {"argocd.argoproj.io/sync-options": "ServerSideApply=true"}},
    "admission": {"validationActions": ["Warn", "Audit"]},
    "rbac": {"extraRules": [ROLLOUTS]},
    "audits": {"sparkOperators": True, "image": {"registry": "other.example", "tag": "9"}},
    "networkPolicy": {"enabled": True, "scrapeNamespaceLabels": {"team": "monitoring"}},
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "extra-{{ .Release.Name }}"},
        },
        "apiVersion: v1\nkind: Secret\nmetadata: {name: '{{ .Release.Name }}-text'}\n",
    ],
}
WITHOUT: Final[Mapping[str, Any]] = {
    "crds": {"enabled": False},
    "admission": {"enabled": False},
    "userRoles": {"aggregate": False},
    "rbac": {"nodeClocks": False},
    "audits": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "metrics": {
        "service": {"enabled": False},
        "podMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "interval": "10s",
            "scrapeTimeout": "5s",
            "honorLabels": True,
            "endpoint": {"relabelings": []},
        },
    },
    "serviceAccount": {"create": False, "name": "given"},
    "image": {"registry": "", "digest": f"sha256:{'a' * 64}"},
}
NOT_OF_CLUSTER: Final[Mapping[str, Any]] = {"clusterResources": False}
NAMESPACES: Final[Mapping[str, Any]] = {
    "watchNamespaces": ["shop", "billing"],
    "networkPolicy": {"auditJobs": True},
    "rbac": {"extraRules": [{"apiGroups": ["x"], "resources": ["ys"], "verbs": ["get"]}]},
}
NO_CLUSTER_RIGHTS: Final[Mapping[str, Any]] = {"watchNamespaces": ["shop"], **NOT_OF_CLUSTER}
NO_RIGHTS: Final[Mapping[str, Any]] = {"rbac": {"create": False}, "userRoles": {"create": False}}
NAMED: Final[Mapping[str, Any]] = {"nameOverride": "streams"}
# Releases and overrides, and the name that their objects have.
RELEASES: Final[tuple[tuple[str, Mapping[str, Any], str], ...]] = (
    ("queue", {}, "queue-pelops-operator"),
    ("queue", NAMED, "queue-streams"),
    ("pelops-operator-prod", {}, "pelops-operator-prod"),
    ("queue", {"nameOverride": "pelops-operator-x"}, "queue-pelops-operator-x"),
    ("queue", {"fullnameOverride": "pelops-operator-a"}, "pelops-operator-a"),
    ("prod", {"serviceAccount": {"name": "pelops-operator"}}, "prod-pelops-operator"),
)
NOT_KEPT: Final[Mapping[str, Any]] = {"crds": {"keep": False}}
MIRROR: Final[Mapping[str, Any]] = {
    "image": {"registry": "mirror.example"},
    "audits": {"image": {"repository": "own-pipeline", "digest": f"sha256:{'b' * 64}"}},
}
MONITORED: Final[Mapping[str, Any]] = {
    "rules": {
        **{"enabled": True, "namespace": "monitoring", "labels": {"release": "prometheus"}},
        "disabled": ["Quiet"],
    },
    "dashboards": {
        **{"enabled": True, "namespace": "grafana", "label": "dashboard", "labelValue": "yes"},
        **{"labels": {"team": "platform"}, "annotations": {"grafana_folder": "Redis"}},
    },
    "metrics": {"workerPodMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
}
ALL: Final = (
    *(POD, WITHOUT, NAMESPACES, NO_CLUSTER_RIGHTS, NO_RIGHTS, NAMED, NOT_KEPT, MIRROR),
    MONITORED,
)


@pytest.fixture(scope="module")
def pod(render: Renderer) -> Rendered:
    return render(POD)


@pytest.fixture(scope="module")
def without(render: Renderer) -> Rendered:
    return render(WITHOUT)


def test_names_labels_and_annotations_are_of_all_objects(pod: Rendered) -> None:
    extra = {"extra-pelops-operator", "pelops-operator-text"}
    for one in pod:
        if one["metadata"]["name"] not in extra:
            assert one["metadata"]["labels"]["team"] == "platform", one
            assert one["metadata"]["annotations"]["owner"] == "platform@example.com", one
    assert pod.one("Deployment")["metadata"]["name"] == "streams"
    assert pod.names("Role") == {"streams-members", "streams-node-clocks"}
    assert "pelops-operator" not in {one["metadata"]["name"] for one in pod}


@pytest.mark.parametrize(("release", "values", "name"), RELEASES)
def test_a_release_has_its_name_in_that_of_its_objects(
    render: Renderer, release: str, values: Mapping[str, Any], name: str
) -> None:
    rendered = render(values, release)
    assert rendered.one("Deployment")["metadata"]["name"] == name
    binding = rendered.one("ClusterRoleBinding")
    assert binding["roleRef"]["name"] == name
    assert name in rendered.names("ClusterRole")
    account = values.get("serviceAccount", {}).get("name", name)
    assert rendered.names("ServiceAccount") == {account}
    assert rendered.pod["serviceAccountName"] == account
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for one in rendered.of(kind):
            assert [subject["name"] for subject in one["subjects"]] == [account], one
    selector = rendered.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert selector["app.kubernetes.io/instance"] == release


def test_values_of_the_pod_are_in_the_pod(pod: Rendered) -> None:
    deployment, spec, container = pod.one("Deployment")["spec"], pod.pod, pod.container
    assert deployment["replicas"] == 3
    metadata = deployment["template"]["metadata"]
    assert (metadata["labels"]["cost"], metadata["labels"]["team"]) == ("redis", "platform")
    assert metadata["annotations"]["scrape"] == "no"
    assert container["image"] == "registry.example:5000/mirror/pelops-operator:1.2.3"
    assert container["imagePullPolicy"] == "Always"
    assert container["args"] == ["--http-port=8081"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert container["securityContext"]["runAsGroup"] == 1000
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["runAsNonRoot"] is True  # merged with the defaults
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["serviceAccountName"] == "redis-groups"
    unchanged = ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    for name in (*unchanged, "terminationGracePeriodSeconds"):
        assert spec[name] == POD[name], name
    zone, rack = spec["topologySpreadConstraints"]
    assert zone["labelSelector"]["matchLabels"] == deployment["selector"]["matchLabels"]
    assert rack["labelSelector"]["matchLabels"] == {"a": "b"}
    assert {"name": "ca", "configMap": {"name": "ca"}} in spec["volumes"]
    assert {"name": "ca", "mountPath": "/etc/ca"} in container["volumeMounts"]
    assert "tmp" in {one["name"] for one in spec["volumes"]}


def test_values_of_the_operator_are_variables(pod: Rendered) -> None:
    assert pod.environment == {
        "PELOPS_LOG_LEVEL": "DEBUG",
        "PELOPS_LOG_FORMAT": "console",
        "PELOPS_OBSERVE_INTERVAL": "0.5",
        "PELOPS_STATUS_INTERVAL": "1",
        "PELOPS_RESYNC_INTERVAL": "2",
        "PELOPS_CLOCK_SKEW": "0",
        "PELOPS_ALLOWED_NETWORKS": "10.0.0.0/8,routable",
        "PELOPS_ALLOWED_HOSTS": "*.cache.example.com",
        "PELOPS_METRICS_AUTHENTICATION": "token",
        "PELOPS_AUDIT_IMAGE": "other.example/pelops-pipeline:9",
        "HTTPS_PROXY": "http://proxy:3128",
    }


def test_another_registry_is_also_that_of_audits(render: Renderer) -> None:
    rendered = render(MIRROR)
    assert rendered.container["image"] == "mirror.example/pelops-operator:0.1.0"
    audits = f"mirror.example/own-pipeline@sha256:{'b' * 64}"
    assert rendered.environment == {"PELOPS_AUDIT_IMAGE": audits}


def test_the_default_audit_image_is_that_of_the_operator(render: Renderer) -> None:
    assert "PELOPS_AUDIT_IMAGE" not in render().environment
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    default = build_parser({}).get_default("audit_image")
    assert default == f"registry.pelops.dev/pelops-pipeline:{version}"


def test_rights_can_be_added(pod: Rendered) -> None:
    rules = pod.one("ClusterRole", "streams")["rules"]
    assert rules[-1]["resources"] == ["rollouts/scale"]
    spark = {group for rule in rules for group in rule["apiGroups"] if "spark" in group}
    assert spark == {"sparkoperator.k8s.io", "spark.apache.org"}
    assert pod.one("ServiceAccount")["metadata"]["annotations"]["cloud/role"] == "pelops"
    names = {one["subjects"][0]["name"] for one in pod.of("ClusterRoleBinding")}
    assert names == {"redis-groups"}
    assert "pelops-metrics-reader" in pod.names("ClusterRole")


def test_objects_beside_the_pod_have_their_values(pod: Rendered) -> None:
    assert pod.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    service = pod.one("Service")["metadata"]
    assert service["labels"]["scraped"] == "yes"
    assert service["annotations"]["prometheus.io/port"] == "9"
    monitor = pod.one("ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [
        {
            **{"port": "http", "path": "/metrics", "interval": "20s", "scrapeTimeout": "5s"},
            **{"honorLabels": False, "authorization": {"type": "Bearer"}},
        }
    ]
    (ingress,) = pod.one("NetworkPolicy")["spec"]["ingress"]
    (source,) = ingress["from"]
    assert source["namespaceSelector"]["matchLabels"]["team"] == "monitoring"
    for crd in pod.of("CustomResourceDefinition"):
        annotations = crd["metadata"]["annotations"]
        assert annotations["argocd.argoproj.io/sync-options"] == "ServerSideApply=true"
        assert annotations["helm.sh/resource-policy"] == "keep"
    for binding in pod.of("ValidatingAdmissionPolicyBinding"):
        assert binding["spec"]["validationActions"] == ["Warn", "Audit"]
    assert "extra-pelops-operator" in pod.names("ConfigMap")
    assert pod.names("Secret") == {"pelops-operator-text"}


def test_parts_can_be_left_out(without: Rendered) -> None:
    kinds = {one["kind"] for one in without}
    assert not kinds & {
        *("CustomResourceDefinition", "ServiceAccount", "PodDisruptionBudget", "Service"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ServiceMonitor"),
    }
    assert without.names("Role") == {"pelops-operator-members"}
    assert without.pod["serviceAccountName"] == "given"
    assert without.container["image"] == f"pelops-operator@sha256:{'a' * 64}"
    for one in without.of("ClusterRole"):
        assert not [label for label in one["metadata"]["labels"] if "aggregate" in label]
        resources = {name for rule in one["rules"] for name in rule["resources"]}
        assert not resources & {"streamaudits", "streamaudits/status", "cronjobs"}
        assert resources & {"streamconsumergroups", "streamredrives"}
    monitor = without.one("PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"][0]["honorLabels"] is True
    assert monitor["spec"]["podMetricsEndpoints"][0]["interval"] == "10s"
    labels = without.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_service_monitor_selects_the_service_of_the_metrics(render: Renderer) -> None:
    rendered = render({"metrics": {"serviceMonitor": {"enabled": True}}})
    selected = rendered.one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selected.items() <= rendered.one("Service")["metadata"]["labels"].items()


def test_without_keep_the_crds_go_with_the_release(render: Renderer) -> None:
    for crd in render(NOT_KEPT).of("CustomResourceDefinition"):
        assert "helm.sh/resource-policy" not in crd["metadata"].get("annotations", {})


def test_without_audits_only_their_parts_are_left_out(render: Renderer) -> None:
    rendered = render({"audits": {"enabled": False}})
    kept = {"streamconsumergroups.pelops.dev", "streamredrives.pelops.dev"}
    assert rendered.names("CustomResourceDefinition") == kept
    assert "pelops-stream-audits" not in rendered.names("ValidatingAdmissionPolicy")
    assert "pelops-stream-consumer-groups" in rendered.names("ValidatingAdmissionPolicy")


def test_watched_namespaces_have_roles_and_the_operator_no_cluster_role(render: Renderer) -> None:
    rendered = render(NAMESPACES)
    assert rendered.environment["PELOPS_NAMESPACE"] == "shop billing"
    assert rendered.of("ClusterRoleBinding") == []
    assert rendered.names("ClusterRole") == {"pelops-edit", "pelops-redrive", "pelops-view"}
    roles = [one for one in rendered.of("Role") if one["metadata"]["name"] == "pelops-operator"]
    assert [one["metadata"]["namespace"] for one in roles] == ["shop", "billing"]
    for role in roles:
        assert "nodes" not in {name for rule in role["rules"] for name in rule["resources"]}
        assert role["rules"][-1]["resources"] == ["ys"]
    policies = rendered.of("NetworkPolicy")
    assert [one["metadata"]["namespace"] for one in policies] == ["shop", "billing"]
    assert rendered.names("NetworkPolicy") == {"pelops-audit-jobs"}


def test_without_cluster_objects_all_is_in_the_namespaces_of_the_release(render: Renderer) -> None:
    rendered = render(NO_CLUSTER_RIGHTS)
    assert {one["metadata"].get("namespace") for one in rendered} == {"pelops-system", "shop"}
    of_operator = {"pelops-operator", "pelops-operator-members"}
    of_users = {"pelops-edit", "pelops-redrive", "pelops-view"}
    assert rendered.names("Role") == of_operator | of_users


def test_without_rbac_there_are_no_rights_of_the_operator(render: Renderer) -> None:
    rendered = render(NO_RIGHTS)
    kinds = {one["kind"] for one in rendered}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def test_rules_and_dashboards_have_the_labels_that_are_looked_for(
    render: Renderer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chart = _chart_with_monitoring(tmp_path_factory)
    rendered = Renderer(helm=render.helm, scratch=chart.parent, chart=chart)(MONITORED)
    rule = rendered.one("PrometheusRule")
    assert rule["metadata"]["namespace"] == "monitoring"
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    (group,) = rule["spec"]["groups"]
    assert [one.get("alert") or one["record"] for one in group["rules"]] == ["Loud", "a:b"]
    assert group["rules"][0]["annotations"] == {"summary": "{{ $labels.name }} is loud"}
    board = rendered.one("ConfigMap")
    assert board["metadata"]["name"] == "pelops-dashboard-fleet"
    assert board["metadata"]["namespace"] == "grafana"
    labels = board["metadata"]["labels"]
    assert (labels["dashboard"], labels["team"]) == ("yes", "platform")
    assert board["metadata"]["annotations"] == {"grafana_folder": "Redis"}
    assert board["data"] == {"pelops-fleet.json": '{"title": "{{ fleet }}"}\n'}
    assert rendered.one("PodMonitor")["metadata"]["labels"]["release"] == "prometheus"


def _chart_with_monitoring(factory: pytest.TempPathFactory) -> Path:
    chart = factory.mktemp("chart") / "pelops-operator"
    shutil.copytree(CHART, chart)
    files = chart / "files" / "monitoring"
    shutil.rmtree(files, ignore_errors=True)
    (files / "dashboards").mkdir(parents=True)
    (files / "dashboards" / "fleet.json").write_text('{"title": "{{ fleet }}"}\n')
    loud = {"annotations": {"summary": "{{ $labels.name }} is loud"}}
    rules = [
        {"alert": "Loud", "expr": "up == 0", **loud},
        {"alert": "Quiet", "expr": "up == 1"},
        {"record": "a:b", "expr": "up"},
    ]
    group = {"groups": [{"name": "pelops", "rules": rules}]}
    for name, kind, spec in (
        ("rules", "PrometheusRule", group),
        ("worker_pod_monitor", "PodMonitor", {"selector": {}, "podMetricsEndpoints": []}),
    ):
        manifest: Object = {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "spec": spec}
        (files / f"{name}.yaml").write_text(
            yaml.safe_dump({**manifest, "metadata": {"name": "pelops"}})
        )
    return chart


WRONG: Final[tuple[tuple[Mapping[str, Any], str], ...]] = (
    ({"replicas": 3}, "'replicas' not allowed"),
    ({"image": {"tags": "x"}}, "'tags' not allowed"),
    ({"replicaCount": -1}, "/replicaCount"),
    ({"replicaCount": "two"}, "/replicaCount"),
    ({"image": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
    ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ({"watchNamespaces": "shop"}, "/watchNamespaces"),
    ({"watchNamespaces": ["Shop"]}, "/watchNamespaces/0"),
    ({"config": {"clockSkewSeconds": -1}}, "/config/clockSkewSeconds"),
    ({"admission": {"validationActions": []}}, "/admission/validationActions"),
    ({"metrics": {"serviceMonitor": {"interval": "30"}}}, "/metrics/serviceMonitor/interval"),
    ({"rbac": {"extraRules": [{"resources": ["x"]}]}}, "apiGroups"),
    ({"config": {"allowedNetworks": ["redis.example"]}}, "/config/allowedNetworks/0"),
    ({"config": {"allowedNetworks": ["10.0.0.0/8,172.16.0.0/12"]}}, "/config/allowedNetworks/0"),
    ({"config": {"allowedHosts": ["https://redis.example"]}}, "/config/allowedHosts/0"),
)
CONTRADICTIONS: Final[tuple[tuple[Mapping[str, Any], str], ...]] = (
    ({"clusterResources": False}, "needs watchNamespaces"),
    (
        {**NO_CLUSTER_RIGHTS, "metrics": {"authentication": "token"}},
        "needs clusterResources: true",
    ),
    ({"audits": {"enabled": False, "sparkOperators": True}}, "needs audits.enabled"),
    (
        {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
        "each replica is scraped twice",
    ),
    (
        {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}},
        "needs metrics.service.enabled",
    ),
    ({"networkPolicy": {"auditJobs": True}}, "needs watchNamespaces"),
    (
        {"config": {"logLevel": "DEBUG"}, "extraEnv": [{"name": "PELOPS_LOG_LEVEL", "value": "x"}]},
        "extraEnv: the chart sets PELOPS_LOG_LEVEL already",
    ),
)


@pytest.mark.parametrize(("values", "reported"), [*WRONG, *CONTRADICTIONS], ids=str)
def test_a_wrong_value_is_refused_with_its_name(
    render: Renderer, values: Mapping[str, Any], reported: str
) -> None:
    with refused() as messages:
        render(values)
    assert reported in messages[0]


def test_a_right_value_is_not_refused(render: Renderer) -> None:
    with pytest.raises(AssertionError, match="Helm accepted it"), refused():
        render()
    assert issubclass(HelmFailed, AssertionError)


def test_the_schema_has_each_value_and_no_other() -> None:
    assert _leaves(SCHEMA) == _paths(yaml.safe_load(VALUES), _leaves(SCHEMA))
    assert [path for path, one in _walk(SCHEMA) if not _is_strict(one)] == []


def test_each_value_has_a_description() -> None:
    assert {one.path for one in read_values(VALUES)} == _leaves(SCHEMA)


def test_each_value_has_a_test() -> None:
    tested = {path for values in ALL for path in _paths(values, _leaves(SCHEMA))}
    assert sorted(_leaves(SCHEMA) - tested) == []


def _leaves(schema: Object) -> set[str]:
    """The values that users set as one: maps of Kubernetes among them."""
    return {path for path, one in _walk(schema) if "properties" not in one or path in FREE}


def _walk(schema: Object, prefix: str = "") -> Iterator[tuple[str, Object]]:
    for name, one in schema["properties"].items():
        path = f"{prefix}{name}"
        if path == "global" or prefix.rstrip(".") in FREE:
            continue  # Helm's own; or part of a value
        yield path, one
        if "properties" in one:
            yield from _walk(one, f"{path}.")


def _paths(values: Mapping[str, Any], leaves: set[str], prefix: str = "") -> set[str]:
    found = set()
    for name, value in values.items():
        path = f"{prefix}{name}"
        if path in leaves or not isinstance(value, dict):
            found.add(path)
        else:
            found |= _paths(value, leaves, f"{path}.")
    return found


def _is_strict(schema: Object) -> bool:
    return "properties" not in schema or schema.get("additionalProperties") is False
