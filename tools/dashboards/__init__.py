"""Grafana's dashboards: `make dashboards` writes them."""

from typing import Final

from tools.dashboards.audits import AUDITS
from tools.dashboards.fleet import FLEET
from tools.dashboards.group import GROUP
from tools.dashboards.model import Dashboard
from tools.dashboards.operator import OPERATOR
from tools.dashboards.workers import WORKERS

DASHBOARDS: Final[tuple[Dashboard, ...]] = (FLEET, GROUP, OPERATOR, AUDITS, WORKERS)
