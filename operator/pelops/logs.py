"""Structured logs on standard error: JSON for machines, one readable line for people.

No payload of an entry and no secret is ever passed to a logger.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

from pythonjsonlogger.json import JsonFormatter

LogFormat = Literal["json", "console"]

# Fields that every record of the standard library carries; all others were given by `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class ConsoleFormatter(logging.Formatter):
    """Time, level, logger and message, then the extra fields as key=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(
            f"{key}={value}" for key, value in vars(record).items() if key not in _STANDARD
        )
        line = super().format(record)
        return f"{line} [{extra}]" if extra else line


def _shorten(record: logging.LogRecord) -> bool:
    """Leave out the traces of kopf, which lead through its own code alone."""
    if record.name.startswith("kopf."):
        record.exc_info = None
    return True


def configure_logging(log_format: LogFormat, level: str) -> None:
    """Send all logs to standard error in the chosen format. Repeats safely."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(
            JsonFormatter(
                "%(levelname)s %(name)s %(message)s",
                timestamp=True,
                rename_fields={"levelname": "level", "name": "logger"},
            )
        )
    else:
        handler.setFormatter(ConsoleFormatter())
    handler.addFilter(_shorten)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf logs each event and each request, and the watch logs what failed.
    logging.getLogger("kopf").setLevel(logging.ERROR)
    logging.getLogger("kopf._cogs.clients").setLevel(logging.CRITICAL)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
