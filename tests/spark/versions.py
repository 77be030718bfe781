"""The versions of PySpark that the data source works with, each in an environment of its own.

`python -m tests.spark.versions` makes the environments of the selected versions and prints their
interpreters. PELOPS_TEST_SPARK_VERSIONS selects, as in "4.0 4.1 4.2 4.3"; default the oldest and
the newest. They hold only what the source needs, and the client of Spark Connect.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.cached_parts import PartMissing, provide_part, run_maker

VERSIONS: Final = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.0", "4.3": "4.3.0"}
SELECTION: Final = "PELOPS_TEST_SPARK_VERSIONS"
_BESIDE: Final = ("pandas<3", "pyarrow==26.0.1", "redis[hiredis]==8.1.0", "setuptools<81")


def selected_versions() -> tuple[str, ...]:
    """Which of the versions are wanted here. Raises PartMissing for an unknown one."""
    oldest, *_, newest = VERSIONS
    selected = tuple(os.environ.get(SELECTION, f"{oldest} {newest}").split())
    for version in selected:
        if version not in VERSIONS:
            raise PartMissing(f"{SELECTION} has '{version}'; there are {', '.join(VERSIONS)}")
    return selected


def provide_python(version: str) -> Path:
    """The interpreter of an environment with this PySpark. Raises PartMissing."""
    packages = (f"pyspark[connect]=={VERSIONS[version]}", *_BESIDE)

    def make(target: Path) -> None:
        run_maker([sys.executable, "-m", "venv", str(target)], cwd=target.parent)
        install = ["install", "--quiet", "--disable-pip-version-check", *packages]
        run_maker([str(target / "bin" / "python"), "-m", "pip", *install], cwd=target.parent)

    ingredients = [part.encode() for part in (sys.version, sys.base_prefix, *packages)]
    return provide_part("spark-versions", ingredients, make) / "bin" / "python"


if __name__ == "__main__":
    try:
        for selected in selected_versions():
            print(provide_python(selected))
    except PartMissing as error:
        sys.exit(str(error))
