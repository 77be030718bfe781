"""The shipped alerts and recording rules, and the metrics that they use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests" / "monitoring"
RULES: Final = MANIFESTS / "rules.yaml"
_METRIC: Final = re.compile(r"(?<![\w:])pelops_\w+(?![\w:])")


def read_groups() -> list[dict[str, Any]]:
    """Return the groups of rules."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return groups


def list_rules(kind: str) -> list[dict[str, Any]]:
    """Return the rules of a kind, `alert` or `record`."""
    return [rule for group in read_groups() for rule in group["rules"] if kind in rule]


def list_metrics() -> set[str]:
    """Return the names of the metrics that the rules use; not those of recording rules."""
    expressions = (rule["expr"] for group in read_groups() for rule in group["rules"])
    return {name for expression in expressions for name in _METRIC.findall(expression)}
