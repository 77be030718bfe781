"""Official binaries of the control plane and Helm: downloaded in parallel, with pinned SHA-256.

`checksums.txt` names every file by the host and path of its official address, so
that the same name below a mirror's address is the mirror's copy.
"""

import contextlib
import hashlib
import http.client
import os
import platform
import re
import shutil
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from local_cluster.errors import LocalClusterError
from local_cluster.progress import Step, step

CHECKSUMS = Path(__file__).with_name("checksums.txt")
SITE = "PELOPS_DOWNLOAD_SITE"  # a mirror's address, or OFF
OFF = "off"
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
ARCHIVE = ".tar.gz"
CHUNK_BYTES = 1 << 18
SHOWN_EVERY_S = 0.2
WAIT_BEFORE_RETRY_S = 1.0
ATTEMPTS = 5  # for each file; every one continues where the last one was cut
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


class DownloadFailed(Exception):
    """The binaries were not downloaded; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialFile:
    """One file of the official sites."""

    part: str
    name: str  # host and path of its official address
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds to wait before a download is given up."""

    first_byte_s: float = 5.0  # for the first byte of any file: the site is silent
    read_s: float = 10.0  # for more bytes of one connection, before the file is tried again
    stalled_s: float = 30.0  # for more bytes of one file
    all_s: float = 900.0  # for everything: a build takes about as long


PATIENCE = Patience()


def list_official_files(
    text: str, versions: Mapping[str, str], *, machine: str
) -> list[OfficialFile]:
    """The file of each program of `versions`, for a machine as `platform.machine()` names it.

    Raises DownloadFailed when a program has no pinned checksum.
    """
    architecture = ARCHITECTURES.get(machine, machine)
    pinned = {name: digest for digest, name in _LINE.findall(text)}
    files = []
    for part, version in versions.items():
        name = official_name(part, version, architecture)
        if name not in pinned:
            raise DownloadFailed(f"{CHECKSUMS.name} has no checksum of {name}")
        files.append(OfficialFile(part=part, name=name, sha256=pinned[name]))
    return files


def official_name(part: str, version: str, architecture: str) -> str:
    """Host and path of the official address of the file that holds a program."""
    if part == "etcd":
        archive = f"etcd-{version}-linux-{architecture}{ARCHIVE}"
        return f"github.com/etcd-io/etcd/releases/download/{version}/{archive}"
    if part == "helm":
        return f"get.helm.sh/helm-{version}-linux-{architecture}{ARCHIVE}"
    return f"dl.k8s.io/release/{version}/bin/linux/{architecture}/{part}"


def find_official_files(versions: Mapping[str, str]) -> list[OfficialFile]:
    """The file of each program of `versions`, for this machine.

    Raises DownloadFailed when none may be downloaded or none fits, LocalClusterError when
    PELOPS_DOWNLOAD_SITE is invalid.
    """
    site = os.environ.get(SITE)
    if site == OFF:
        raise DownloadFailed(f"{SITE} is {OFF}")
    if site and not re.match(r"https?://[^/]", site):
        raise LocalClusterError(f"{SITE} must be an http:// or https:// address, or `{OFF}`")
    if not sys.platform.startswith("linux"):
        raise DownloadFailed(f"they run on Linux, and this is {platform.system()}")
    return list_official_files(CHECKSUMS.read_text(), versions, machine=platform.machine().lower())


def download(
    files: Sequence[OfficialFile], directory: Path, *, patience: Patience = PATIENCE
) -> None:
    """Put an executable of each file into the directory, which is made.

    Unfinished files stay beside it, in `.NAME.unfinished`, and the next call continues them.
    Proxy variables (HTTPS_PROXY, HTTP_PROXY, NO_PROXY) are honored.

    Raises DownloadFailed: a site is silent or does not have a file, or a checksum is wrong.
    """
    unfinished = directory.with_name(f".{directory.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    transfers = [_Transfer(file, unfinished, patience) for file in files]
    hosts = " and ".join(dict.fromkeys(one.host for one in transfers))
    try:
        with step(f"downloading {len(files)} binaries from {hosts}") as shown:
            _run(transfers, patience, shown)
    except DownloadFailed:
        with contextlib.suppress(OSError):  # it holds something to continue with
            unfinished.rmdir()
        raise
    for one in transfers:
        _make_executable(one.path, unfinished / one.file.part)
    unfinished.rename(directory)


def _run(transfers: Sequence["_Transfer"], patience: Patience, shown: Step) -> None:
    """Run all transfers. The first that fails ends the others."""
    began = time.monotonic()
    for one in transfers:
        # A daemon: a name lookup or a connection that hangs must not block the others.
        threading.Thread(target=one.run, name=f"download {one.file.part}", daemon=True).start()
    try:
        while not all(one.done.is_set() for one in transfers):
            shown.detail = _describe_progress(transfers)
            _raise_failure(transfers)
            _check_patience(transfers, patience, time.monotonic() - began)
            next(one for one in transfers if not one.done.is_set()).done.wait(SHOWN_EVERY_S)
        _raise_failure(transfers)
        shown.detail = _describe_progress(transfers)
    finally:
        for one in transfers:
            one.cancelled.set()


def _raise_failure(transfers: Sequence["_Transfer"]) -> None:
    for one in transfers:
        if one.failure is not None:
            raise DownloadFailed(one.failure)


def _check_patience(transfers: Sequence["_Transfer"], patience: Patience, passed: float) -> None:
    if passed > patience.all_s:
        raise DownloadFailed(f"not complete after {patience.all_s:.0f} s")
    if passed > patience.first_byte_s and not any(one.received for one in transfers):
        host = transfers[0].host
        raise DownloadFailed(f"{host} did not answer within {patience.first_byte_s:g} s")
    for one in transfers:
        if not one.done.is_set() and time.monotonic() - one.last_byte > patience.stalled_s:
            raise DownloadFailed(
                f"{one.host} sent nothing of {one.file.part} for {patience.stalled_s:g} s"
            )


def _describe_progress(transfers: Sequence["_Transfer"]) -> str:
    complete = sum(one.done.is_set() and one.failure is None for one in transfers)
    have = sum(one.have for one in transfers) / 1e6
    # The sum is known once every file has been asked for.
    sizes = [one.size for one in transfers]
    total = "" if None in sizes else f" of {sum(size or 0 for size in sizes) / 1e6:.0f}"
    return f"{have:.0f}{total} MB, {complete} of {len(transfers)} files"


class _Transfer:
    """One file on its way; `run` is for a thread, the attributes are for the one that waits."""

    def __init__(self, file: OfficialFile, directory: Path, patience: Patience) -> None:
        mirror = os.environ.get(SITE)
        self.file = file
        self.path = directory / PurePosixPath(file.name).name
        self.url = f"{mirror.rstrip('/')}/{file.name}" if mirror else f"https://{file.name}"
        self.host = str(urllib.parse.urlsplit(self.url).hostname)
        self.received = 0  # bytes, now
        self.have = 0  # bytes, earlier ones included
        self.size: int | None = None
        self.last_byte = time.monotonic()
        self.failure: str | None = None
        self.done = threading.Event()
        self.cancelled = threading.Event()
        self._read_s = patience.read_s

    def run(self) -> None:
        """Receive the file and check it; sets `failure` or not, then `done`."""
        try:
            self._receive_all()
        except urllib.error.HTTPError as error:
            self.failure = f"{self.host} answers {error.code} for {self.file.name}"
        except urllib.error.URLError as error:
            self.failure = f"{self.host} cannot be reached: {error.reason}"
        except (OSError, ValueError, http.client.HTTPException, DownloadFailed) as error:
            self.failure = f"{self.file.name} from {self.host}: {error}"
        finally:
            self.done.set()

    def _receive_all(self) -> None:
        if self._is_right():
            return
        for attempt in range(1, ATTEMPTS + 1):
            continued = self.have > 0
            try:
                self._receive()
            except (OSError, http.client.HTTPException) as error:
                if attempt == ATTEMPTS or not self._may_retry(error):
                    raise
                self.cancelled.wait(WAIT_BEFORE_RETRY_S)
                continue
            if self.cancelled.is_set() or self._is_right():
                return
            self._discard()
            if not continued:  # else what was kept may be what is wrong
                break
        raise DownloadFailed("wrong SHA-256 checksum; the file was discarded")

    def _may_retry(self, error: Exception) -> bool:
        """Whether the next attempt may differ: not where the site could never be reached."""
        if self.cancelled.is_set():
            return False
        if isinstance(error, urllib.error.HTTPError):
            return error.code in RETRIED_STATUSES
        return self.received > 0 or not isinstance(error, urllib.error.URLError)

    def _receive(self) -> None:
        """Append what is missing. Raises OSError or HTTPException when it does not all come."""
        headers = {"Accept-Encoding": "identity"}
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
        asked = urllib.request.Request(self.url, headers=headers)
        try:
            # Not urlopen: it keeps the proxies of the first call of the process.
            answer = urllib.request.build_opener().open(asked, timeout=self._read_s)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            return  # nothing is missing: the checksum decides
        with answer:
            if answer.status != HTTPStatus.PARTIAL_CONTENT:
                self._discard()
            length = answer.headers.get("Content-Length")
            self.size = None if length is None else self.have + int(length)
            self._append(answer)
        if self.size is not None and self.have < self.size and not self.cancelled.is_set():
            raise ConnectionError(f"the connection ended after {self.have} of {self.size} bytes")

    def _append(self, answer: http.client.HTTPResponse) -> None:
        with self.path.open("ab") as out:
            while not self.cancelled.is_set() and (chunk := answer.read1(CHUNK_BYTES)):
                out.write(chunk)
                self.received += len(chunk)
                self.have += len(chunk)
                self.last_byte = time.monotonic()

    def _discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.have = 0

    def _is_right(self) -> bool:
        """Whether the whole file is there."""
        if not self.path.exists():
            return False
        self.have = self.path.stat().st_size
        with self.path.open("rb") as file:
            right = hashlib.file_digest(file, "sha256").hexdigest() == self.file.sha256
        if right:
            self.size = self.have
        return right


def _make_executable(received: Path, target: Path) -> None:
    if received.name.endswith(ARCHIVE):
        with tarfile.open(received) as archive:
            _extract(archive, target)
        received.unlink()
    target.chmod(0o755)


def _extract(archive: tarfile.TarFile, target: Path) -> None:
    """Write the member that has the target's name, in whatever directory."""
    for member in archive:
        content = archive.extractfile(member)
        if PurePosixPath(member.name).name == target.name and content is not None:
            with contextlib.closing(content), target.open("wb") as out:
                shutil.copyfileobj(content, out)
            return
    raise DownloadFailed(f"the archive does not contain {target.name}")
