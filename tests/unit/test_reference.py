"""The generated parts of docs/reference: they are up to date, and they have everything."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Final

import pytest
from prometheus_client import REGISTRY

from pelops.api import KINDS
from pelops.api.schema.base import KindDefinition
from pelops.controller.runtime.settings import build_parser, parse_settings
from pelops.domain.naming import derive_keys
from pelops.policy.status.reasons import ALARMS
from pelops.scripts.declaration import OPERATOR_SCRIPTS, WORKER_SCRIPTS, list_scripts
from pelops.worker.metrics import build_metrics
from tests.docs_pages import list_blocks, list_pages
from tools.reference.__main__ import ROOT
from tools.reference.environment import list_worker_variables
from tools.reference.fields import NONE, REQUIRED, list_spec_fields
from tools.reference.metrics import SECTIONS, list_metrics
from tools.reference.scripts import render_scripts

# What begins as a metric does: the name of a file, and what a page calls a metric of Kubernetes.
NO_METRICS: Final = {
    ("autoscalers.md", "pelops_lag_and_pending_entries"),
    ("supply-chain.md", "pelops_operator"),
    ("supply-chain.md", "pelops_core"),
    ("supply-chain.md", "pelops_worker"),
}
RUNBOOK: Final = ROOT / "docs" / "runbook"
SYMPTOMS: Final = sorted(
    {page.name for page in RUNBOOK.glob("*.md")} - {"index.md", "alerts.md", "doctor.md"}
)
PART: Final = re.compile(r"_(bucket|sum|count)$")


@pytest.mark.parametrize("package", [OPERATOR_SCRIPTS, WORKER_SCRIPTS])
def test_each_script_has_a_row(package: str) -> None:
    rows = [*render_scripts(package)][2:]
    assert [row.split("`")[1] for row in rows] == [*list_scripts(package)]


def test_each_metric_is_in_one_table() -> None:
    build_metrics("orders", "billing")  # those of workers
    listed = sorted(one.name for section in SECTIONS for one in list_metrics(section))
    exported = sorted(
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in REGISTRY.collect()
        if family.name.startswith("pelops_")
    )
    assert listed == exported


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_each_field_has_a_description_and_a_default(kind: KindDefinition) -> None:
    for path, default, text in list_spec_fields(kind):
        assert len(text) > 5, path
        assert default in {REQUIRED, NONE} or len(default) > 0, path
        assert "Default:" not in text, path


def test_each_operator_flag_is_read_from_its_documented_variable() -> None:
    given = {
        "PELOPS_HTTP_PORT": "8181",
        "PELOPS_NAMESPACE": "shop",
        "PELOPS_MEMBER_NAMESPACE": "pelops",
        "PELOPS_IDENTITY": "me",
        "PELOPS_HTTP_HOST": "0.0.0.0",
        "PELOPS_METRICS_AUTHENTICATION": "token",
        "PELOPS_INSPECTION": "token",
        "PELOPS_INSPECTION_SOCKET": "/run/pelops.sock",
        "PELOPS_LOG_FORMAT": "console",
        "PELOPS_LOG_LEVEL": "DEBUG",
        "PELOPS_OBSERVE_INTERVAL": "7",
        "PELOPS_STATUS_INTERVAL": "8",
        "PELOPS_RESYNC_INTERVAL": "9",
        "PELOPS_CLOCK_SKEW": "3",
        "PELOPS_AUDIT_IMAGE": "image",
        "PELOPS_ALLOWED_NETWORKS": "10.0.0.0/8",
        "PELOPS_ALLOWED_HOSTS": "*.cache.example.com",
        "PELOPS_KUBECONFIG": "file",
    }
    flags = [
        action for action in build_parser({})._actions if action.dest not in {"help", "version"}
    ]
    assert {f"PELOPS_{action.dest.upper()}" for action in flags} == given.keys()
    usual = parse_settings([], {})
    for name, value in given.items():
        assert parse_settings([], {name: value}) != usual, name


def test_worker_variables_include_those_of_every_optional_feature() -> None:
    found = list_worker_variables()
    assert found["PELOPS_STREAM"] == "always"
    assert "PELOPS_REDIS_KEY_FILE" in found


def test_each_metric_that_a_page_names_exists() -> None:
    known = {one.name for section in SECTIONS for one in list_metrics(section)}
    named = {
        (path.name, name)
        for path in list_pages()
        if path.name != "CHANGELOG.md"
        for name in re.findall(r"(?<![:\w])pelops_[a-z_]+[a-z]\b(?!:)", path.read_text("utf-8"))
    }
    unknown = {(page, name) for page, name in named if PART.sub("", name) not in known}
    assert unknown == NO_METRICS


def test_each_runbook_page_is_in_the_index_with_its_three_parts() -> None:
    index = (RUNBOOK / "index.md").read_text("utf-8")
    for page in sorted(RUNBOOK.glob("*.md")):
        if page.name != "index.md":
            assert f"]({page.name})" in index, page.name
        if page.name in SYMPTOMS:
            headings = re.findall(r"^## (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
            assert headings == ["Look", "Understand", "Act"], page.name


def test_commands_and_quotas_that_name_several_kinds_name_all_of_them() -> None:
    short, plural = {kind.short_names[0] for kind in KINDS}, {kind.plural for kind in KINDS}
    for page in list_pages():
        text = page.read_text("utf-8")
        for kinds in re.findall(r"\bscg((?:,[a-z]+)+) ", text):
            assert {"scg", *kinds[1:].split(",")} == short, page.name
        for crds in re.findall(r"kubectl delete crd (.*pelops\.dev.*)", text):
            assert set(crds.split()) == {kind.definition_name for kind in KINDS}, page.name
    for block in list_blocks("yaml"):
        if "count/" in block.code:
            assert set(re.findall(r"count/(\w+)\.pelops\.dev", block.code)) == plural, block


def test_the_removal_of_keys_names_each_key_of_pelops() -> None:
    page = (ROOT / "docs" / "guides" / "uninstall.md").read_text("utf-8")
    keys = asdict(derive_keys("orders:events", "order-processing"))
    named = {str(key) for name, key in keys.items() if name != "prefix"}
    of_pelops = {key for key in named if key.startswith(keys["prefix"] + ":")}
    assert [key for key in sorted(of_pelops) if f"'{key}'" not in page] == []


def test_each_alarm_of_a_group_is_in_the_runbook() -> None:
    text = "".join(page.read_text("utf-8") for page in RUNBOOK.glob("*.md"))
    for alarm in ALARMS:
        if alarm != "DeadLetterStreamInUse":  # nothing is lost by it
            assert alarm in text
