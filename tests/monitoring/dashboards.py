"""Draw the dashboards from the recorded run of the shop: `python -m tests.monitoring.dashboards`.

Each query of each panel is sent to a real Prometheus, as Grafana would send it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from local_cluster.operators import ROOT
from tests.monitoring.prometheus import NoPrometheus, Prometheus, serve_recording
from tests.monitoring.recording import Recording
from tests.monitoring.shop import RECORDING
from tools.charts import save
from tools.dashboards import DASHBOARDS
from tools.dashboards.model import Dashboard, Kind, Panel, Query
from tools.dashboards.preview import Series, TimeRange, draw_dashboard

ASSETS: Final = ROOT / "docs/assets"
# What Grafana makes of $__rate_interval is at least four times the interval of scrapes.
RATE_SCRAPES: Final = 6
SKIPPED: Final = 4  # scrapes at the beginning, before rates exist
INSTANT: Final = frozenset({Kind.STAT, Kind.TABLE, Kind.BARS})


def main() -> int:
    """Draw all dashboards; return 1 without Prometheus."""
    recording = Recording.read(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pelops-dashboards-") as folder,
            serve_recording(recording, Path(folder)) as prometheus,
        ):
            for dashboard in DASHBOARDS:
                results = ask_all(prometheus, dashboard, recording)
                drawn = draw_dashboard(dashboard, results, time_range_of(recording))
                path = ASSETS / f"dashboard-{dashboard.name}.svg"
                save(drawn, path, f"{dashboard.title}: {dashboard.description}")
    except NoPrometheus as error:
        print(f"no previews: {error}", file=sys.stderr)
        return 1
    return 0


def time_range_of(recording: Recording) -> TimeRange:
    """Return the time that is shown of a recording."""
    start = recording.start + SKIPPED * recording.interval
    return TimeRange(start=start, end=recording.end, step=recording.interval)


def ask_all(
    prometheus: Prometheus, dashboard: Dashboard, recording: Recording
) -> list[list[Sequence[Series]]]:
    """Return the series of each query of each panel."""
    return [
        [ask(prometheus, dashboard, panel, query, recording) for query in panel.queries]
        for panel in dashboard.panels
    ]


def fill(dashboard: Dashboard, query: Query, recording: Recording) -> str:
    """Return the expression that Grafana would send."""
    shown = time_range_of(recording)
    return dashboard.fill(
        query.expression,
        interval_s=RATE_SCRAPES * recording.interval,
        range_s=int(shown.end - shown.start),
    )


def ask(
    prometheus: Prometheus,
    dashboard: Dashboard,
    panel: Panel,
    query: Query,
    recording: Recording,
) -> list[Series]:
    """Return the series of one query, as its panel would ask for them."""
    expression, shown = fill(dashboard, query, recording), time_range_of(recording)
    if panel.kind in INSTANT:
        found = prometheus.query(expression, shown.end)
        return [Series(one["metric"], _read([one["value"]])) for one in found]
    found = prometheus.query_range(expression, shown.start, shown.end, shown.step)
    found.sort(key=lambda one: sorted(one["metric"].items()))  # some functions have no order
    return [Series(one["metric"], _read(one["values"])) for one in found]


def _read(points: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(at), float(value)) for at, value in points]


if __name__ == "__main__":
    sys.exit(main())
