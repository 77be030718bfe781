"""Which servers stand side by side here: what each is called, and what counts as it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Numbers = tuple[int, ...]


class NoSuchServer(RuntimeError):
    """A wished server is neither on this machine nor to be had; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """One of the servers that can be asked for."""

    key: str  # what users type, and the name below the cache directory
    program: str  # "redis" or "valkey": server, cli and benchmark begin with it
    wording: str
    fits: Callable[[Numbers], bool]
    environment: str  # names a directory that holds the programs, and wins over everything else
    suites: tuple[str, ...]  # Debian suites that carry it; the last one is the likeliest


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisBinaries:
    """The programs of one server, which were run and answered with `version`."""

    key: str
    flavour: str  # "redis" or "valkey"
    version: str  # such as "8.6.3"
    server: Path
    cli: Path


WISHED = {
    wished.key: wished
    for wished in (
        Wished(
            key="8.6",
            program="redis",
            wording="Redis 8.4 or newer",
            fits=lambda numbers: numbers >= (8, 4),
            environment="PELOPS_REDIS_86",
            suites=("sid", "experimental"),
        ),
        Wished(
            key="7.0",
            program="redis",
            wording="Redis 7.0",
            fits=lambda numbers: numbers[:2] == (7, 0),
            environment="PELOPS_REDIS_70",
            suites=("bookworm",),
        ),
        Wished(
            key="valkey",
            program="valkey",
            wording="Valkey 9 or newer",
            fits=lambda numbers: numbers >= (9, 0),
            environment="PELOPS_VALKEY",
            suites=("sid",),
        ),
    )
}
VERSIONS = tuple(WISHED)
