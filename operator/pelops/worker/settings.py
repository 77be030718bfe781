"""Settings of a worker, from arguments or from variables that the operator injects.

`from_env` raises `WrongWorkerSettings`, which an application may catch. If it does not, Python
would print a traceback and exit with code 1, as for a bug. `ends_with_a_line` therefore wraps
`sys.excepthook`: for this exception the hook prints one line and exits with code 2. It passes all
others to the previous hook.
"""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from pelops.domain.endpoint import RedisEndpoint, build_endpoint, with_sentinel_login
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.errors import InvalidSpec
from pelops.worker.engine.retries import RetryPolicy
from pelops.worker.redaction import Redact

WRONG_SETTINGS: Final = 2  # the exit code

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class WrongWorkerSettings(InvalidSpec):
    """A variable or an argument is missing or invalid; the message names it."""


@contextmanager
def ends_with_a_line() -> Iterator[None]:
    """Report a WrongWorkerSettings that ends the process in one line, without a traceback."""
    try:
        yield
    except WrongWorkerSettings:
        if not isinstance(sys.excepthook, _Hook):
            sys.excepthook = _Hook(sys.excepthook)
        raise


class _Hook:
    def __init__(self, former: Hook) -> None:
        self._former = former

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        # At a prompt the exit code would end the session.
        if not isinstance(error, WrongWorkerSettings) or hasattr(sys, "ps1"):
            self._former(kind, error, trace)
            return
        print(f"pelops.worker: {error}", file=sys.stderr, flush=True)
        raise SystemExit(WRONG_SETTINGS)


_TLS_FILES: Final = {
    "ca.crt": "PELOPS_REDIS_CA_FILE",
    "tls.crt": "PELOPS_REDIS_CERT_FILE",
    "tls.key": "PELOPS_REDIS_KEY_FILE",
}
_PLAIN: Final = {
    "url": "PELOPS_REDIS_URL",
    "username": "PELOPS_REDIS_USERNAME",
    "password": "PELOPS_REDIS_PASSWORD",
}
_SPOKEN: Final = {  # terms of messages about resources, and those for variables
    "spec.redis.sentinel needs both a masterName and at least one node": (
        "set both PELOPS_REDIS_SENTINEL_MASTER and PELOPS_REDIS_SENTINEL_NODES, or neither"
    ),
    "spec.redis.tls is set and the URL": "PELOPS_REDIS_TLS is set and PELOPS_REDIS_URL",
    "no Redis URL: set spec.redis.url, or the key url of the Secret": "PELOPS_REDIS_URL is not set",
    "the key password": "PELOPS_REDIS_PASSWORD",
    "the Secret has a username": "PELOPS_REDIS_USERNAME is set",
    "the Secret needs both tls.crt and tls.key": (
        "set both PELOPS_REDIS_CERT_FILE and PELOPS_REDIS_KEY_FILE"
    ),
    "the Secret holds certificates": "PELOPS_REDIS_CA_FILE or PELOPS_REDIS_CERT_FILE is set",
    "the Redis URL": "PELOPS_REDIS_URL",
    "the URL": "PELOPS_REDIS_URL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """The group, the Redis endpoint and the consumer name of a worker. Its repr shows no secret."""

    endpoint: RedisEndpoint
    keys: GroupKeys
    consumer: str
    processing_timeout_ms: int = 30_000  # entries idle for longer are claimed
    field_prefix: str = "_"  # of the fields that recovery adds
    patience_s: float = 5.0  # how long the server may take for a reply
    deletes: bool = False  # XACKDEL entries that all groups have acknowledged


def read_endpoint(environment: Mapping[str, str]) -> RedisEndpoint:
    """Read the Redis endpoint from the variables that the operator sets.

    Raises InvalidSpec, which names the variable and not its value.
    """
    fields = {key: environment.get(name, "").encode() for key, name in _PLAIN.items()}
    fields |= {key: _read_file(name, environment.get(name)) for key, name in _TLS_FILES.items()}
    nodes = environment.get("PELOPS_REDIS_SENTINEL_NODES", "")
    try:
        endpoint = build_endpoint(
            secret={key: value for key, value in fields.items() if value},
            sentinel_master=environment.get("PELOPS_REDIS_SENTINEL_MASTER") or None,
            sentinel_nodes=[node for node in nodes.split(",") if node.strip()],
            tls=read_switch(environment, "PELOPS_REDIS_TLS"),
        )
    except InvalidSpec as error:
        raise InvalidSpec(_in_variables(str(error))) from error
    endpoint = with_sentinel_login(
        endpoint,
        username=environment.get("PELOPS_REDIS_SENTINEL_USERNAME"),
        password=environment.get("PELOPS_REDIS_SENTINEL_PASSWORD"),
    )
    server_name = environment.get("PELOPS_REDIS_TLS_SERVER_NAME") or None
    return replace(endpoint, server_name=server_name)


def _read_file(variable: str, path: str | None) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidSpec(f"{variable} names {path}, which cannot be read: {error}") from error


def _in_variables(message: str) -> str:
    for spoken, variables in _SPOKEN.items():
        message = message.replace(spoken, variables)
    return message


PROCESSING_TIMEOUT_MS: Final = 30_000  # without an operator to set it
GRACE_S: Final = 25.0  # less than the 30 s until Kubernetes sends SIGKILL
_LAST_PORT: Final = 65_535
_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}

T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of one worker. Each has a default."""

    processing_timeout_ms: int = (
        PROCESSING_TIMEOUT_MS  # without a heartbeat for longer, others may claim an entry
    )
    field_prefix: str = "_"  # of the fields that Pelops adds
    concurrency: int = 100
    prefetch: int = 1000  # maximum number of prefetched entries; fewer if they cannot start soon
    prefetch_bytes: int = 64 * 1024 * 1024
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_s: float | None = None  # for one run of a handler
    grace_s: float = GRACE_S  # from SIGTERM on
    acknowledge_s: float = 0.02  # how long an acknowledgement may wait for others
    acknowledge_count: int = 100
    blocked_s: float | None = None  # how long a blocked loop has heartbeats; see `spoken_for_s`
    max_entry_bytes: int = 8 * 1024 * 1024  # a larger one is not dead-lettered
    max_crashes: int | None = None  # processes that an entry may end while it runs in isolation
    batch_size: int = 100  # maximum size of a batch
    redact: Redact | None = None  # error text of dead letters; None: that of `redaction`
    health_port: int | None = None  # port for probes and metrics; None: none
    health_host: str | None = None  # None: all addresses

    def __post_init__(self) -> None:
        for attribute, (name, least) in _LEAST.items():
            value = getattr(self, attribute)
            # `not <=` also refuses NaN.
            if value is not None and not least <= value < float("inf"):
                raise WrongWorkerSettings(
                    f"{name} is {value}; it must be greater than or equal to {least:g}"
                )
        if self.health_port is not None and self.health_port > _LAST_PORT:
            raise WrongWorkerSettings(
                f"PELOPS_HEALTH_PORT is {self.health_port}; it must be less than or equal to "
                f"{_LAST_PORT}"
            )

    @property
    def idle_s(self) -> float:
        """The processing timeout."""
        return self.processing_timeout_ms / 1000

    @property
    def block_ms(self) -> int:
        """Milliseconds that a read may block; its entries may be idle for as long on arrival."""
        return max(min(1000, self.processing_timeout_ms // 6), 1)

    @property
    def spoken_for_s(self) -> float:
        """Seconds for which entries of a blocked event loop are refreshed: two timeouts, or 60."""
        return self.blocked_s if self.blocked_s is not None else max(2 * self.idle_s, 60.0)

    @classmethod
    def from_env(
        cls, environment: Mapping[str, str] | None = None, **chosen: object
    ) -> WorkerSettings:
        """Read settings from `PELOPS_*` variables; arguments override them.

        Raises WrongWorkerSettings, which names the variable. A process that it ends prints only
        that message.
        """
        with ends_with_a_line():
            return cls._read(os.environ if environment is None else environment, chosen)

    @classmethod
    def _read(cls, variables: Mapping[str, str], chosen: Mapping[str, object]) -> WorkerSettings:
        values: dict[str, object] = {
            "processing_timeout_ms": _number(
                variables, "PELOPS_IDLE_LIMIT_MS", int, PROCESSING_TIMEOUT_MS
            ),
            "field_prefix": variables.get("PELOPS_FIELD_PREFIX", "_"),
            "concurrency": _number(variables, "PELOPS_CONCURRENCY", int, 100),
            "prefetch": _number(variables, "PELOPS_PREFETCH", int, 1000),
            "retry": read_retry_policy(variables),
            "max_entry_bytes": _number(variables, "PELOPS_MAX_ENTRY_BYTES", int, 8 * 1024 * 1024),
            "max_crashes": _number(variables, "PELOPS_MAX_CRASHES", int, None),
            "timeout_s": _number(variables, "PELOPS_TIMEOUT_SECONDS", float, None),
            "grace_s": _number(variables, "PELOPS_GRACE_SECONDS", float, GRACE_S),
            "health_port": _number(variables, "PELOPS_HEALTH_PORT", int, None),
            "health_host": variables.get("PELOPS_HEALTH_HOST") or None,
        }
        return cls(**{**values, **chosen})  # type: ignore[arg-type]


def read_retry_policy(variables: Mapping[str, str]) -> RetryPolicy:
    """Read the number of retries and their backoff, as `spec.recovery` sets them.

    Raises WrongWorkerSettings, which names the variable.
    """
    default = RetryPolicy()
    return RetryPolicy(
        max_retries=_not_negative(variables, "PELOPS_MAX_RETRIES", int, default.max_retries),
        initial_s=_not_negative(
            variables, "PELOPS_BACKOFF_INITIAL_SECONDS", float, default.initial_s
        ),
        factor=_not_negative(variables, "PELOPS_BACKOFF_FACTOR", float, default.factor),
        max_s=_not_negative(variables, "PELOPS_BACKOFF_MAX_SECONDS", float, default.max_s),
    )


def _not_negative(
    variables: Mapping[str, str], name: str, kind: Callable[[str], N], default: N
) -> N:
    number = _number(variables, name, kind, default)
    if number is None or not 0 <= number < math.inf:
        raise WrongWorkerSettings(
            f"{name} is {number}; it must be a finite number greater than or equal to 0"
        )
    return number


def read_place(
    environment: Mapping[str, str] | None = None, *, deletes_acknowledged: bool | None = None
) -> WorkerPlace:
    """Read the endpoint, the group and the consumer name. Raises WrongWorkerSettings.

    `deletes_acknowledged` overrides `PELOPS_DELETE_ACKNOWLEDGED`, whose default is false.
    """
    variables = os.environ if environment is None else environment
    with ends_with_a_line():
        deletes = read_switch(variables, "PELOPS_DELETE_ACKNOWLEDGED")
        return _read_place(
            variables, deletes if deletes_acknowledged is None else deletes_acknowledged
        )


def _read_place(variables: Mapping[str, str], deletes: bool) -> WorkerPlace:
    settings = WorkerSettings.from_env(variables)
    try:
        return WorkerPlace(
            endpoint=read_endpoint(variables),
            keys=_read_keys(variables),
            consumer=variables.get("PELOPS_CONSUMER") or default_consumer(variables),
            processing_timeout_ms=settings.processing_timeout_ms,
            field_prefix=settings.field_prefix,
            deletes=deletes,
        )
    except WrongWorkerSettings:
        raise
    except InvalidSpec as error:
        raise WrongWorkerSettings(str(error)) from error


def default_consumer(environment: Mapping[str, str]) -> str:
    """Return `<pod>:<uid>`; outside a pod, the host name and the process ID."""
    pod, uid = environment.get("POD_NAME"), environment.get("POD_UID")
    if pod and uid:
        return f"{pod}:{uid}"
    return pod or f"{socket.gethostname()}-{os.getpid()}"


def _read_keys(variables: Mapping[str, str]) -> GroupKeys:
    """Derive all keys from stream and group; users may name the dead-letter stream."""
    stream, group = _required(variables, "PELOPS_STREAM"), _required(variables, "PELOPS_GROUP")
    try:
        return derive_keys(
            stream, group, dead_letter=variables.get("PELOPS_DEAD_LETTER_STREAM") or None
        )
    except InvalidSpec as error:
        raise WrongWorkerSettings(
            f"PELOPS_STREAM, PELOPS_GROUP or PELOPS_DEAD_LETTER_STREAM is invalid: {error}"
        ) from error


def _required(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name)
    if not value:
        raise WrongWorkerSettings(
            f"{name} is not set; `pelops env` prints the variables that a worker requires"
        )
    return value


def _number(
    variables: Mapping[str, str], name: str, kind: Callable[[str], T], default: T | None
) -> T | None:
    text = variables.get(name)
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise WrongWorkerSettings(
            f"{name}={text!r} is not a number: set a number, or unset the variable"
        ) from None


def read_switch(variables: Mapping[str, str], name: str) -> bool:
    """Whether a variable is true; false when it is not set."""
    text = variables.get(name) or "false"
    if text.lower() not in _WORDS:
        raise WrongWorkerSettings(f"{name}={text!r} must be true or false")
    return _WORDS[text.lower()]


_LEAST: Final[Mapping[str, tuple[str, float]]] = {
    "processing_timeout_ms": ("PELOPS_IDLE_LIMIT_MS", 50),
    "concurrency": ("PELOPS_CONCURRENCY", 1),
    "prefetch": ("PELOPS_PREFETCH", 0),
    "grace_s": ("PELOPS_GRACE_SECONDS", 0),
    "timeout_s": ("PELOPS_TIMEOUT_SECONDS", 0.001),
    "acknowledge_count": ("acknowledge_count", 1),
    "acknowledge_s": ("acknowledge_s", 0),
    "prefetch_bytes": ("prefetch_bytes", 1),
    "max_entry_bytes": ("PELOPS_MAX_ENTRY_BYTES", 1),
    "max_crashes": ("PELOPS_MAX_CRASHES", 1),
    "batch_size": ("batch_size", 1),
    "blocked_s": ("blocked_s", 0),
    "health_port": ("PELOPS_HEALTH_PORT", 0),
}
