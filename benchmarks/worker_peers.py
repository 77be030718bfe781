"""Other people's workers: an environment of their own, made once and kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from local_cluster.binaries import cache_directory
from local_cluster.progress import step

# Pinned: another version would be another measurement. The Redis client is that of Pelops.
PACKAGES: Final = (
    "faststream[redis]==0.7.8",
    "taskiq==0.13.0",
    "taskiq-redis==1.2.4",
    "redis==8.1.0",
    "hiredis==3.5.0",
)
INSTALL_TIMEOUT_S: Final = 600.0


class NoPeers(Exception):
    """They cannot be installed here; the message says why."""


def installed_peers() -> Path | None:
    """The Python that has PACKAGES, if they were installed before."""
    home = _home()
    # Written last: an environment that was broken off half-way does not have it.
    return home / "bin" / "python" if (home / "complete").exists() else None


def peers_python() -> Path:
    """The Python that has PACKAGES, after they were installed if need be; raises NoPeers."""
    python = installed_peers()
    if python is None:
        with step(f"installing {', '.join(PACKAGES)}"):
            _install(_home())
        python = _home() / "bin" / "python"
    return python


def _home() -> Path:
    reported = "\n".join([sys.version, *PACKAGES]).encode()
    return cache_directory() / f"bench-{hashlib.sha256(reported).hexdigest()[:16]}"


def _install(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for command in ([sys.executable, "-m", "venv", str(home)], [*pip, *PACKAGES]):
        _run(command)
    (home / "complete").write_text("\n".join(PACKAGES))


def _run(command: list[str]) -> None:
    with tempfile.TemporaryFile("w+") as said:
        try:
            subprocess.run(command, check=True, stdout=said, stderr=said, timeout=INSTALL_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            said.seek(0)
            lines = said.read().strip().splitlines()
            raise NoPeers(lines[-1] if lines else str(error)) from error
