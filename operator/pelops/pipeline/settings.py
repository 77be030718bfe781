"""What a run is told: by the environment that the operator sets, or by arguments."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from pelops.domain.audit_record import check_audit_name
from pelops.domain.naming import derive_keys
from pelops.errors import InvalidSpec
from pelops.pipeline.errors import WrongSettings
from pelops.pipeline.place import Place, read_place

STUCK_AFTER_MS: Final = 300_000
BALANCED, BROKEN, UNUSABLE, FOUND = 0, 1, 2, 3  # exit codes


class Payload(StrEnum):
    """What of an entry's fields is archived."""

    NONE = "none"
    HASH = "hash"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A group to audit."""

    stream: str
    group: str
    dead_letter: str | None = None  # where it is not the default
    field_prefix: str = "_"
    stuck_after_ms: int = STUCK_AFTER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the user's own: what was sent, or what had an effect."""

    path: str  # of JDBC: its URL, #, and the table
    format: str = "parquet"
    key: str = "id"  # the table's column with the business key
    at_ms: str | None = None  # its column with a time in milliseconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One run."""

    place: Place
    archive: str
    targets: tuple[Target, ...] = ()
    pattern: str | None = None  # in place of targets
    name: str | None = None  # under which the summaries are recorded; None: they are not
    window: timedelta | None = None  # None: one window up to now
    stuck_after_ms: int = STUCK_AFTER_MS
    payload: Payload = Payload.HASH
    retention: timedelta | None = None
    deadline: timedelta | None = None
    aof_path: str | None = None
    findings_exit: int = FOUND
    business_key: str | None = None  # a field of the entries
    sent: Table | None = None
    effects: Table | None = None
    master: str | None = None
    memory_mib: int | None = None
    s3_endpoint: str | None = None
    s3_region: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that all commands take; each wins over its variable."""
    add = parser.add_argument
    add("--redis-url", help="PELOPS_REDIS_URL")
    add("--stream", help="the stream, with --group")
    add("--group", action="append", default=[], help="a group of --stream; may be repeated")
    add(
        "--stream-pattern",
        help="every group of every stream that fits (PELOPS_AUDIT_STREAM_PATTERN)",
    )
    add("--archive", help="where the archive begins (PELOPS_AUDIT_ARCHIVE)")
    add("--name", help="record the summaries under this name (PELOPS_AUDIT_NAME)")
    add("--window-seconds", help="length of a window; default: up to now")
    add("--stuck-after-seconds", help="when a pending entry counts as stuck")
    add("--payload", choices=[*Payload], help="what of the fields is archived")
    add("--aof-path", help="directory with append-only files (PELOPS_AUDIT_AOF_PATH)")
    add("--business-key", help="field that identifies an entry to the business")
    add("--sent", help="table of what was sent: what never arrived is found by the business key")
    add("--sent-ms", help="its column with the time of sending, in milliseconds since 1970")
    add("--effects", help="table of what had an effect: what was acknowledged without is found")
    add("--table-format", default="parquet", help="of these: parquet, csv, json, jdbc (URL#TABLE)")
    add("--table-key", help="their column with the business key; default: the name of the field")
    add("--master", help="where Spark runs; default local[*]")


def read_settings(chosen: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings of a run. Raises WrongSettings with the name of the variable or argument."""
    told = _Told(environment)
    stuck_after_ms = _stuck_after(chosen, told)
    targets = _read_targets(chosen, told, stuck_after_ms)
    pattern = chosen.stream_pattern or told.text("PELOPS_AUDIT_STREAM_PATTERN")
    if not targets and not pattern:
        raise WrongSettings(
            "nothing to audit: give --stream and --group, PELOPS_AUDIT_GROUPS or "
            "PELOPS_AUDIT_STREAM_PATTERN"
        )
    return Settings(
        place=read_place(environment, chosen.redis_url),
        archive=_required(chosen.archive or told.text("PELOPS_AUDIT_ARCHIVE")),
        targets=targets,
        pattern=None if targets else pattern,
        name=_read_name(chosen.name or told.text("PELOPS_AUDIT_NAME")),
        window=_seconds(chosen.window_seconds, told, "PELOPS_AUDIT_WINDOW_SECONDS"),
        stuck_after_ms=stuck_after_ms or STUCK_AFTER_MS,
        payload=_read_payload(chosen.payload or told.text("PELOPS_AUDIT_PAYLOAD")),
        retention=told.span("PELOPS_AUDIT_RETENTION_DAYS", timedelta(days=1)),
        deadline=told.span("PELOPS_AUDIT_DEADLINE_SECONDS", timedelta(seconds=1)),
        aof_path=chosen.aof_path or told.text("PELOPS_AUDIT_AOF_PATH"),
        findings_exit=told.number("PELOPS_AUDIT_FINDINGS_EXIT", FOUND),
        business_key=chosen.business_key,
        sent=_read_table(chosen, chosen.sent, chosen.sent_ms),
        effects=_read_table(chosen, chosen.effects),
        master=chosen.master,
        memory_mib=told.number("PELOPS_AUDIT_MEMORY_MIB", 0) or None,
        s3_endpoint=told.text("PELOPS_AUDIT_S3_ENDPOINT"),
        s3_region=told.text("PELOPS_AUDIT_S3_REGION"),
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """Variables, read with their names in every error."""

    variables: Mapping[str, str]

    def text(self, name: str) -> str | None:
        return self.variables.get(name) or None

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        return default if text is None else _whole(name, text)

    def span(self, name: str, unit: timedelta) -> timedelta | None:
        text = self.text(name)
        return None if text is None else _whole(name, text) * unit


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise WrongSettings(f"{name} is {text!r}; it must be a whole number")
    return int(text)


def _seconds(chosen: str | None, told: _Told, variable: str) -> timedelta | None:
    if chosen is not None:
        return timedelta(seconds=_whole("--window-seconds", chosen))
    return told.span(variable, timedelta(seconds=1))


def _stuck_after(chosen: argparse.Namespace, told: _Told) -> int | None:
    if chosen.stuck_after_seconds is not None:
        return 1000 * _whole("--stuck-after-seconds", chosen.stuck_after_seconds)
    return told.number("PELOPS_AUDIT_STUCK_AFTER_MS", 0) or None


def _read_targets(
    chosen: argparse.Namespace, told: _Told, stuck_after_ms: int | None
) -> tuple[Target, ...]:
    if chosen.stream is not None:
        if not chosen.group:
            raise WrongSettings("--stream needs at least one --group")
        told_groups: Sequence[Any] = [
            {"stream": chosen.stream, "group": group} for group in chosen.group
        ]
    else:
        text = told.text("PELOPS_AUDIT_GROUPS")
        told_groups = _load_list("PELOPS_AUDIT_GROUPS", text) if text else []
    targets = [_read_target(one, stuck_after_ms) for one in told_groups]
    return tuple(dict.fromkeys(targets))


def _load_list(name: str, text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongSettings(f"{name} holds no JSON") from error
    if not isinstance(found, list):
        raise WrongSettings(f"{name} holds no JSON list")
    return found


def _read_target(found: Any, stuck_after_ms: int | None) -> Target:
    try:
        target = Target(
            stream=str(found["stream"]),
            group=str(found["group"]),
            dead_letter=found.get("dead_letter") or None,
            field_prefix=str(found.get("field_prefix", "_")),
            stuck_after_ms=stuck_after_ms or int(found.get("stuck_after_ms", STUCK_AFTER_MS)),
        )
        derive_keys(target.stream, target.group, dead_letter=target.dead_letter)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WrongSettings(f"PELOPS_AUDIT_GROUPS names no group: {found!r}") from error
    except InvalidSpec as error:
        raise WrongSettings(str(error)) from error
    return target


def _required(archive: str | None) -> str:
    if not archive:
        raise WrongSettings("PELOPS_AUDIT_ARCHIVE is not set, and no --archive was given")
    return archive.rstrip("/") or "/"


def _read_name(name: str | None) -> str | None:
    try:
        return None if name is None else check_audit_name(name)
    except InvalidSpec as error:
        raise WrongSettings(f"PELOPS_AUDIT_NAME: {error}") from error


def _read_payload(text: str | None) -> Payload:
    try:
        return Payload(text or Payload.HASH)
    except ValueError as error:
        raise WrongSettings(
            f"PELOPS_AUDIT_PAYLOAD is {text!r}; it must be one of {', '.join(Payload)}"
        ) from error


def _read_table(
    chosen: argparse.Namespace, path: str | None, at_ms: str | None = None
) -> Table | None:
    if path is None:
        return None
    if not chosen.business_key:
        raise WrongSettings(f"{path} needs --business-key: the field by which entries are known")
    key = chosen.table_key or chosen.business_key
    return Table(path=path, format=chosen.table_format, key=key, at_ms=at_ms)
