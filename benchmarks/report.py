"""The one form in which every benchmark is asked and answers.

`python -m benchmarks.NAME [--json] [--quick] [--server 8.6|7.0|valkey]`: with `--json` the last
line of standard output is one object, without it a table. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from local_cluster.redis_servers import VERSIONS, RedisServers

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One number that the project promises something about."""

    name: str
    value: float | None  # None: it could not be measured, and then nothing is met
    target: float | None = None  # None: to be measured at all is all that is asked
    better: Better = "lower"

    @property
    def met(self) -> bool:
        """Whether the value is at least as good as the target; a NaN never is."""
        if self.value is None or math.isnan(self.value):
            return False
        if self.target is None:
            return True
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run of a benchmark found."""

    benchmark: str
    server: str  # what ran, such as "redis 8.6.3"
    targets: Sequence[Target]
    # How it came about: numbers and texts, in objects and lists. Keys carry the unit.
    figures: Mapping[str, Any] = field(default_factory=dict)


def build_parser(
    name: str, description: str | None, *, has_server: bool = True
) -> argparse.ArgumentParser:
    """The flags that every benchmark has; one may add its own."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    add = parser.add_argument
    add("--json", action="store_true", help="end with one line of JSON instead of a table")
    add("--quick", action="store_true", help="smaller and faster, for a first impression")
    wanted = "the server to measure on; 8.6 is the newest Redis from 8.4 on (default: %(default)s)"
    if has_server:
        add("--server", choices=VERSIONS, default=VERSIONS[0], help=wanted)
    return parser


def describe_server(servers: RedisServers) -> str:
    """Which server it was, for the report."""
    return f"{servers.flavour} {servers.version}"


def publish(report: Report, *, as_json: bool) -> None:
    """Print the report. Whether targets are met plays no part in the exit code."""
    print(render_json(report) if as_json else render_table(report), flush=True)


def render_json(report: Report) -> str:
    """One line of strict JSON; NaN and infinite numbers become null."""
    content = {
        "benchmark": report.benchmark,
        "server": report.server,
        "targets": [
            {
                "name": target.name,
                "value": target.value,
                "target": target.target,
                "better": target.better,
                "met": target.met,
            }
            for target in report.targets
        ],
        "figures": report.figures,
    }
    return json.dumps(_finite(content), allow_nan=False)


def render_table(report: Report) -> str:
    """The same for people."""
    header = ("target", "value", "wanted", "met")
    rows = [
        (target.name, _number(target.value), _wanted(target), "yes" if target.met else "NO")
        for target in report.targets
    ]
    lines = [f"{report.benchmark} on {report.server}", "", *_align([header, *rows])]
    figures = [(name, _text(value)) for name, value in _flat(report.figures)]
    return "\n".join([*lines, *([""] if figures else []), *_align(figures)])


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _wanted(target: Target) -> str:
    if target.target is None:
        return "-"
    return f"{'<=' if target.better == 'lower' else '>='} {_number(target.target)}"


def _flat(figures: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The innermost figures, each with the path to it."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(one) for one in value)
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
