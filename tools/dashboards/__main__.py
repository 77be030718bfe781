"""Write Grafana's dashboards into manifests/monitoring/dashboards, or compare them: `--check`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.dashboards import DASHBOARDS
from tools.dashboards.grafana import render_dashboard, render_kustomization

DIRECTORY: Final = Path(__file__).parents[2] / "manifests/monitoring/dashboards"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare; return 1 if a file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    given = parser.parse_args(argv)
    files = render_files()
    if not given.check:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (DIRECTORY / name).write_text(text)
        return 0
    faults = find_differences(DIRECTORY, files)
    print("\n".join(faults) if faults else f"{len(files)} files of dashboards: no difference")
    return 1 if faults else 0


def render_files() -> Mapping[str, str]:
    """Return the text of each file by its name."""
    dashboards = {f"{one.name}.json": render_dashboard(one) for one in DASHBOARDS}
    return {**dashboards, "kustomization.yaml": render_kustomization(DASHBOARDS)}


def find_differences(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return what is not as generated."""
    present = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    differs = [
        f"{name}: differs from tools/dashboards: run `make dashboards`"
        for name, text in files.items()
        if name not in present or (directory / name).read_text() != text
    ]
    return [*differs, *(f"{name}: is not generated: remove it" for name in present - files.keys())]


if __name__ == "__main__":
    sys.exit(main())
