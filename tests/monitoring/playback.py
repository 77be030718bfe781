"""Plays a recording to the shipped rules, in a unit test of promtool: which alerts fire when.

A recording is played 30 times slower than it was made. What took 2 s takes a minute then, so every
value that is a duration or a time is changed in the same way, and rates fall. So a resource that
is scanned every 2 s looks like one that is scanned every minute. Counts stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.monitoring.prometheus import run_promtool
from tests.monitoring.recording import Recording
from tests.monitoring.rules import read_groups
from tests.monitoring.scraping import PHASE

SLOWER: Final = 30
# Recordings begin an hour after the rules, so that no time is negative.
BEGIN_S: Final = 3600
_LABELS: Final = ("namespace", "name", "type", "stream", "group", "resource")
_FIRING: Final = f'count by (alertname, {", ".join(_LABELS)}) (ALERTS{{alertstate="firing"}})'
_DURATION: Final = re.compile(r"_seconds$")
_TIME: Final = re.compile(r"_timestamp_seconds$")
_ANNOTATION: Final = re.compile(r'(summary|description|runbook_url)="((?:[^"\\]|\\.)*)"')
_NO_NUMBER: Final = frozenset({"_", "NaN"})


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fires, with the labels that distinguish its instances."""

    alert: str
    labels: Mapping[str, str]

    def render(self) -> str:
        """As promtool writes it."""
        pairs = {"alertname": self.alert, **self.labels}
        return "{" + ", ".join(f'{name}="{pairs[name]}"' for name in sorted(pairs)) + "}"


class Playback:
    """A recording as the input of rules."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def phases(self) -> dict[str, tuple[int, int]]:
        """The first and the last scrape of each phase, in their order."""
        found: dict[str, tuple[int, int]] = {}
        for series, values in self._recording.series.items():
            match = re.fullmatch(rf'{PHASE}{{phase="(.*)"}}', series)
            if match and match[1]:
                there = [at for at, value in enumerate(values) if value != "_"]
                found[match[1]] = (there[0], there[-1])
        return dict(sorted(found.items(), key=lambda phase: phase[1]))

    def check(self, firing: Mapping[int, Iterable[Firing]], directory: Path) -> None:
        """Raise ValueError unless exactly these alerts fire at each of these scrapes."""
        expected = [
            {
                "expr": _FIRING,
                "eval_time": _render_time(at),
                "exp_samples": [{"labels": one.render(), "value": 1} for one in alerts],
            }
            for at, alerts in firing.items()
        ]
        self._run({"promql_expr_test": expected}, directory)

    def render_annotations(
        self, alerts: Mapping[str, int], directory: Path
    ) -> dict[str, dict[str, str]]:
        """Annotations of one instance of each alert that fires at a scrape, as they are sent.

        They are in the complaint of promtool that no such alert was expected.
        """
        expected = [
            {"eval_time": _render_time(at), "alertname": alert, "exp_alerts": []}
            for alert, at in alerts.items()
        ]
        try:
            self._run({"alert_rule_test": expected}, directory)
        except ValueError as complaint:
            complaints = re.split(r"alertname: ?", str(complaint))[1:]
            return {
                re.split(r"[,\s]", text, maxsplit=1)[0]: dict(_ANNOTATION.findall(text))
                for text in complaints
            }
        return {}

    def _run(self, expected: Mapping[str, Any], directory: Path) -> None:
        rules, tests = directory / "rules.json", directory / "tests.json"
        rules.write_text(json.dumps({"groups": read_groups()}))
        test = {
            "interval": f"{self._recording.interval * SLOWER}s",
            "input_series": self._series(),
            **expected,
        }
        suite = {
            "rule_files": [rules.name],
            "evaluation_interval": f"{SLOWER}s",
            "group_eval_order": [group["name"] for group in read_groups()],
            "tests": [test],
        }
        tests.write_text(json.dumps(suite))  # JSON is YAML, and quicker to write
        run_promtool("test", "rules", str(tests))

    def _series(self) -> list[dict[str, str]]:
        before = f"_x{BEGIN_S // SLOWER}"
        return [
            {"series": series, "values": f"{before} {' '.join(self._slow(series, values))}"}
            for series, values in self._recording.series.items()
        ]

    def _slow(self, series: str, values: Sequence[str]) -> Iterable[str]:
        name, start = series.partition("{")[0], self._recording.start
        is_time, is_duration = bool(_TIME.search(name)), bool(_DURATION.search(name))
        before = "_"
        for value in values:
            if value == "_" and before != "_":
                yield "stale"  # the target does not answer, or has the series no more
            elif value in _NO_NUMBER or not is_duration:
                yield value
            elif is_time:
                yield f"{(float(value) - start) * SLOWER + BEGIN_S:g}"
            else:
                yield f"{float(value) * SLOWER:g}"
            before = value


def _render_time(scrape: int) -> str:
    return f"{BEGIN_S + scrape * SLOWER}s"
