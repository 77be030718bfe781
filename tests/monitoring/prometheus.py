"""A real Prometheus for tests: where its programs come from, and a server over recorded samples.

The programs are those on PATH, or those of Debian's package, unpacked into the cache directory.
Nothing is installed.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.binaries import cache_directory
from local_cluster.processes import free_port, start_process, wait_until
from local_cluster.redis_servers.debian import apt_area, run_quietly
from local_cluster.redis_servers.versions import NoSuchServer, Wished
from tests.monitoring.recording import Recording

START_S = 120.0
ANSWER_S = 120.0
LOAD_S = 300.0
_DEBIAN = Wished(
    key="prometheus",
    program="prometheus",
    wording="Prometheus",
    fits=lambda _: True,
    environment="",
    suites=("bookworm",),
)


class NoPrometheus(Exception):
    """The programs are neither on this machine nor to be had; the text gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of one version of Prometheus."""

    prometheus: Path
    promtool: Path


@functools.cache
def find_programs(*, fetch: bool = True) -> Programs:
    """Return the programs: from PATH, from the cache, or (`fetch`) from Debian's package.

    Raises NoPrometheus.
    """
    on_path = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(on_path):
        prometheus, promtool = (Path(str(path)) for path in on_path)
        return Programs(prometheus=prometheus, promtool=promtool)
    cached = _find_cached()
    if cached is None and fetch:
        cached = _fetch()
    if cached is None:
        raise NoPrometheus("prometheus and promtool are neither on PATH nor in the cache")
    return cached


def _cache() -> Path:
    return cache_directory() / "prometheus"


def _find_cached() -> Programs | None:
    """Return the newest version in the cache."""

    def version(path: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", path.name)[:3])

    for path in sorted(_cache().glob("[0-9]*"), key=version, reverse=True):
        programs = Programs(prometheus=path / "prometheus", promtool=path / "promtool")
        if os.access(programs.prometheus, os.X_OK) and os.access(programs.promtool, os.X_OK):
            return programs
    return None


def _fetch() -> Programs:
    """Unpack Debian's package into the cache, in a directory named by its version."""
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _find_cached()
        if found is not None:  # another process fetched it in the meantime
            return found
        try:
            _unpack(_cache())
        except (NoSuchServer, OSError, subprocess.SubprocessError) as error:
            raise NoPrometheus(
                f"Debian's package of Prometheus is not to be had: {error}"
            ) from error
    found = _find_cached()
    if found is None:
        raise NoPrometheus("Debian's package of Prometheus has no promtool")
    return found


def _unpack(into: Path) -> None:
    with tempfile.TemporaryDirectory(dir=into, prefix=".unpack-") as folder:
        unpacked = Path(folder)
        with apt_area(_DEBIAN, kind="deb") as apt:
            apt.run("download", "prometheus", cwd=unpacked)
        (package,) = unpacked.glob("prometheus_*.deb")
        run_quietly(["dpkg-deb", "-x", str(package), str(unpacked / "root")], timeout_s=120)
        made = unpacked / "made"
        made.mkdir()
        for name in ("prometheus", "promtool"):
            shutil.move(unpacked / "root/usr/bin" / name, made / name)
        made.rename(into / package.name.split("_")[1].partition("+")[0])


class Prometheus:
    """A running server on loopback, asked over its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str, at: float) -> list[dict[str, Any]]:
        """Return the samples of an instant query. Raises ValueError if it is refused."""
        return self._ask("query", {"query": expression, "time": str(at)})

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> list[dict[str, Any]]:
        """Return the series of a range query. Raises ValueError if it is refused."""
        window = {"start": str(start), "end": str(end), "step": str(step)}
        return self._ask("query_range", {"query": expression, **window})

    def _ask(self, path: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}", data=urllib.parse.urlencode(parameters).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                body = json.load(answer)
        except urllib.error.HTTPError as refused:
            error = json.load(refused).get("error", refused.reason)
            raise ValueError(f"{error}: {parameters['query']}") from refused
        found: list[dict[str, Any]] = body["data"]["result"]
        return found


@contextmanager
def serve_recording(recording: Recording, directory: Path) -> Iterator[Prometheus]:
    """Run a server over a recording. It scrapes nothing. `directory` is an empty one."""
    programs = find_programs()
    text, blocks = directory / "samples.txt", directory / "data"
    text.write_text(recording.render_open_metrics())
    blocks.mkdir()
    run_promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(blocks))
    (directory / "prometheus.yml").write_text("{}\n")
    port = free_port()
    process = start_process(
        "prometheus",
        [
            str(programs.prometheus),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={blocks}",
            "--storage.tsdb.retention.time=100y",  # recorded samples are older than the default
            f"--web.listen-address=127.0.0.1:{port}",
            # A series that is not in a scrape has ended. A real scrape marks it as stale; here each
            # query sees only samples of the last scrape.
            f"--query.lookback-delta={1000 * recording.interval - 1}ms",
        ],
        log=directory / "prometheus.log",
    )
    try:
        url = f"http://127.0.0.1:{port}"

        def is_ready() -> bool:
            if not process.is_alive():
                raise NoPrometheus(f"prometheus ended at its start:\n{process.tail()}")
            try:
                with urllib.request.urlopen(f"{url}/-/ready", timeout=ANSWER_S) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        wait_until(is_ready, timeout_s=START_S, what="Prometheus to be ready")
        yield Prometheus(url)
    finally:
        process.stop()


def run_promtool(*arguments: str) -> str:
    """Return what promtool prints. Raises ValueError with its output if it fails."""
    command: Sequence[str] = [str(find_programs().promtool), *arguments]
    answer = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LOAD_S,
        check=False,
    )
    if answer.returncode != 0:
        raise ValueError(f"promtool {' '.join(arguments[:2])} failed:\n{answer.stdout}")
    return answer.stdout
