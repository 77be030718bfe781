"""Numbers of groups from the metrics of the operator, in the text format of Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pelops.cli.errors import CommandFailed
from pelops.cli.kubectl import Kubectl
from pelops.cli.operator_pods import list_operators

_SAMPLE: Final = re.compile(r"(pelops_[a-z_]+)\{([^}]*)\} (\S+)")
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_HTTP_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 64 * 1024 * 1024

# (namespace, name) of a group.
GroupName = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGauges:
    """Numbers of one group as the operator last observed them. None stands for unknown."""

    lag: float | None = None
    pending: float | None = None
    oldest_s: float | None = None
    dead_letters: float | None = None
    arrival_rate: float | None = None  # entries per second
    acknowledge_rate: float | None = None
    added: float | None = None  # entries ever added, and ever delivered to the group
    delivered: float | None = None


_FIELDS: Final = {
    "pelops_lag_entries": "lag",
    "pelops_pending_entries": "pending",
    "pelops_oldest_pending_seconds": "oldest_s",
    "pelops_dead_letters": "dead_letters",
    "pelops_arrival_rate": "arrival_rate",
    "pelops_acknowledge_rate": "acknowledge_rate",
    "pelops_entries_added_total": "added",
    "pelops_entries_read_total": "delivered",
}


def read_gauges(texts: Iterable[str]) -> dict[GroupName, GroupGauges]:
    """Return the gauges of each group from the metrics of all replicas.

    Where two replicas export a group, the largest known number counts.
    """
    gauges_by_group: dict[GroupName, dict[str, float]] = {}
    for text in texts:
        for name, labels, value in parse_samples(text, _FIELDS):
            group = (labels.get("namespace", ""), labels.get("name", ""))
            gauges = gauges_by_group.setdefault(group, {})
            field = _FIELDS[name]
            gauges[field] = max(value, gauges.get(field, value))
    return {group: GroupGauges(**gauges) for group, gauges in gauges_by_group.items()}


def parse_samples(
    text: str, names: Collection[str]
) -> Iterable[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of the samples with these names whose value is a number."""
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match[1] not in names:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield match[1], dict(_LABEL.findall(match[2])), value


def fetch_gauges(kubectl: Kubectl, *, urls: Sequence[str] = ()) -> dict[GroupName, GroupGauges]:
    """Return the gauges that all replicas of the operator export.

    `urls` are addresses of the metrics of replicas, such as those of `kubectl port-forward`.
    Without any, the metrics are read through the API server, which needs the rights to list pods
    in all namespaces, and to get pods/proxy in that of the operator.

    Raises:
        CommandFailed: the metrics cannot be read.
    """
    if urls:
        return read_gauges([_fetch(url) for url in urls])
    pods = list_operators(kubectl)
    if not pods:
        raise CommandFailed("no pod of the operator runs")
    paths = (
        f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}:{pod.port}/proxy/metrics"
        for pod in pods
    )
    return read_gauges([kubectl.raw(path) for path in paths])


def _fetch(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"{url} is not an address that begins with http:// or https://")
    import urllib.request  # TLS and HTTP: as much time as all the rest of `pelops status`

    try:
        with urllib.request.urlopen(url, timeout=_HTTP_TIMEOUT_S) as answer:
            return str(answer.read(_MAX_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        raise CommandFailed(f"the metrics of {url} cannot be read: {error}") from error
