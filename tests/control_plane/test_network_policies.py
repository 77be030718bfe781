"""The NetworkPolicies are valid, select their pods, and keep metadata addresses out.

No network plugin runs here: what the policies mean is computed from them.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from pelops.kube.audit_cron_job import build_cron_job
from pelops.kube.workload_observation import parse_label_selector
from tests.audit_facts import ACCESS, a_plan, an_audit
from tests.operators import ROOT

OPERATOR = ROOT / "manifests" / "components" / "network-policies" / "operator.yaml"
AUDITS = ROOT / "manifests" / "tenant" / "audit_jobs.yaml"
DEPLOYMENT = ROOT / "manifests" / "base" / "deployment.yaml"
POLICIES = (OPERATOR, AUDITS)


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def _may_reach(policy: dict[str, Any], address: str, protocol: str, port: int) -> bool:
    return any(
        _has_port(rule, protocol, port) and _has_address(rule, address)
        for rule in policy["spec"]["egress"]
    )


def _has_port(rule: dict[str, Any], protocol: str, port: int) -> bool:
    return any(
        one["protocol"] == protocol and one.get("port", port) == port for one in rule["ports"]
    )


def _has_address(rule: dict[str, Any], address: str) -> bool:
    blocks = [one["ipBlock"] for one in rule.get("to", []) if "ipBlock" in one]
    found = ip_address(address)
    return not rule.get("to") or any(
        found in ip_network(block["cidr"])
        and not any(found in ip_network(one) for one in block["except"])
        for block in blocks
    )


@pytest.mark.parametrize("path", POLICIES, ids=["operator", "audits"])
def test_the_policies_are_valid(plane: ControlPlane, path: Path) -> None:
    answer = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(path))
    assert "created" in answer.stdout


@pytest.mark.parametrize("path", POLICIES, ids=["operator", "audits"])
def test_metadata_of_a_cloud_cannot_be_reached(path: Path) -> None:
    policy = _load(path)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    for address in ("169.254.169.254", "169.254.170.2", "127.0.0.1", "fe80::1", "fd00:ec2::254"):
        assert not _may_reach(policy, address, "TCP", 80)
        assert not _may_reach(policy, address, "TCP", 6379)
    for address in ("10.0.0.7", "203.0.113.9", "2001:db8::7"):
        assert _may_reach(policy, address, "TCP", 6379)
        assert not _may_reach(policy, address, "UDP", 6379)
        assert _may_reach(policy, address, "UDP", 53)


def test_the_policies_select_the_pods_that_they_are_for() -> None:
    operator = _load(DEPLOYMENT)["spec"]["template"]["metadata"]["labels"]
    audit = an_audit()
    job = build_cron_job(audit, a_plan(audit), ACCESS, image="pelops-pipeline")
    template = job["spec"]["jobTemplate"]["spec"]["template"]
    for path, labels in ((OPERATOR, operator), (AUDITS, template["metadata"]["labels"])):
        selector = parse_label_selector(_load(path)["spec"]["podSelector"])
        assert selector.matches(labels)
        assert not selector.matches({"app": "worker"})


def test_only_namespaces_that_scrape_reach_the_operator() -> None:
    (rule,) = _load(OPERATOR)["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
    (port,) = rule["ports"]
    container = _load(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    assert port["port"] in {one["name"] for one in container["ports"]}
