"""The rules that kstatus applies to an object of a kind that it does not know.

Written after https://pkg.go.dev/sigs.k8s.io/cli-utils/pkg/kstatus/status (`Compute`), which Flux
uses; `tests/integration/test_kstatus.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compute(thing: Mapping[str, Any]) -> str:
    """Terminating, InProgress, Failed or Current."""
    metadata, status = thing["metadata"], thing.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    seen = status.get("observedGeneration")
    if seen is not None and "generation" in metadata and seen != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] == "Reconciling":
            return "InProgress"
        if condition["status"] == "True" and condition["type"] == "Stalled":
            return "Failed"
    for condition in conditions:
        if condition["type"] == "Ready":
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"
