"""The table of versions that the tests of this repository run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from local_cluster.redis_servers.versions import WISHED
from tests.spark.versions import VERSIONS as SPARK_VERSIONS
from tools.reference.tables import render_table

_ROOT: Final = Path(__file__).parents[2]


def render_versions() -> Iterator[str]:
    """Yield the table."""
    servers = [wished.wording for wished in WISHED.values() if wished.program == "redis"]
    valkeys = [wished.wording for wished in WISHED.values() if wished.program == "valkey"]
    return render_table(
        ("part", "versions that tests run", "tests"),
        (
            ("Kubernetes", read_kubernetes_version(), "`tests/control_plane`, `tests/e2e`"),
            ("Redis", ", ".join(sorted(servers)), "`tests/integration`, on every version"),
            ("Valkey", ", ".join(valkeys), "`tests/integration`, on every version"),
            ("Python", ", ".join(read_python_versions()), "`make check` and `make test`"),
            ("PySpark", ", ".join(SPARK_VERSIONS.values()), "`tests/spark/test_versions.py`"),
        ),
    )


def read_kubernetes_version() -> str:
    """Return the version of the API server that the tests build."""
    text = (_ROOT / "local_cluster" / "control_plane" / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"k8s\.io/kubernetes v([0-9.]+)", text)
    assert found is not None
    return found[1]


def read_python_versions() -> list[str]:
    """Return the versions of Python that a change is checked on."""
    text = (_ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    jobs: dict[str, Any] = yaml.safe_load(text)["jobs"]
    matrices = (job["strategy"]["matrix"] for job in jobs.values() if "strategy" in job)
    return [str(version) for matrix in matrices for version in matrix["python"]]
