"""`python -m pelops.pipeline archive|audit|report|triage`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from pelops.domain.audit import AuditSummary, EntryStatus
from pelops.errors import PelopsError
from pelops.pipeline.errors import WrongSettings
from pelops.pipeline.run import exit_code, open_run, run_archive, run_audit
from pelops.pipeline.session import open_session
from pelops.pipeline.settings import (
    BALANCED,
    BROKEN,
    UNUSABLE,
    Settings,
    add_arguments,
    read_settings,
)
from pelops.pipeline.work import Run
from pyspark_redis_streams.errors import OptionError, RedisStreamsError

log: Final = logging.getLogger(__name__)
_COMMANDS: Final = {
    "archive": "archive the entries of every window that can be closed",
    "audit": "archive, and say what became of every entry",
    "report": "make the page for people from what was audited",
    "triage": "cluster dead letters, and write a plan to redrive them",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; answers the exit code: 0 balanced, 3 findings, 2 bad settings, 1 broken."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    chosen = _parser().parse_args(argv)
    try:
        settings = read_settings(chosen, os.environ)
    except WrongSettings as error:
        log.error("%s", error)
        return UNUSABLE
    return _run(chosen.command, settings)


def _run(command: str, settings: Settings) -> int:
    try:
        return _run_command(command, settings)
    except (WrongSettings, OptionError) as error:
        log.error("%s", error)
        return UNUSABLE
    except (PelopsError, RedisStreamsError) as error:
        log.error("%s", error)
        return BROKEN


def _run_command(command: str, settings: Settings) -> int:
    session = open_session(settings)
    try:
        if command in {"report", "triage"}:
            # Pages and clusters need more than a scheduled audit should have to load.
            code: int = import_module(f"pelops.pipeline.{command}").run(session, settings)
            return code
        run = open_run(session, settings)
        try:
            if command == "archive":
                print(f"{run_archive(run)} entries archived")
                return BALANCED
            return _audit(run)
        finally:
            run.watch.close()
    finally:
        session.stop()


def _audit(run: Run) -> int:
    summaries = run_audit(run)
    # Also when nothing could be closed: what earlier runs found is shown again.
    page = import_module("pelops.pipeline.report.running").write_report(run)
    for summary in summaries:
        print(render_table(summary))
    print(f"report: {page}")
    return exit_code(run.settings, summaries)


def render_table(summary: AuditSummary) -> str:
    """A summary for a terminal: statuses that add up, and the sentence of the verdict."""
    window = summary.window
    total = sum(summary.counts.values())
    rows = [
        f"{summary.stream} / {summary.group}, window {window.number}",
        *(
            f"  {status.value:<22} {summary.counts[status]:>12}"
            for status in EntryStatus
            if summary.counts[status]
        ),
        f"  {'-' * 35}",
        f"  {'all together':<22} {total:>12} of {summary.produced} produced",
        f"  {summary.verdict.value}: {summary.sentence}",
        *(f"  - {one.sentence}" for one in summary.findings),
    ]
    return "\n".join(rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pelops.pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, sentence in _COMMANDS.items():
        add_arguments(commands.add_parser(name, help=sentence, description=sentence))
    return parser
