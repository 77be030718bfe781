"""Where the control plane comes from: the cache, a download, or a build; and what goes wrong."""

import hashlib
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from local_cluster import binaries, downloads
from local_cluster.binaries import PARTS, find_binaries, find_versions
from local_cluster.downloads import (
    list_official_files,
)
from local_cluster.errors import LocalClusterError
from local_cluster.helm import helm_version

pytestmark = pytest.mark.full

KUBERNETES, ETCD = "v1.36.3", "v3.6.8"


def official_name(part: str, architecture: str = "amd64") -> str:
    if part == "etcd":
        archive = f"etcd-{ETCD}-linux-{architecture}.tar.gz"
        return f"github.com/etcd-io/etcd/releases/download/{ETCD}/{archive}"
    return f"dl.k8s.io/release/{KUBERNETES}/bin/linux/{architecture}/{part}"


def make_release() -> dict[str, bytes]:
    """A program for each part, by its official name."""
    return {
        name: _pack(part, make_program(part)) if name.endswith(".gz") else make_program(part)
        for part, name in ((part, official_name(part)) for part in PARTS)
    }


def make_program(part: str) -> bytes:
    padding = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(40_000))
    return f"#!/bin/sh\necho {part}\nexit\n".encode() + padding


def _pack(part: str, program: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in ((f"{part}ctl", b"another program"), (part, program)):
            member = tarfile.TarInfo(f"{part}-{ETCD}-linux-amd64/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def make_checksums(release: Mapping[str, bytes]) -> str:
    return "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in release.items()
    )


@dataclass(kw_only=True)
class Site:
    """What it serves, and what it was asked for."""

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(files: Mapping[str, bytes]) -> Iterator[Site]:
    site = Site(files=dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            content = site.files.get(self.path.removeprefix("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


RELEASE = make_release()
CONTROL_PLANE = [official_name(part) for part in PARTS]
KUBECTL = official_name("kubectl")
# Stands for the compiler: the "program" that it makes says which part it was called as.
GO = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
printf '#!/bin/sh\\necho built ${0##*/}\\n' > "$out"
chmod 755 "$out"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An amd64 machine with an empty cache, on which the site's release is pinned."""

    cache: Path
    site: Site
    go: Path

    def remove_go(self) -> None:
        self.go.unlink()


@pytest.fixture
def site() -> Iterator[Site]:
    with serve(RELEASE) as served:
        yield served


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: Site) -> Machine:
    checksums = tmp_path / "checksums.txt"
    checksums.write_text(make_checksums(RELEASE))
    monkeypatch.setattr(downloads, "CHECKSUMS", checksums)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    go = tmp_path / "go" / "bin" / "go"
    go.parent.mkdir(parents=True)
    go.write_text(GO)
    go.chmod(0o755)
    (tmp_path / "go" / "VERSION").write_text("go1.99\n")
    monkeypatch.setattr(binaries, "GO_PROGRAMS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", f"{go.parent}:/bin:/usr/bin")
    monkeypatch.setenv("PELOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", site.url)
    for name in ("KUBEBUILDER_ASSETS", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return Machine(cache=tmp_path / "cache" / "control-plane", site=site, go=go)


def run(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def list_left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock")


def test_the_official_binaries_are_downloaded_once(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    found = find_binaries()
    assert found.origin == "downloaded"
    assert {part: run(found.paths[part]) for part in PARTS} == {part: part for part in PARTS}
    assert sorted(machine.site.asked) == sorted(f"/{name}" for name in CONTROL_PLANE)
    assert len(list_left(machine.cache)) == 1, "nothing unfinished is left"
    shown = capfd.readouterr().err
    assert "downloading 5 binaries from 127.0.0.1 took " in shown
    assert "6 of 6 MB, 5 of 5 files" in shown
    machine.remove_go()
    machine.site.asked.clear()
    assert find_binaries() == found
    assert machine.site.asked == []


def test_a_wrong_checksum_is_refused_and_the_parts_are_built(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.site.files[KUBECTL] = RELEASE[KUBECTL].replace(b"echo", b"evil")
    found = find_binaries()
    assert found.origin == "built from Go modules"
    assert {run(found.paths[part]) for part in PARTS} == {f"built {part}" for part in PARTS}
    assert (
        f"the official binaries are not used: {KUBECTL} from 127.0.0.1: wrong SHA-256 checksum;"
        " the file was discarded. Building from source instead"
    ) in capfd.readouterr().err
    assert not any(
        b"evil" in path.read_bytes() for path in machine.cache.rglob("*") if path.is_file()
    )
    machine.site.files[KUBECTL] = RELEASE[KUBECTL]
    machine.site.asked.clear()
    assert find_binaries() == found, "a build is not given up for a download"
    assert machine.site.asked == []


def test_off_downloads_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", "off")
    assert find_binaries().origin == "built from Go modules"
    assert "not used: PELOPS_DOWNLOAD_SITE is off" in capfd.readouterr().err
    assert machine.site.asked == []


def test_without_a_site_and_without_go_the_error_says_both(machine: Machine) -> None:
    machine.site.files.clear()
    machine.remove_go()
    with pytest.raises(LocalClusterError) as failed:
        find_binaries()
    text = str(failed.value)
    assert "cannot be downloaded (127.0.0.1 answers 404 for " in text
    assert "there is no Go\ntoolchain" in text
    assert "install Go 1.26.0 or newer" in text


@pytest.mark.parametrize("machine_name", ["x86_64", "aarch64"])
def test_every_part_of_the_versions_in_use_is_pinned(machine_name: str) -> None:
    versions = {**find_versions(), "helm": helm_version()}
    files = list_official_files(downloads.CHECKSUMS.read_text(), versions, machine=machine_name)
    assert len({file.sha256 for file in files}) == len(versions)
