"""A scraper for recordings: reads the metrics of real processes once a second."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tests.monitoring.recording import Recording, read_scrape, render_series

PERIOD_S: Final = 1.0
ANSWER_S: Final = 10.0
PHASE: Final = "recorded_phase"  # a series that names what happens: 1 for the present phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process with metrics, and the labels that Prometheus would add to its series."""

    port: int
    labels: Mapping[str, str]


class Scraper:
    """Scrapes targets in the background from `with` on. A target that does not answer is absent."""

    def __init__(self, metrics: Collection[str]) -> None:
        """`metrics` are the names to keep."""
        self._metrics = frozenset(metrics)
        self._targets: dict[int, Target] = {}
        self._phase = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper")
        self.recording = Recording(start=int(time.time()), interval=int(PERIOD_S))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the recording. Nothing when it has ended."""
        self._end.set()
        self._thread.join()

    def follow(self, port: int, **labels: str) -> None:
        """Scrape this port from now on."""
        self._targets[port] = Target(port=port, labels=labels)

    def begin(self, phase: str) -> None:
        """Name what happens from now on."""
        self._phase = phase

    def hold(self, seconds: float) -> None:
        """Let time pass that is recorded."""
        self._end.wait(seconds)

    def _run(self) -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            while not self._end.is_set():
                targets = list(self._targets.values())
                scraped = {render_series(PHASE, {"phase": self._phase}): 1.0}
                for found in pool.map(self._scrape, targets):
                    scraped |= found
                # What was read late stands for each second that it took.
                passed = int((time.monotonic() - began) / PERIOD_S) + 1
                for _ in range(max(1, passed - self.recording.samples)):
                    self.recording.add(scraped)
                due = began + self.recording.samples * PERIOD_S
                self._end.wait(max(0.0, due - time.monotonic()))

    def _scrape(self, target: Target) -> dict[str, float]:
        url = f"http://127.0.0.1:{target.port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        return {
            series: value
            for series, value in read_scrape(text, **target.labels).items()
            if series.partition("{")[0] in self._metrics
        }
