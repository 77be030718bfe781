"""Tables of the operator's metrics, from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pelops import metrics
from pelops.worker.metrics import Exposition
from tools.reference.tables import render_table

_HEAD: Final = ("metric", "type", "labels", "what it is")


class MetricDeclaration(NamedTuple):
    """What a page shows of a metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def _list_declared(declared: object) -> Iterator[Any]:
    if isinstance(declared, Mapping):
        declared = tuple(declared.values())
    if isinstance(declared, tuple):
        for one in declared:
            yield from _list_declared(one)
    else:
        yield declared


# The tables of the page; what is in none of these is about the replica itself.
_SECTIONS: Final[Mapping[str, tuple[object, ...]]] = {
    "groups": (
        metrics.GROUP_FACTS,
        metrics.GROUP_LIMITS,
        metrics.CONDITIONS,
        metrics.GROUP_TOTALS,
        metrics.STATUS_WRITES_LIMITED,
    ),
    "streams": (metrics.STREAM_FACTS,),
    "scaling": (
        metrics.BACKLOG,
        metrics.SCALING_FACTS,
        metrics.SCALING_DECISIONS,
        metrics.SCALE_WRITES,
    ),
    "recovery": (
        metrics.GROUP_ACTS,
        metrics.DRY_RUN_ENTRIES,
        metrics.SCANS,
        metrics.SCAN_SECONDS,
        metrics.RECOVERY_LATENCY,
        metrics.VERDICTS,
        metrics.SCRIPT_OUTCOMES,
        metrics.SERVER_SECONDS,
    ),
    "audits": tuple(value for name, value in vars(metrics).items() if name.startswith("AUDIT")),
}
REPLICA: Final = "replica"
WORKERS: Final = "workers"  # those on the Python SDK
SECTIONS: Final = (*_SECTIONS, REPLICA, WORKERS)


def list_metrics(section: str) -> list[MetricDeclaration]:
    """Return the metrics of one table."""
    if section == WORKERS:
        return [_name(family, ()) for family in Exposition().describe()]
    if section != REPLICA:
        return [_describe(one) for one in _list_declared(_SECTIONS[section])]
    elsewhere = {id(one) for declared in _SECTIONS.values() for one in _list_declared(declared)}
    return [
        _describe(one)
        for one in vars(metrics).values()
        if hasattr(one, "_documentation") and id(one) not in elsewhere
    ]


def render_metrics(section: str) -> Iterable[str]:
    """Yield the table of one section."""
    return render_table(
        _HEAD,
        (
            (f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help)
            for one in list_metrics(section)
        ),
    )


def _describe(declared: Any) -> MetricDeclaration:
    (family,) = declared.describe()
    return _name(family, getattr(declared, "labelnames", None) or declared._labelnames)


def _name(family: Any, labels: Iterable[str]) -> MetricDeclaration:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    shown = tuple(labels) or tuple(getattr(family, "_labelnames", ()))
    return MetricDeclaration(name, family.type, shown, family.documentation)
