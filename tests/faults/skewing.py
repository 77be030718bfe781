"""Processes whose clock is wrong, by libfaketime: from the machine, or out of its package."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from local_cluster.binaries import cache_directory

NAME = "libfaketime.so.1"
INSTALLED = Path("/usr/lib")
TIMEOUT_S = 120


class NoFaketime(Exception):
    """libfaketime is neither here nor to be had; the text says what to do."""


def skewed_environment(seconds: float) -> Mapping[str, str]:
    """Variables under which a program's clock is ahead by so much; its timers do not change.

    Empty for none. Raises NoFaketime.
    """
    if not seconds:
        return {}
    return {
        "LD_PRELOAD": str(_find_library()),
        "FAKETIME": f"{seconds:+g}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }


@contextmanager
def skewed_start(seconds: float) -> Iterator[None]:
    """Give this clock to processes that are started within the block."""
    wanted = skewed_environment(seconds)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _find_library() -> Path:
    cache = cache_directory() / "faketime"
    for place in (INSTALLED, cache):
        found = sorted(place.glob(f"**/faketime/{NAME}"))
        if found:
            return found[0]
    _fetch(cache)
    return next(cache.glob(f"**/faketime/{NAME}"))


def _fetch(cache: Path) -> None:
    """Another process may fetch it too: what is there is whole."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as making:
        made = Path(making)
        try:
            _run(["apt-get", "download", "libfaketime"], made)
            _run(["dpkg-deb", "-x", str(next(made.glob("libfaketime*.deb"))), "it"], made)
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            raise NoFaketime("install the package libfaketime; it could not be fetched") from error
        with suppress(OSError):  # the other one was faster
            (made / "it").rename(cache)


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(
        command,
        cwd=directory,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
