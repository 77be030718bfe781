"""Recorded metrics in a small file: one line for each series, in the notation of promtool's tests.

    # start 1790000000 interval 5 samples 90
    pelops_ready{namespace="shop",name="orders"} 1x40 0x3 1x44 _x1

`1x40` is a sample of 1 and 40 more of the same; `_` is a scrape without the series. All series
have the same times.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

_HEAD = "# start {start} interval {interval} samples {samples}"
_MISSING = "_"
# Not recorded: what nothing shows.
_LEFT_OUT = re.compile(r"python_|process_(virtual|start|open|max)|\w+_created$")


@dataclass(slots=True)
class Recording:
    """Samples of many series at the same times."""

    start: int  # Unix time of the first scrape, in seconds
    interval: int  # seconds from one scrape to the next
    samples: int = 0
    series: dict[str, list[str]] = field(default_factory=dict)  # values as they are written

    @property
    def end(self) -> int:
        """The Unix time of the last scrape."""
        return self.start + self.interval * (self.samples - 1)

    def add(self, scraped: Mapping[str, float]) -> None:
        """Append one scrape of everything."""
        for name in scraped:
            self.series.setdefault(name, [_MISSING] * self.samples)
        for name, values in self.series.items():
            values.append(_render_value(scraped[name]) if name in scraped else _MISSING)
        self.samples += 1

    def write(self, path: Path) -> None:
        """Write the file, the same bytes for the same samples."""
        head = _HEAD.format(start=self.start, interval=self.interval, samples=self.samples)
        lines = [head, *(f"{name} {_pack(self.series[name])}" for name in sorted(self.series))]
        path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), 9, mtime=0))

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read what `write` wrote."""
        head, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        start, interval, samples = (int(number) for number in re.findall(r"\d+", head))
        found = cls(start=start, interval=interval, samples=samples)
        for line in lines:
            name, packed = split_series(line)
            found.series[name] = list(_unpack(packed))
        return found

    def render_open_metrics(self) -> str:
        """Return all samples in the text format of OpenMetrics, with their times."""
        lines = [
            f"{name} {value} {self.start + self.interval * at}"
            for name, values in self.series.items()
            for at, value in enumerate(values)
            if value != _MISSING
        ]
        return "\n".join([*lines, "# EOF", ""])


def read_scrape(text: str, **labels: str) -> dict[str, float]:
    """Read a page of metrics. A label of the series itself wins over `labels` (`honorLabels`)."""
    return {
        render_series(sample.name, {**labels, **sample.labels}): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not _LEFT_OUT.match(sample.name)
    }


def render_series(name: str, labels: Mapping[str, str]) -> str:
    """Write a series as Prometheus does."""
    pairs = ",".join(f'{key}="{_escape(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{pairs}}}"


def split_series(line: str) -> tuple[str, str]:
    """Return the series and the values of one line of a recording."""
    name, brace, values = line.rpartition("} ")
    return name + brace.strip(), values


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _render_value(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"


def _pack(values: Iterable[str]) -> str:
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    return " ".join(_pack_run(value, count) for value, count in runs)


def _pack_run(value: str, count: int) -> str:
    if value == _MISSING:  # promtool counts these from 1, and the repetitions of a value from 0
        return value if count == 1 else f"{value}x{count}"
    return value if count == 1 else f"{value}x{count - 1}"


def _unpack(packed: str) -> Iterator[str]:
    for run in packed.split():
        value, _, count = run.partition("x")
        repeated = int(count or 0) + (value != _MISSING or not count)
        yield from [value] * repeated
