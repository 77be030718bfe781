"""Draws a dashboard as SVG, from the results of its queries, much as Grafana would show it."""

from tools.dashboards.preview.dashboard import Drawn, Series, TimeRange, draw_dashboard

__all__ = ["Drawn", "Series", "TimeRange", "draw_dashboard"]
