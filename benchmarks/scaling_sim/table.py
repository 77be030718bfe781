"""The results as a Markdown table, for people and the documentation; all else is in the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.scaling_sim.contest import AUTOSCALERS, TUNED, Results
from benchmarks.scaling_sim.ours import NAME
from benchmarks.scaling_sim.outcome import Summary

_PAIR: Final = (NAME, TUNED)
_SHORT: Final = {name: f"({name.removeprefix('keda-')})" for name in AUTOSCALERS} | {NAME: ""}
_HEADER: Final = (
    "trace",
    *(f"replica-s {_SHORT[name]}".strip() for name in _PAIR),
    *(f"late {_SHORT[name]}".strip() for name in _PAIR),
    *(f"longest s {_SHORT[name]}".strip() for name in _PAIR),
    *(f"above {_SHORT[name]}".strip() for name in _PAIR),
    *(f"wrong {_SHORT[name]}".strip() for name in AUTOSCALERS),
)


def render(results: Results) -> str:
    """One row for each trace and one for their sums; waiting is that of the worst phase."""
    rows = [(trace, *_cells([of])) for trace, of in results.items()]
    return "\n".join(_align([_HEADER, *rows, ("all", *_cells(list(results.values())))]))


def _cells(results: Sequence[Mapping[str, Summary]]) -> tuple[str, ...]:
    pairs = [[of[name] for of in results] for name in _PAIR]
    return (
        *(f"{sum(one.replica_seconds for one in of):,.0f}" for of in pairs),
        *(_short(sum(one.late for one in of)) for of in pairs),
        *(f"{max(one.longest_s for one in of):.0f}" for of in pairs),
        *(_most(of) for of in pairs),
        *(_count(sum(sum(of[name].wrong.values()) for of in results)) for name in AUTOSCALERS),
    )


def _most(summaries: Sequence[Summary]) -> str:
    """Replicas above those needed; a dash where no plateau says how many are needed."""
    found = [one.above for one in summaries if one.above is not None]
    return f"{max(found):+}" if found else "-"


def _short(value: float) -> str:
    """Thousands, when there are many."""
    return f"{value / 1000:,.0f} k" if value >= 10_000 else f"{value:,.0f}"


def _count(value: int) -> str:
    return f"{value:,}" if value else "-"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
