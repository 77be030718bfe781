"""`python -m pelops.pipeline archive|audit|report|triage`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Final

from pelops.domain.audit import AuditSummary, AuditVerdict, EntryStatus
from pelops.errors import PelopsError
from pelops.pipeline.arguments import VARIABLES, add_arguments
from pelops.pipeline.engine.interruption import run_interruptibly
from pelops.pipeline.engine.progress import progress_reported
from pelops.pipeline.engine.session import LazySession, refuse_connect
from pelops.pipeline.engine.spark_errors import is_of_spark
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.name_check import check_names
from pelops.pipeline.redis_reader import RedisReader
from pelops.pipeline.report.command import run_report, write_report
from pelops.pipeline.run import exit_code, open_run, run_archive, run_audit
from pelops.pipeline.settings import (
    BALANCED,
    BROKEN,
    INTERRUPTED,
    UNUSABLE,
    PipelineSettings,
    read_settings,
)
from pelops.pipeline.stages import PipelineRun
from pelops.pipeline.status_table import check_table
from pelops.pipeline.triage.command import run_triage
from pyspark_redis_streams.errors import NotPermitted, OptionError, RedisStreamsError

log: Final = logging.getLogger(__name__)
_COMMANDS: Final = {
    "archive": "archive the entries of every window that can be closed",
    "audit": "archive, and say what became of every entry",
    "report": "make the page for people from what was audited",
    "triage": "cluster dead letters, and write a plan to redrive them",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; answers the exit code.

    0 balanced, 3 findings, 4 unknown or less certain than required, 2 bad settings, 1 broken, 130
    interrupted.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    chosen = _parser().parse_args(argv)
    try:
        settings = read_settings(chosen, os.environ)
    except WrongPipelineSettings as error:
        log.error("%s", error)
        return UNUSABLE
    return _run(chosen.command, settings)


def _run(command: str, settings: PipelineSettings) -> int:
    try:
        return _run_command(command, settings)
    except KeyboardInterrupt:
        log.error("interrupted: what is finished stays, and the same command goes on from there")
        return INTERRUPTED
    except (WrongPipelineSettings, OptionError) as error:
        log.error("%s", error)
        return UNUSABLE
    except NotPermitted as error:
        log.error("%s; `pelops acl --role auditor` prints the rights that are needed", error)
        return BROKEN
    except (PelopsError, RedisStreamsError) as error:
        log.error("%s", error)
        return BROKEN
    except Exception as error:
        if not is_of_spark(error):
            raise
        log.error("Spark failed: %s", _first_line(error))
        log.debug("all of it", exc_info=True)
        return BROKEN


def _first_line(error: Exception) -> str:
    """Of an error of Java, without the call that led to it; of any, without the stack."""
    text = str(error)
    with suppress(Exception):  # Java may be gone
        text = str(error.java_exception.toString())  # type: ignore[attr-defined]
    return next(iter(text.strip().splitlines()), type(error).__name__)


def _run_command(command: str, settings: PipelineSettings) -> int:
    log.info("Redis at %s, archive %s", settings.place.address, settings.archive)
    refuse_connect(settings)  # at once, also where a run this small would need no Spark
    if command != "report":
        _reach(settings)
    session = LazySession(settings)
    try:
        with progress_reported(session):
            work = partial(_work, command, session, settings)
            return run_interruptibly(session, work)
    finally:
        session.stop()


def _reach(settings: PipelineSettings) -> None:
    """Java takes its time to start: that Redis cannot be asked is reported before."""
    with closing(RedisReader(settings.place)) as watch:
        watch.now_ms("-")


def _work(command: str, session: LazySession, settings: PipelineSettings) -> int:
    if command == "report":
        return run_report(session, settings)
    if command == "triage":
        return run_triage(session, settings)
    run = open_run(session, settings)
    try:
        check_names(run)
        check_table(run)
        if command == "archive":
            print(f"{run_archive(run)} entries archived")
            return BALANCED
        return _audit(run)
    finally:
        run.watch.close()


def _audit(run: PipelineRun) -> int:
    summaries = run_audit(run)
    # Also when nothing could be closed: what earlier runs found is shown again.
    page = write_report(run, summaries)
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
        *_open(summary),
        f"  {_verdict(summary)}: {summary.sentence}",
        *(f"  - {one.sentence}" for one in summary.findings),
    ]
    return "\n".join(rows)


def _verdict(summary: AuditSummary) -> str:
    """Balanced is never said without what it rests on."""
    if summary.verdict is AuditVerdict.BALANCED:
        return f"{summary.verdict.value}, {summary.certainty.value}"
    return summary.verdict.value


def _open(summary: AuditSummary) -> list[str]:
    """What no window is done with: also of windows that are told of no more."""
    if not summary.open:
        return []
    stuck = summary.oldest_stuck
    message = "" if stuck is None else f", the oldest stuck one for {int(stuck.total_seconds())} s"
    return [f"  {'open, of all windows':<22} {summary.open:>12}{message}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pelops.pipeline",
        description="What became of every entry of a stream. COMMAND --help names the arguments.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, sentence in _COMMANDS.items():
        add_arguments(
            commands.add_parser(
                name,
                help=sentence,
                description=f"{sentence[0].upper()}{sentence[1:]}.",
                epilog=VARIABLES,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
        )
    return parser
