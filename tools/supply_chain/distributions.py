"""The Python distributions of a release. All have one version and are pinned to one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One of them: its project, and which files of the repository go into its source archive."""

    name: str
    project: str  # the directory with its pyproject.toml
    packed: tuple[str, ...]
    has_revision: bool = False  # whether the package `pelops` itself, with its REVISION, is in it


OPERATOR: Final = Distribution(
    name="pelops-operator",
    project=".",
    packed=("operator", "pyproject.toml", "README.md", "LICENSE"),
)
CORE: Final = Distribution(
    name="pelops-core",
    project="packages/pelops-core",
    packed=("operator", "packages/pelops-core"),
    has_revision=True,
)
SPARK_SOURCE: Final = Distribution(
    name="pyspark-redis-streams",
    project="packages/pyspark-redis-streams",
    packed=("operator", "packages/pyspark-redis-streams"),
)
WORKER: Final = Distribution(
    name="pelops-worker", project="packages/pelops-worker", packed=("packages/pelops-worker",)
)
DISTRIBUTIONS: Final = (OPERATOR, CORE, SPARK_SOURCE, WORKER)
# What pelops-operator needs, with an extra or without.
PARTS: Final = (CORE.name, SPARK_SOURCE.name)
