"""The operator process: everything is wired here, started in order, and ended in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from pelops.controller.replica import Replica
from pelops.controller.runtime.settings import ReplicaSettings, parse_settings
from pelops.errors import PelopsError
from pelops.logs import configure_logging

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT; exits 1 with a message when it cannot start."""
    settings = parse_settings(sys.argv[1:] if argv is None else argv, os.environ)
    configure_logging(settings.log_format, settings.log_level)
    try:
        asyncio.run(_run(settings))
    except PelopsError as error:
        log.error("cannot start: %s", error)
        sys.exit(1)


async def _run(settings: ReplicaSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Replica(settings, stop) as replica:
        await replica.run()
    log.info("ended")
