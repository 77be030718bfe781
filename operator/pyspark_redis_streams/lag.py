"""How many entries a streaming query is behind, from the progress that Spark reports.

A Python data source cannot fill the `metrics` of a source, nor show anything in Spark's UI. So the
lag is part of `latestOffset`. This module extracts it, and reports it for each micro-batch::

    def report(query: str, lag: dict[str, int]) -> None:
        gauge.labels(query=query).set(sum(lag.values()))

    spark.streams.addListener(LagListener(report))
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

logger = logging.getLogger(__name__)

Report = Callable[[str, dict[str, int]], None]  # name or ID of the query, and lag by stream


def lag_of(progress: Mapping[str, Any]) -> dict[str, int]:
    """The number of entries of each stream after the end of the micro-batch, as of its planning.

    Args:
        progress: The value of `query.lastProgress`, or the progress that a listener gets. Sources
            of other kinds are ignored.
    """
    lag: dict[str, int] = {}
    for source in progress["sources"]:
        for stream, place in _latest(source["latestOffset"]).items():
            if isinstance(place, dict) and isinstance(place.get("lag"), int):
                lag[stream] = lag.get(stream, 0) + place["lag"]
    return lag


def _latest(shown: Any) -> dict[str, Any]:
    try:
        offset = json.loads(shown) if isinstance(shown, str) else shown
    except ValueError:
        return {}
    return offset if isinstance(offset, dict) else {}


def log_lag(query: str, lag: dict[str, int]) -> None:
    """Write the lag of a query to the log of this module."""
    behind = ", ".join(f"{stream} {entries}" for stream, entries in sorted(lag.items()))
    logger.info("query %s is %d entries behind: %s", query, sum(lag.values()), behind)


class LagListener(StreamingQueryListener):
    """Reports the lag of every query that reads Redis Streams, after each micro-batch."""

    def __init__(self, report: Report = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Does nothing: no entry is read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        lag = lag_of(event.progress)
        if lag:
            self._report(event.progress.name or str(event.progress.id), lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Does nothing: the last report is still valid."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Does nothing: no entry is read any more."""
