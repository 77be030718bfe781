"""When the operator acted on the entries of a group, and how long they had waited. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.domain.records.ledger import LedgerKind
from pelops.pipeline.audit.cases import Case
from pelops.pipeline.audit.measures import are_times
from pelops.pipeline.report.model import Spread

_MOST_DELIVERIES: Final = 20
_SHARES: Final = (0.5, 0.9, 0.99, 1.0)
_MOVED: Final = (LedgerKind.REQUEUED, LedgerKind.DEAD_LETTERED, LedgerKind.RELEASED)
_SPREADS: Final = {
    "recovery_ms": "From delivery to recovery",
    "age_when_moved_ms": "From arrival to recovery",
    "pending_idle_ms": "Pending until now",
}


def find_times(case: Case) -> list[int]:
    """First and last time of acts on the group's entries; empty without acts."""
    kinds = (LedgerKind.REQUEUED, LedgerKind.RELEASED, LedgerKind.DEAD_LETTERED)
    times = are_times(_of_kinds(case, kinds)["event_ms"].to_pylist())
    return [min(times), max(times)] if times else []


def _of_kinds(case: Case, kinds: Sequence[LedgerKind]) -> pa.Table:
    acts = case.history.acts
    return acts.filter(pc.is_in(acts["kind"], pa.array([str(kind) for kind in kinds])))


def count_steps(case: Case, kinds: Sequence[LedgerKind], step_ms: int) -> dict[int, int]:
    """The number of acts of these kinds in each step of the time axis, without empty steps."""
    found: dict[int, int] = {}
    for at_ms in are_times(_of_kinds(case, kinds)["event_ms"].to_pylist()):
        step = at_ms // step_ms
        found[step] = found.get(step, 0) + 1
    return found


def measure_times(case: Case) -> dict[str, Any]:
    """Distributions by name; one without values is left out."""
    moved = _of_kinds(case, _MOVED)
    moved = moved.filter(pc.greater_equal(moved["idle_ms"], 0))
    values = {
        "recovery_ms": moved["idle_ms"],
        "age_when_moved_ms": pc.subtract(moved["event_ms"], moved["ms"]),
        "pending_idle_ms": case.snapshots.pending["idle_ms"],
    }
    distributions: dict[str, Any] = {name: _shares(one) for name, one in values.items() if len(one)}
    if moved.num_rows:
        capped = pc.min_element_wise(moved["deliveries"], _MOST_DELIVERIES)
        counts = {row["values"]: row["counts"] for row in pc.value_counts(capped).to_pylist()}
        distributions["deliveries"] = tuple(
            counts.get(number, 0) for number in range(1, _MOST_DELIVERIES + 1)
        )
    return distributions


def _shares(values: pa.ChunkedArray) -> dict[str, int]:
    # Exact quantiles, so that a repeated run returns the same.
    found = pc.quantile(values, q=list(_SHARES)).to_pylist()
    named = {f"p{share * 100:g}": round(value) for share, value in zip(_SHARES, found, strict=True)}
    return {"n": len(values), **named}


def list_spreads(times: Mapping[str, Any]) -> Iterator[Spread]:
    """The distributions that the report shows."""
    for key, name in _SPREADS.items():
        spread = times.get(key)
        if spread:
            p50, p90, p99, most = (
                timedelta(milliseconds=spread[part]) for part in ("p50", "p90", "p99", "p100")
            )
            yield Spread(name=name, entries=spread["n"], p50=p50, p90=p90, p99=p99, most=most)
