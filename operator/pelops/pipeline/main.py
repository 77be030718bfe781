"""`python -m pelops.pipeline archive|audit|report|triage`: the commands and their arguments."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Final

from pelops.build import describe_build
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary, AuditVerdict, Certainty
from pelops.errors import PelopsError
from pelops.pipeline.archive.redis_reader import RedisReader
from pelops.pipeline.context import PipelineRun, open_run
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.name_check import check_dead_letters, check_names
from pelops.pipeline.report.pages import write_new_reports, write_reports
from pelops.pipeline.run import Targets, exit_code, find_targets, run_archive, run_audit
from pelops.pipeline.session import (
    LazySession,
    progress_reported,
    refuse_connect,
    run_interruptibly,
)
from pelops.pipeline.settings import (
    BALANCED,
    BROKEN,
    INTERRUPTED,
    UNUSABLE,
    ArchivedPayload,
    PipelineSettings,
    read_settings,
    read_url_file,
)
from pelops.pipeline.spark_errors import first_line, is_of_spark, lost
from pelops.pipeline.triage.triage_command import run_triage
from pyspark_redis_streams.errors import NotPermitted, OptionError, RedisStreamsError

log: Final = logging.getLogger(__name__)
_COMMANDS: Final = {
    "archive": "archive the entries of every complete window",
    "audit": "archive, and report the outcome of every entry",
    "report": "write the HTML report from the results of audits",
    "triage": "cluster dead letters, and write a plan to redrive them",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    0 balanced, 3 findings, 4 unknown or less certain than required, 2 bad settings, 1 broken, 130
    interrupted.
    """
    handler = logging.StreamHandler()
    handler.addFilter(_is_named)
    logging.basicConfig(
        handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    chosen = _parser().parse_args(argv)
    try:
        if chosen.redis_url_file:
            # A variable, because executor processes inherit it.
            os.environ["PELOPS_REDIS_URL"] = read_url_file(chosen.redis_url_file)
        settings = read_settings(chosen)
    except WrongPipelineSettings as error:
        log.error("%s", error)
        return UNUSABLE
    return _run(chosen.command, settings)


def _is_named(record: logging.LogRecord) -> bool:
    """Exclude records of the root logger: py4j logs there errors that it also raises."""
    return record.name != "root"


def _run(command: str, settings: PipelineSettings) -> int:
    try:
        return run_command(command, settings)
    except KeyboardInterrupt:
        log.error("interrupted: finished steps are kept, and the same command continues from there")
        return INTERRUPTED
    except (WrongPipelineSettings, OptionError) as error:
        log.error("%s", error)
        return UNUSABLE
    except NotPermitted as error:
        log.error("%s; `pelops acl --role auditor` prints the required rights", error)
        return BROKEN
    except (PelopsError, RedisStreamsError) as error:
        log.error("%s", error)
        return BROKEN
    except Exception as error:
        if not is_of_spark(error):
            raise
        log.error("Spark failed: %s", first_line(error))
        log.debug("the whole error", exc_info=True)
        return BROKEN


def run_command(command: str, settings: PipelineSettings) -> int:
    """Run one command with valid settings; return the exit code. Raises what `main` reports."""
    log.info(
        "Pelops %s: Redis at %s, archive %s",
        describe_build(),
        settings.place.address,
        settings.archive,
    )
    refuse_connect(settings)  # before Spark is needed, which a small run may never do
    if command != "report":
        _reach(settings)
    session = LazySession(settings)
    try:
        with progress_reported(session):
            work = partial(_work, command, session, settings)
            return run_interruptibly(session, work)
    except Exception as error:
        if session.is_lost():
            raise lost() from error
        raise
    finally:
        session.stop()


def _reach(settings: PipelineSettings) -> None:
    """Check that Redis can be reached, before the slow start of Java."""
    with closing(RedisReader(settings.place)) as watch:
        watch.now_ms("-")


def _work(command: str, session: LazySession, settings: PipelineSettings) -> int:
    run = open_run(session, settings)
    try:
        targets = find_targets(run)
        if command == "report":
            print(write_reports(run, targets))
        elif command == "triage":
            check_dead_letters(run, targets)
            run_triage(run, targets)
        elif command == "archive":
            check_names(run, targets)
            print(f"{run_archive(run, targets)} entries archived")
        else:
            check_names(run, targets)
            return _audit(run, targets)
        return BALANCED
    finally:
        run.watch.close()


def _audit(run: PipelineRun, targets: Targets) -> int:
    summaries = run_audit(run, targets)
    _log_work(run)
    # Even without a new window, a missing report is written from the archive.
    page = write_new_reports(run, targets, summaries)
    for summary in summaries:
        print(render_table(summary))
    print(f"report: {page}")
    return exit_code(run.settings, summaries)


def _log_work(run: PipelineRun) -> None:
    work = run.spark.count_work()
    if work is None:
        log.info("nothing is new: Spark was not started")
        return
    log.info("Spark %s on %s: %d jobs, %d tasks", work.spark, work.master, work.jobs, work.tasks)


def render_table(summary: AuditSummary) -> str:
    """A summary for a terminal: statuses with their total, verdict, and findings."""
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
        f"  {'total':<22} {total:>12} of {summary.produced} produced",
        *_open(summary),
        f"  {_verdict(summary)}: {summary.sentence}",
        *(f"  - {one.sentence}" for one in summary.findings),
    ]
    return "\n".join(rows)


def _verdict(summary: AuditSummary) -> str:
    """The verdict; `balanced` always with its certainty."""
    if summary.verdict is AuditVerdict.BALANCED:
        return f"{summary.verdict.value}, {summary.certainty.value}"
    return summary.verdict.value


def _open(summary: AuditSummary) -> list[str]:
    """A line with the open entries of all windows, also of those that are not reported."""
    if not summary.open:
        return []
    stuck = summary.oldest_stuck
    message = "" if stuck is None else f", the oldest stuck one for {int(stuck.total_seconds())} s"
    return [f"  {'open, all windows':<22} {summary.open:>12}{message}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pelops.pipeline",
        description="Audit the outcome of every entry of a stream. COMMAND --help lists the "
        "arguments.",
    )
    parser.add_argument(
        "--version", action="version", version=f"pelops.pipeline {describe_build()}"
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


TABLE_FORMATS: Final = ("parquet", "csv", "json", "orc", "jdbc")
VARIABLES: Final = """\
variables without an argument:
  PELOPS_REDIS_USERNAME, PELOPS_REDIS_PASSWORD, PELOPS_REDIS_SENTINEL_MASTER,
  PELOPS_REDIS_SENTINEL_NODES (host:port,...), PELOPS_REDIS_SENTINEL_USERNAME,
  PELOPS_REDIS_SENTINEL_PASSWORD, PELOPS_REDIS_CA_FILE, PELOPS_REDIS_CERT_FILE,
  PELOPS_REDIS_KEY_FILE, PELOPS_REDIS_TLS_SERVER_NAME (name in the server certificate),
  PELOPS_REDIS_TLS (true: use TLS to Sentinels without a URL).
  PELOPS_ALLOWED_NETWORKS, PELOPS_ALLOWED_HOSTS, PELOPS_REDIS_HOSTS (hosts that a job may
  connect to and send its password to; set by the operator).
  PELOPS_AUDIT_GROUPS            Groups as JSON: [{"stream": ..., "group": ...}, ...].
  PELOPS_AUDIT_RETENTION_SECONDS Age in seconds at which windows leave the archive.
                                 Default: never.
  PELOPS_AUDIT_DEADLINE_SECONDS  Seconds after which the run stops. Finished steps are kept.
  PELOPS_AUDIT_MEMORY_MIB        Memory of the machine. Java's heap is what 400 MiB for the
                                 driver and 300 MiB for each core leave of it.
  PELOPS_AUDIT_S3_ENDPOINT, PELOPS_AUDIT_S3_REGION: the object store.
  PELOPS_AUDIT_FINDINGS_EXIT     Exit code of an audit that is not balanced, instead of 3 and 4.

exit codes:
  0    every audited group is balanced
  1    the run failed; repeat it
  2    a setting is invalid
  3    an audit has findings
  4    no findings, but the outcome of some entries is unknown, or less certain than --require
  130  interrupted
"""


_Group = argparse._ArgumentGroup  # argparse has no public name for it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all commands; each overrides its variable."""
    _add_what_to_audit(parser.add_argument_group("stream and archive"))
    _add_how_to_audit(parser.add_argument_group("audit"))
    _add_tables(parser.add_argument_group("your tables, joined by a business key"))


def _add_what_to_audit(parser: _Group) -> None:
    add = parser.add_argument
    address = parser.add_mutually_exclusive_group()
    address.add_argument(
        "--redis-url",
        metavar="URL",
        help="redis://host:port/db without a password, because other users can read it in the "
        "list of "
        "processes (PELOPS_REDIS_URL)",
    )
    address.add_argument(
        "--redis-url-file", metavar="PATH", help="a file with the URL, which may hold a password"
    )
    add("--stream", metavar="KEY", help="the stream, with --group")
    add("--group", metavar="NAME", action="append", default=[], help="its group; may be repeated")
    add(
        "--stream-pattern",
        metavar="GLOB",
        help="every group of every stream that matches (PELOPS_AUDIT_STREAM_PATTERN)",
    )
    add(
        "--archive",
        metavar="PATH",
        help="root directory or address of the archive (PELOPS_AUDIT_ARCHIVE)",
    )
    add("--name", help="record the summaries in Redis under this name (PELOPS_AUDIT_NAME)")


def _add_how_to_audit(parser: _Group) -> None:
    add = parser.add_argument
    add(
        "--window-seconds",
        metavar="S",
        type=int,
        help="length of a window in seconds; default: one window up to now "
        "(PELOPS_AUDIT_WINDOW_SECONDS)",
    )
    add(
        "--stuck-after-seconds",
        metavar="S",
        type=int,
        help="seconds after which a pending entry counts as stuck; default 300 "
        "(PELOPS_AUDIT_STUCK_AFTER_MS)",
    )
    add(
        "--payload",
        choices=[one.value for one in ArchivedPayload],
        help="form in which fields are archived; default hash (PELOPS_AUDIT_PAYLOAD)",
    )
    add(
        "--aof-path",
        metavar="DIR",
        help="directory with append-only files (PELOPS_AUDIT_AOF_PATH)",
    )
    add(
        "--require",
        choices=[Certainty.INFERRED.value, Certainty.PROVEN.value],
        default=Certainty.INFERRED.value,
        help="certainty of acknowledgements that exit code 0 requires; default inferred: delivered "
        "and no longer pending",
    )
    add(
        "--master",
        metavar="URL",
        help="address of the Spark cluster; default: this machine, with the cores of its CPU limit",
    )


def _add_tables(parser: _Group) -> None:
    add = parser.add_argument
    add("--business-key", metavar="FIELD", help="field that identifies an entry to the business")
    add("--sent", metavar="TABLE", help="table of sent entries: finds entries that never arrived")
    add(
        "--sent-ms",
        metavar="COLUMN",
        help="its column with the time of sending, in milliseconds since 1970-01-01 UTC",
    )
    add(
        "--effects",
        metavar="TABLE",
        help="table of effects: finds entries that were acknowledged without an effect",
    )
    add(
        "--table-format",
        choices=TABLE_FORMATS,
        default="parquet",
        help="format of both tables; TABLE is a path, for jdbc URL#NAME",
    )
    add(
        "--table-key",
        metavar="COLUMN",
        help="their column with the business key; default: the name of the field",
    )
