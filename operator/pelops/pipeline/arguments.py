"""The arguments of all commands, and what `--help` says of the rest."""

from __future__ import annotations

import argparse
from typing import Final

from pelops.domain.audit import Certainty
from pelops.pipeline.settings import ArchivedPayload, TableFormat

TABLE_FORMATS: Final = ("parquet", "csv", "json", "orc", "jdbc")
VARIABLES: Final = """\
variables without an argument:
  PELOPS_REDIS_USERNAME, PELOPS_REDIS_PASSWORD, PELOPS_REDIS_SENTINEL_MASTER,
  PELOPS_REDIS_SENTINEL_NODES (host:port,...), PELOPS_REDIS_CA_FILE,
  PELOPS_REDIS_CERT_FILE, PELOPS_REDIS_KEY_FILE
  PELOPS_AUDIT_GROUPS            groups as JSON: [{"stream": ..., "group": ...}, ...]
  PELOPS_AUDIT_RETENTION_DAYS    how long windows stay in the archive; default: for ever
  PELOPS_AUDIT_DEADLINE_SECONDS  when to stop, with what is finished
  PELOPS_AUDIT_MEMORY_MIB        memory of the machine; three quarters are for Java
  PELOPS_AUDIT_SPARK_FROM        entries from which on a window is worked with Spark;
                                 default 100000, 0: every window
  PELOPS_AUDIT_S3_ENDPOINT, PELOPS_AUDIT_S3_REGION
  PELOPS_AUDIT_FINDINGS_EXIT     the exit code of an audit that is not balanced, in place of 3 and 4

exit codes: 0 done, and every audited group is balanced; 3 an audit with findings;
4 no findings, but the end of some entries cannot be told, or is less certain than --require asks;
2 wrong settings; 1 the run broke: repeat it; 130 interrupted
"""


_Group = argparse._ArgumentGroup  # argparse gives the type no public name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that all commands take; each wins over its variable."""
    _add_what_to_audit(parser.add_argument_group("what and where"))
    _add_how_to_audit(parser.add_argument_group("how"))
    _add_tables(parser.add_argument_group("your own tables, joined by a business key"))


def _add_what_to_audit(parser: _Group) -> None:
    add = parser.add_argument
    add("--redis-url", metavar="URL", help="redis://host:port/db (PELOPS_REDIS_URL)")
    add("--stream", metavar="KEY", help="the stream, with --group")
    add("--group", metavar="NAME", action="append", default=[], help="its group; may be repeated")
    add(
        "--stream-pattern",
        metavar="GLOB",
        help="every group of every stream that fits (PELOPS_AUDIT_STREAM_PATTERN)",
    )
    add("--archive", metavar="PATH", help="where the archive begins (PELOPS_AUDIT_ARCHIVE)")
    add("--name", help="record the summaries in Redis under this name (PELOPS_AUDIT_NAME)")


def _add_how_to_audit(parser: _Group) -> None:
    add = parser.add_argument
    add(
        "--window-seconds",
        metavar="S",
        help="length of a window; default: one up to now (PELOPS_AUDIT_WINDOW_SECONDS)",
    )
    add(
        "--stuck-after-seconds",
        metavar="S",
        help="when a pending entry counts as stuck; default 300 (PELOPS_AUDIT_STUCK_AFTER_MS)",
    )
    add(
        "--payload",
        choices=[one.value for one in ArchivedPayload],
        help="what of the fields is archived; default hash (PELOPS_AUDIT_PAYLOAD)",
    )
    add(
        "--aof-path",
        metavar="DIR",
        help="directory with append-only files (PELOPS_AUDIT_AOF_PATH)",
    )
    add(
        "--statuses-format",
        choices=["parquet", *(one.value for one in TableFormat)],
        help="write the statuses to a table of this format as well; default parquet: to the "
        "archive alone (PELOPS_AUDIT_STATUSES_FORMAT)",
    )
    add(
        "--statuses-table",
        metavar="TABLE",
        help="that table: a path, or a table of Spark's catalog (PELOPS_AUDIT_STATUSES_TABLE)",
    )
    add(
        "--require",
        choices=[Certainty.INFERRED.value, Certainty.PROVEN.value],
        default=Certainty.INFERRED.value,
        help="what acknowledgements must rest on for exit code 0; default inferred: delivered and "
        "no longer pending",
    )
    add("--master", metavar="URL", help="where Spark runs; default local[*]")


def _add_tables(parser: _Group) -> None:
    add = parser.add_argument
    add("--business-key", metavar="FIELD", help="field that identifies an entry to the business")
    add("--sent", metavar="TABLE", help="what was sent: finds what never arrived")
    add(
        "--sent-ms",
        metavar="COLUMN",
        help="its column with the time of sending, in milliseconds since 1970",
    )
    add(
        "--effects", metavar="TABLE", help="what had an effect: finds what was acknowledged without"
    )
    add(
        "--table-format",
        choices=TABLE_FORMATS,
        default="parquet",
        help="of these; a TABLE is a path, of jdbc URL#NAME",
    )
    add(
        "--table-key",
        metavar="COLUMN",
        help="their column with the business key; default: the name of the field",
    )
