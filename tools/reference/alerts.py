"""The table of the shipped alerts, from the PrometheusRule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import yaml

from tools.reference.tables import render_table

RULES: Final = Path(__file__).parents[2] / "manifests" / "monitoring" / "rules.yaml"
_HEAD: Final = ("alert", "severity", "for", "means")
_PAGE: Final = "../runbook/alerts.md"


def render_alerts() -> Iterable[str]:
    """Yield the table, each alert with a link to its section of the runbook."""
    return render_table(_HEAD, _rows())


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for group in yaml.safe_load(RULES.read_text())["spec"]["groups"]:
        for rule in group["rules"]:
            if "alert" not in rule:
                continue
            name, summary = rule["alert"], rule["annotations"]["summary"]
            link = f"[{name}]({_PAGE}#{name.lower()})"
            yield link, rule["labels"]["severity"], rule.get("for", "0m"), summary
