"""The settings of a run, from arguments or from variables that the operator sets.

They include the location of Redis, for the driver and for the data source.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pelops.domain.destinations import (
    CredentialGrant,
    parse_address_rules,
    parse_host_patterns,
)
from pelops.domain.endpoint import (
    RedisEndpoint,
    build_endpoint,
    parse_redis_url,
    with_sentinel_login,
)
from pelops.domain.naming import derive_keys
from pelops.domain.records.audit import Certainty, check_audit_name
from pelops.errors import InvalidSpec
from pelops.pipeline.errors import WrongPipelineSettings

STUCK_AFTER_MS: Final = 300_000
_SCHEME_ALONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*")
# Exit codes.
BALANCED, BROKEN, UNUSABLE, FOUND, UNPROVEN, INTERRUPTED = 0, 1, 2, 3, 4, 130


class ArchivedPayload(StrEnum):
    """The part of an entry's fields that is archived."""

    NONE = "none"
    HASH = "hash"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTarget:
    """A group to audit."""

    stream: str
    group: str
    dead_letter: str | None = None  # None: the default
    field_prefix: str = "_"
    stuck_after_ms: int = STUCK_AFTER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTable:
    """A table of the user: sent entries, or effects."""

    path: str  # for JDBC: URL, `#` and table
    format: str = "parquet"
    key: str = "id"  # the table's column with the business key
    at_ms: str | None = None  # its column with a time in milliseconds since 1970

    @property
    def shown(self) -> str:
        """The path for messages, without a password, which may follow `?` or `;` in a URL."""
        if self.format != "jdbc":
            return self.path
        url, _, name = self.path.rpartition("#")
        return f"{name} of {re.split('[?;]', url.rpartition('@')[2], maxsplit=1)[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisPlace:
    """One Redis, as an endpoint and as options of the data source."""

    endpoint: RedisEndpoint
    options: Mapping[str, str]  # of the data source; with the variable of a password, not its value

    @property
    def address(self) -> str:
        return self.endpoint.address


def _whole(value: Any, info: ValidationInfo) -> int | None:
    """Parse a whole number, which a variable has as text."""
    text = str(value)
    if value is None or (text.isascii() and text.isdigit() and len(text) <= 10):
        return None if value is None else int(text)
    name = _VARIABLE_OF.get(info.field_name or "", str(info.field_name).upper())
    raise WrongPipelineSettings(f"PELOPS_AUDIT_{name} is {text!r}; it must be a whole number")


def _seconds(value: Any, info: ValidationInfo) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    found = _whole(value, info)
    return None if found is None else timedelta(seconds=found)


def _check_archive(archive: str) -> str:
    if not archive.strip():
        raise WrongPipelineSettings("no archive: give --archive PATH, or PELOPS_AUDIT_ARCHIVE")
    if _SCHEME_ALONE.fullmatch(archive):
        raise WrongPipelineSettings(
            f"the archive {archive} has no path behind its scheme: give --archive "
            "(PELOPS_AUDIT_ARCHIVE) an address such as s3a://BUCKET/PREFIX or file:/DIRECTORY"
        )
    return archive.rstrip("/") or "/"


def _check_name(name: str | None) -> str | None:
    try:
        return None if name is None else check_audit_name(name)
    except InvalidSpec as error:
        raise WrongPipelineSettings(f"PELOPS_AUDIT_NAME: {error}") from error


def _read_payload(value: Any) -> Any:
    if value not in set(ArchivedPayload):
        raise WrongPipelineSettings(
            f"PELOPS_AUDIT_PAYLOAD is {value!r}; it must be one of {', '.join(ArchivedPayload)}"
        )
    return value


def _read_groups(value: Any) -> Any:
    """Parse the groups of `PELOPS_AUDIT_GROUPS`, a JSON list."""
    if not isinstance(value, str):
        return value
    try:
        groups = json.loads(value)
    except ValueError as error:
        raise WrongPipelineSettings("PELOPS_AUDIT_GROUPS holds no JSON") from error
    if not isinstance(groups, list):
        raise WrongPipelineSettings("PELOPS_AUDIT_GROUPS is not a JSON list")
    return tuple(dict.fromkeys(map(_read_target, groups)))


def _read_target(fields: Any) -> AuditTarget:
    try:
        target = AuditTarget(
            stream=str(fields["stream"]),
            group=str(fields["group"]),
            dead_letter=fields.get("dead_letter") or None,
            field_prefix=str(fields.get("field_prefix", "_")),
            stuck_after_ms=int(fields.get("stuck_after_ms", STUCK_AFTER_MS)),
        )
        derive_keys(target.stream, target.group, dead_letter=target.dead_letter)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WrongPipelineSettings(f"PELOPS_AUDIT_GROUPS names no group: {fields!r}") from error
    except InvalidSpec as error:
        raise WrongPipelineSettings(str(error)) from error
    return target


_PREFIX: Final = "PELOPS_AUDIT_"
# Variables whose name differs from their field.
_VARIABLE_OF: Final = {
    "targets": "GROUPS",
    "pattern": "STREAM_PATTERN",
    "window": "WINDOW_SECONDS",
    "retention": "RETENTION_SECONDS",
    "deadline": "DEADLINE_SECONDS",
    "unproven_exit": "FINDINGS_EXIT",
}
Whole = Annotated[int, BeforeValidator(_whole)]
Seconds = Annotated[timedelta | None, BeforeValidator(_seconds)]


def _from(field: str, default: Any) -> Any:
    """A field whose variable has another name."""
    return Field(default=default, validation_alias=_PREFIX + _VARIABLE_OF[field])


class PipelineSettings(BaseSettings):
    """Settings of one run: arguments, or else variables `PELOPS_AUDIT_*`, or else defaults.

    Raises WrongPipelineSettings, with the name of the variable.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, populate_by_name=True, validate_default=True,
        frozen=True, extra="forbid", arbitrary_types_allowed=True,
    )  # fmt: skip

    place: RedisPlace
    archive: Annotated[str, AfterValidator(_check_archive)] = ""
    targets: Annotated[tuple[AuditTarget, ...], NoDecode, BeforeValidator(_read_groups)] = _from(
        "targets", ()
    )
    pattern: str | None = _from("pattern", None)  # instead of targets
    name: Annotated[str | None, AfterValidator(_check_name)] = None  # None: no record in Redis
    window: Seconds = _from("window", None)  # None: one window up to now
    stuck_after_ms: Whole = STUCK_AFTER_MS
    payload: Annotated[ArchivedPayload, BeforeValidator(_read_payload)] = ArchivedPayload.HASH
    retention: Seconds = _from("retention", None)
    deadline: Seconds = _from("deadline", None)
    aof_path: str | None = None
    findings_exit: Whole = FOUND
    # The verdict is unknown, or less certain than `require`.
    unproven_exit: Whole = _from("unproven_exit", UNPROVEN)
    require: Certainty = Certainty.INFERRED  # the least certainty that counts as balanced
    business_key: str | None = None  # a field of the entries
    sent: UserTable | None = None
    effects: UserTable | None = None
    master: str | None = None
    memory_mib: Annotated[int | None, BeforeValidator(_whole)] = None
    s3_endpoint: str | None = None
    s3_region: str | None = None


def read_settings(chosen: argparse.Namespace) -> PipelineSettings:
    """Read the settings of a run from arguments and environment. Raises WrongPipelineSettings."""
    given = {
        "targets": _targets_of(chosen),
        "pattern": chosen.stream_pattern,
        "archive": chosen.archive,
        "name": chosen.name,
        "window": chosen.window_seconds,
        "stuck_after_ms": chosen.stuck_after_seconds and 1000 * chosen.stuck_after_seconds,
        "payload": chosen.payload,
        "aof_path": chosen.aof_path,
        "require": chosen.require,
        "business_key": chosen.business_key,
        "sent": _read_table(chosen, chosen.sent, chosen.sent_ms),
        "effects": _read_table(chosen, chosen.effects),
        "master": chosen.master,
    }
    place = _read_place(chosen, os.environ)
    settings = PipelineSettings(
        place=place, **{name: value for name, value in given.items() if value is not None}
    )
    if not settings.targets and not settings.pattern:
        raise WrongPipelineSettings(
            "nothing to audit: give --stream and --group, PELOPS_AUDIT_GROUPS or "
            "PELOPS_AUDIT_STREAM_PATTERN"
        )
    changes: dict[str, Any] = {"pattern": None} if settings.targets else {}
    if "stuck_after_ms" in settings.model_fields_set:
        changes["targets"] = tuple(
            replace(one, stuck_after_ms=settings.stuck_after_ms) for one in settings.targets
        )
    return settings.model_copy(update=changes)


def _targets_of(chosen: argparse.Namespace) -> tuple[AuditTarget, ...] | None:
    if chosen.stream is None:
        return None
    if not chosen.group:
        raise WrongPipelineSettings("--stream needs at least one --group")
    groups = dict.fromkeys(chosen.group)
    return tuple(_read_target({"stream": chosen.stream, "group": group}) for group in groups)


def _read_place(chosen: argparse.Namespace, environment: Mapping[str, str]) -> RedisPlace:
    if chosen.redis_url:
        _refuse_password(chosen.redis_url)
    url = chosen.redis_url or environment.get("PELOPS_REDIS_URL")
    if not url and not environment.get("PELOPS_REDIS_SENTINEL_NODES"):
        raise WrongPipelineSettings(
            "no Redis: give --redis-url redis://host:port/db, or PELOPS_REDIS_URL"
        )
    try:
        return read_place(environment, chosen.redis_url)
    except WrongPipelineSettings as error:
        if not chosen.redis_url:
            raise
        text = str(error).removeprefix("PELOPS_REDIS_*: ")
        raise WrongPipelineSettings(f"--redis-url: {text}") from error


def _refuse_password(url: str) -> None:
    try:
        has_password = parse_redis_url(url).password is not None
    except InvalidSpec:
        return  # reported when the settings are read
    if has_password:
        raise WrongPipelineSettings(
            "--redis-url holds a password, and everybody on this machine can read the arguments of "
            "a process: give the URL by --redis-url-file or PELOPS_REDIS_URL, or the password by "
            "PELOPS_REDIS_PASSWORD. Change the password if others can log in here"
        )


def read_url_file(path: str) -> str:
    """Read a URL from a file. Raises WrongPipelineSettings, which names only the file."""
    content = _read_file("--redis-url-file", path).decode(errors="replace").strip()
    if not content:
        raise WrongPipelineSettings(f"--redis-url-file names {path}, which is empty")
    return content


def _read_table(
    chosen: argparse.Namespace, path: str | None, at_ms: str | None = None
) -> UserTable | None:
    if path is None:
        return None
    if not chosen.business_key:
        raise WrongPipelineSettings(
            f"{path} requires --business-key: the field that identifies an entry"
        )
    if chosen.table_format == "jdbc" and not all(path.rpartition("#")[::2]):
        raise WrongPipelineSettings(
            f"{path} is not a table for --table-format jdbc: write jdbc:...#TABLE"
        )
    key = chosen.table_key or chosen.business_key
    return UserTable(path=path, format=chosen.table_format, key=key, at_ms=at_ms)


PASSWORD: Final = "PELOPS_REDIS_PASSWORD"
SENTINEL_USERNAME: Final = "PELOPS_REDIS_SENTINEL_USERNAME"
SENTINEL_PASSWORD: Final = "PELOPS_REDIS_SENTINEL_PASSWORD"
SERVER_NAME: Final = "PELOPS_REDIS_TLS_SERVER_NAME"
_PLAIN: Final = {
    "url": "PELOPS_REDIS_URL",
    "username": "PELOPS_REDIS_USERNAME",
    "password": PASSWORD,
}
_FILES: Final = {
    "ca.crt": ("tlsCaFile", "PELOPS_REDIS_CA_FILE"),
    "tls.crt": ("tlsCertFile", "PELOPS_REDIS_CERT_FILE"),
    "tls.key": ("tlsKeyFile", "PELOPS_REDIS_KEY_FILE"),
}


# Set by the operator: hosts that a job may connect to and send its credentials to.
_DESTINATIONS: Final = {
    "allowedNetworks": "PELOPS_ALLOWED_NETWORKS",
    "allowedHosts": "PELOPS_ALLOWED_HOSTS",
    "credentialHosts": "PELOPS_REDIS_HOSTS",
}


def read_place(environment: Mapping[str, str], url: str | None = None) -> RedisPlace:
    """Read the location of Redis from the variables that the operator sets, or from a URL.

    Raises WrongPipelineSettings, which names the variable and not its value.
    """
    variables = {**environment, **({"PELOPS_REDIS_URL": url} if url else {})}
    fields = {key: variables.get(name, "").encode() for key, name in _PLAIN.items()}
    fields |= {key: _read_file(name, variables.get(name)) for key, (_, name) in _FILES.items()}
    nodes = variables.get("PELOPS_REDIS_SENTINEL_NODES", "")
    try:
        endpoint = build_endpoint(
            secret={key: value for key, value in fields.items() if value},
            sentinel_master=variables.get("PELOPS_REDIS_SENTINEL_MASTER") or None,
            sentinel_nodes=[node for node in nodes.split(",") if node.strip()],
            tls=variables.get("PELOPS_REDIS_TLS", "").lower() == "true",
        )
    except InvalidSpec as error:
        raise WrongPipelineSettings(f"PELOPS_REDIS_*: {error}") from error
    endpoint = with_sentinel_login(
        _confine(endpoint, variables),
        username=variables.get(SENTINEL_USERNAME),
        password=variables.get(SENTINEL_PASSWORD),
    )
    endpoint = replace(endpoint, server_name=variables.get(SERVER_NAME) or None)
    return RedisPlace(endpoint=endpoint, options=_source_options(endpoint, variables))


def _with_own(listed: str, endpoint: RedisEndpoint) -> str:
    return f"{listed},{endpoint.node}" if listed and endpoint.sentinel is None else listed


def _confine(endpoint: RedisEndpoint, variables: Mapping[str, str]) -> RedisEndpoint:
    """Add the limits on addresses and credentials that the operator sets, if any."""
    networks, names, listed = (variables.get(name, "") for name in _DESTINATIONS.values())
    # The operator has checked the address, which may come from the Secret and not be listed.
    hosts = _with_own(listed, endpoint)
    try:
        return replace(
            endpoint,
            rules=parse_address_rules(networks, names) if networks or names else None,
            grant=CredentialGrant(owner="this job", hosts=parse_host_patterns(hosts))
            if hosts
            else None,
        )
    except ValueError as error:
        raise WrongPipelineSettings(
            f"{', '.join(_DESTINATIONS.values())}: one of them cannot be read: {error}"
        ) from error


def on_cluster(place: RedisPlace) -> RedisPlace:
    """The same place with the options for a cluster."""
    options = {**place.options, "topology": "cluster"}
    options.pop("db", None)
    return RedisPlace(endpoint=place.endpoint, options=options)


def _source_options(endpoint: RedisEndpoint, variables: Mapping[str, str]) -> dict[str, str]:
    options = {"db": str(endpoint.db), "tls": str(endpoint.tls).lower()}
    if endpoint.sentinel is None:
        options |= {"host": endpoint.node.host, "port": str(endpoint.node.port)}
    else:
        options |= {
            "topology": "sentinel",
            # As JSON: otherwise a leading IPv6 address in brackets would be parsed as JSON.
            "sentinels": json.dumps([str(node) for node in endpoint.sentinel.nodes]),
            "sentinelMaster": endpoint.sentinel.master_name,
        }
        if endpoint.sentinel.password:
            options["sentinelPasswordEnv"] = SENTINEL_PASSWORD
        if endpoint.sentinel.username:
            options["sentinelUsername"] = endpoint.sentinel.username
    if endpoint.server_name:
        options["tlsServerName"] = endpoint.server_name
    if endpoint.username:
        options["username"] = endpoint.username
    if endpoint.password:
        # Spark shows options in plans, so only the name of the variable is passed.
        by_url = {"passwordUrlEnv": _PLAIN["url"]}
        options |= {"passwordEnv": PASSWORD} if variables.get(PASSWORD) else by_url
    limits = {option: variables.get(name, "") for option, name in _DESTINATIONS.items()}
    limits["credentialHosts"] = _with_own(limits["credentialHosts"], endpoint)
    options |= {option: text for option, text in limits.items() if text}
    files = {option: variables.get(name) for option, name in _FILES.values()}
    return options | {option: path for option, path in files.items() if path and endpoint.tls}


def _read_file(variable: str, path: str | None) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise WrongPipelineSettings(
            f"{variable} names {path}, which cannot be read: {error}"
        ) from error
