"""Where the servers come from: the user's directory, the machine, the cache, or Debian.

`find_binaries` asks them in that order. What has to be fetched lands in the cache directory,
complete or not at all, and is fetched once even when several processes ask at the same time.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from local_cluster.progress import report, step
from local_cluster.redis_servers.debian import unpack_packages
from local_cluster.redis_servers.source_build import build_from_source
from local_cluster.redis_servers.versions import (
    VERSIONS,
    WISHED,
    NoSuchServer,
    RedisBinaries,
    Wished,
)

Way = Callable[[Wished, Path], None]  # fills a prefix so that its bin/ holds the programs

WAYS: tuple[tuple[str, Way], ...] = (
    ("unpacking Debian packages", unpack_packages),
    ("building from Debian's source package", build_from_source),
)


def find_binaries(key: str) -> RedisBinaries:
    """The programs for one of `VERSIONS`, installed into the cache when the machine has none.

    Raises NoSuchServer, whose text says what can be done about it.
    """
    if key not in WISHED:
        raise NoSuchServer(f"no such version: {key!r}; there are {', '.join(VERSIONS)}")
    wished = WISHED[key]
    return _find_installed(wished) or _install(wished)


def is_installed(key: str) -> bool:
    """Whether `find_binaries` finds the programs for one of `VERSIONS` without an installation.

    Raises NoSuchServer when the directory that the user named does not have them.
    """
    return _find_installed(WISHED[key]) is not None


def _find_installed(wished: Wished) -> RedisBinaries | None:
    return _named_by_user(wished) or _on_path(wished) or _cached(wished)


def cache_dir() -> Path:
    """Where servers are kept between runs: `$PELOPS_CACHE/redis`, or `~/.cache/pelops/redis`."""
    root = os.environ.get("PELOPS_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "pelops") / "redis"


def _named_by_user(wished: Wished) -> RedisBinaries | None:
    named = os.environ.get(wished.environment)
    if not named:
        return None
    found = _look_into(Path(named), wished) or _look_into(Path(named) / "bin", wished)
    if found is None:
        raise NoSuchServer(
            f"{wished.environment}={named} holds no {wished.program}-server and "
            f"{wished.program}-cli of {wished.wording}"
        )
    return found


def _on_path(wished: Wished) -> RedisBinaries | None:
    for folder in os.get_exec_path():
        found = _look_into(Path(folder), wished)
        if found is not None:
            return found
    return None


def _cached(wished: Wished) -> RedisBinaries | None:
    return _look_into(cache_dir() / wished.key / "bin", wished)


def _look_into(folder: Path, wished: Wished) -> RedisBinaries | None:
    server, cli = folder / f"{wished.program}-server", folder / f"{wished.program}-cli"
    if not (os.access(server, os.X_OK) and os.access(cli, os.X_OK)):
        return None
    version = _version_of(server, wished.program)
    if version is None or not wished.fits(tuple(int(part) for part in version.split("."))):
        return None
    return RedisBinaries(
        key=wished.key, flavour=wished.program, version=version, server=server, cli=cli
    )


def _version_of(server: Path, program: str) -> str | None:
    """None when it does not run, or is something else under that name."""
    try:
        answer = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Valkey installs a redis-server of its own for compatibility: its answer begins with Valkey.
    found = re.match(rf"{program} server v=(\d+\.\d+\.\d+)", answer.stdout, re.IGNORECASE)
    return found.group(1) if found else None


def _install(wished: Wished) -> RedisBinaries:
    with _only_one(wished):
        found = _cached(wished)
        if found is not None:  # by the process that held the lock before
            return found
        complaints = []
        for name, way in WAYS:
            try:
                with step(f"{wished.wording}: {name}"):
                    return _install_by(way, wished)
            except (OSError, RuntimeError, subprocess.SubprocessError) as failure:
                complaints.append(f"{name}: {failure}")
    raise NoSuchServer(_advice(wished, complaints))


def _install_by(way: Way, wished: Wished) -> RedisBinaries:
    prefix = cache_dir() / wished.key
    with _prefix_being_made(wished) as made:
        way(wished, made)
        if _look_into(made / "bin", wished) is None:
            raise NoSuchServer(f"what it gave is not {wished.wording}, or does not run here")
        shutil.rmtree(prefix, ignore_errors=True)  # of another version, or broken by hand
        made.rename(prefix)
    found = _cached(wished)
    if found is None:
        raise NoSuchServer(f"{prefix} stopped working when it was moved into place")
    report(f"{found.flavour} {found.version} is in {prefix}")
    return found


@contextmanager
def _only_one(wished: Wished) -> Iterator[None]:
    """Hold the lock for installing this version; the kernel frees it if this process dies."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{wished.key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that installs {wished.wording}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _prefix_being_made(wished: Wished) -> Iterator[Path]:
    """An empty directory beside the final one; also clears away what a killed installer left."""
    for leftover in cache_dir().glob(f".{wished.key}.making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f".{wished.key}.making-", dir=cache_dir()))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _advice(wished: Wished, complaints: list[str]) -> str:
    tried = "\n".join(f"  tried {complaint}" for complaint in complaints)
    return (
        f"{wished.wording} is not on this machine and could not be fetched.\n{tried}\n"
        f"Put {wished.program}-server and {wished.program}-cli of {wished.wording} on PATH, "
        f"or set {wished.environment} to the directory that holds them."
    )
