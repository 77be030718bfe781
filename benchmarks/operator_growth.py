"""How the cost of the operator grows: runs of `operator_scale --json`, side by side.

    python -m benchmarks.operator_growth --before OLD.json... --after NEW.json... [--plot FILE]

Each file ends with the line that one run printed. The table is Markdown: a row for each target, a
column for each number of resources, and the value of the runs before in parentheses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.plot import Line, Panel, draw

# What the picture shows, and its unit.
DRAWN: Final = {
    "idle_cpu_share": "CPU of the worst replica while idle, in cores",
    "rss_mib": "resident memory of the worst replica, in MiB",
    "converge_s": "seconds until all resources have converged",
    "writes_per_resource": "writes to the API server per resource, while converging",
}

Runs = Mapping[int, Mapping[str, Any]]  # reports by the number of resources


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and draw the picture when asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operator_growth", description=__doc__
    )
    add = parser.add_argument
    add(
        "--before", type=Path, nargs="*", default=[], metavar="FILE", help="runs of an older commit"
    )
    add("--after", type=Path, nargs="+", required=True, metavar="FILE", help="runs of this commit")
    add("--plot", type=Path, metavar="FILE", help="draw the growth into this SVG file")
    given = parser.parse_args(arguments)
    before, after = read_runs(given.before), read_runs(given.after)
    print("\n".join(render_growth(before, after)))
    if given.plot is not None:
        draw(list(_panels(before, after)), given.plot, title="Growth", across="resources")


def read_runs(files: Sequence[Path]) -> Runs:
    """The reports that these files end with, by their size."""
    reports = [json.loads(file.read_text("utf-8").splitlines()[-1]) for file in files]
    return {one["figures"]["resources"]: one for one in reports}


def render_growth(before: Runs, after: Runs) -> Iterator[str]:
    """The lines of the table."""
    sizes = sorted({*before, *after})
    yield f"| target | wanted | {' | '.join(f'{size:,}' for size in sizes)} |"
    yield f"|---|---|{'---|' * len(sizes)}"
    for target in next(iter(after.values()))["targets"]:
        name = target["name"]
        cells = [_cell(after, size, name) for size in sizes]
        if before:
            former = (_cell(before, size, name) for size in sizes)
            cells = [f"{cell} ({old})" for cell, old in zip(cells, former, strict=True)]
        yield f"| `{name}` | ≤ {target['target']:g} | {' | '.join(cells)} |"


def _cell(runs: Runs, size: int, name: str) -> str:
    if size not in runs:
        return "not run"
    value = _value(runs[size], name)
    return "-" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _value(report: Mapping[str, Any], name: str) -> float | None:
    found = (one["value"] for one in report["targets"] if one["name"] == name)
    value = next(found, None)
    return None if value is None else float(value)


def _panels(before: Runs, after: Runs) -> Iterator[Panel]:
    for name, title in DRAWN.items():
        lines = [
            Line(label=label, points=list(_points(runs, name)))
            for label, runs in (("after", after), ("before", before))
            if runs
        ]
        yield Panel(title=title, lines=lines)


def _points(runs: Runs, name: str) -> Iterator[tuple[float, float]]:
    for size, report in sorted(runs.items()):
        value = _value(report, name)
        if value is not None:
            yield float(size), value


if __name__ == "__main__":
    main()
