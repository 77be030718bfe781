"""Where the control plane comes from: the cache, a download, or a build; and what goes wrong."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from local_cluster import binaries, downloads
from local_cluster.binaries import PARTS, find_binaries, find_versions
from local_cluster.downloads import (
    PATIENCE,
    DownloadFailed,
    OfficialFile,
    download,
    list_official_files,
)
from local_cluster.errors import LocalClusterError
from local_cluster.helm import find_helm, helm_version, provide_helm
from tests.integration.download_site import (
    ETCD,
    VERSIONS,
    Site,
    make_checksums,
    make_release,
    official_name,
    serve,
)
from tools.supply_chain.lock import read_official_checksums

pytestmark = pytest.mark.full

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


def files_of(release: dict[str, bytes]) -> list[OfficialFile]:
    return list_official_files(make_checksums(release), VERSIONS, machine="x86_64")


def test_the_official_binaries_are_downloaded_once(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    found = find_binaries()
    assert found.origin == "downloaded"
    assert {part: run(found.paths[part]) for part in PARTS} == {part: part for part in PARTS}
    assert sorted(target for target, _ in machine.site.asked) == sorted(
        f"/{name}" for name in CONTROL_PLANE
    )
    assert len(list_left(machine.cache)) == 1, "nothing unfinished is left"
    shown = capfd.readouterr().err
    assert "downloading 5 binaries from 127.0.0.1 took " in shown
    assert "6 of 6 MB, 5 of 5 files" in shown
    machine.remove_go()
    machine.site.asked.clear()
    assert find_binaries() == found
    assert machine.site.asked == []


def test_a_cut_transfer_is_continued_where_it_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WAIT_BEFORE_RETRY_S", 0)
    machine.site.cut[KUBECTL] = 2
    machine.site.busy[KUBECTL] = 1
    assert run(find_binaries().paths["kubectl"]) == "kubectl"
    size = len(RELEASE[KUBECTL])
    firsts = [first for target, first in machine.site.asked if target == f"/{KUBECTL}"]
    assert firsts == [0, 0, size // 2, size // 2 + (size - size // 2) // 2]


def test_what_an_interrupted_download_left_is_continued(machine: Machine, tmp_path: Path) -> None:
    target = tmp_path / "parts"
    unfinished = tmp_path / ".parts.unfinished"
    unfinished.mkdir()
    (unfinished / "kubectl").write_bytes(RELEASE[KUBECTL][:1000])
    whole = official_name("kube-scheduler")
    (unfinished / "kube-scheduler").write_bytes(RELEASE[whole])
    spoiled = official_name("kube-apiserver")
    (unfinished / "kube-apiserver").write_bytes(b"x" * 1000)
    download(files_of(RELEASE), target)
    assert {run(target / part) for part in PARTS} == set(PARTS)
    asked = machine.site.asked
    assert (f"/{KUBECTL}", 1000) in asked
    assert whole not in {target.removeprefix("/") for target, _ in asked}
    assert [first for target, first in asked if target == f"/{spoiled}"] == [1000, 0]


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


def test_a_file_that_a_mirror_lacks_leads_to_a_build(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    del machine.site.files[KUBECTL]
    assert find_binaries().origin == "built from Go modules"
    assert f"127.0.0.1 answers 404 for {KUBECTL}" in capfd.readouterr().err


def test_a_proxy_is_asked_where_a_variable_names_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", "http://mirror.invalid")
    monkeypatch.setenv("HTTP_PROXY", machine.site.url)
    assert find_binaries().origin == "downloaded"
    targets = sorted(target for target, _ in machine.site.asked)
    assert targets == sorted(f"http://mirror.invalid/{name}" for name in CONTROL_PLANE)


def test_a_host_of_no_proxy_is_asked_directly(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert find_binaries().origin == "downloaded"


def test_a_silent_site_is_given_up(site: Site, machine: Machine, tmp_path: Path) -> None:
    site.is_silent = True
    patience = replace(PATIENCE, first_byte_s=0.3)
    with pytest.raises(DownloadFailed, match=r"127\.0\.0\.1 did not answer within 0\.3 s"):
        download(files_of(RELEASE), tmp_path / "parts", patience=patience)
    assert not (tmp_path / "parts").exists()


def test_a_file_that_stalls_is_given_up(site: Site, machine: Machine, tmp_path: Path) -> None:
    class Stalling(dict[str, bytes]):
        def __getitem__(self, name: str) -> bytes:
            if name == KUBECTL:
                site.released.wait(60)
            return super().__getitem__(name)

    site.files = Stalling(RELEASE)
    patience = replace(PATIENCE, stalled_s=0.3)
    with pytest.raises(DownloadFailed, match=r"127\.0\.0\.1 sent nothing of kubectl for 0\.3 s"):
        download(files_of(RELEASE), tmp_path / "parts", patience=patience)


def test_a_site_that_refuses_connections_is_given_up_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", f"http://127.0.0.1:{closed}")
    assert find_binaries().origin == "built from Go modules"
    assert "not used: 127.0.0.1 cannot be reached: " in capfd.readouterr().err
    assert len(list_left(machine.cache)) == 1, "there is nothing to continue with"


def test_off_downloads_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", "off")
    assert find_binaries().origin == "built from Go modules"
    assert "not used: PELOPS_DOWNLOAD_SITE is off" in capfd.readouterr().err
    assert machine.site.asked == []


def test_an_invalid_site_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", "mirror.example.com")
    with pytest.raises(LocalClusterError, match="PELOPS_DOWNLOAD_SITE must be an http:// or"):
        find_binaries()


def test_a_machine_without_official_binaries_builds(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert find_binaries().origin == "built from Go modules"
    missing = official_name("etcd", "riscv64")
    assert f"not used: checksums.txt has no checksum of {missing}" in capfd.readouterr().err
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


def test_parts_that_a_directory_lacks_are_downloaded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").symlink_to("/bin/true")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = find_binaries()
    assert found.paths["etcd"] == assets / "etcd"
    assert run(found.paths["kubectl"]) == "kubectl"
    assert found.origin == (
        f"from {assets}; kube-apiserver, kube-controller-manager, kube-scheduler, kubectl"
        " downloaded"
    )


def test_helm_is_downloaded_where_it_can_be_and_built_elsewhere(
    machine: Machine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PELOPS_HELM", raising=False)
    assert find_helm() is None
    downloaded = provide_helm()
    assert run(downloaded) == "helm"
    assert find_helm() == downloaded
    shutil.rmtree(downloaded.parent)
    machine.site.files.pop(official_name("helm"))
    built = provide_helm()
    assert run(built) == "built helm"
    assert find_helm() == built
    assert "the official Helm is not used: 127.0.0.1 answers 404" in capfd.readouterr().err


def test_without_a_site_and_without_go_helm_is_refused_with_both_reasons(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PELOPS_HELM", raising=False)
    monkeypatch.setenv("PELOPS_DOWNLOAD_SITE", "off")
    machine.remove_go()
    with pytest.raises(LocalClusterError) as refused:
        provide_helm()
    assert "PELOPS_DOWNLOAD_SITE is off" in str(refused.value)
    assert "install Go" in str(refused.value)


def test_of_what_is_pinned_the_machine_gets_its_own() -> None:
    text = make_checksums(RELEASE) + "0" * 64 + "  " + official_name("etcd", "arm64") + "\n"
    files = list_official_files(text, {"etcd": ETCD}, machine="aarch64")
    assert files == [
        OfficialFile(part="etcd", name=official_name("etcd", "arm64"), sha256="0" * 64)
    ]


@pytest.mark.parametrize("machine_name", ["x86_64", "aarch64"])
def test_every_part_of_the_versions_in_use_is_pinned(machine_name: str) -> None:
    versions = {**find_versions(), "helm": helm_version()}
    files = list_official_files(downloads.CHECKSUMS.read_text(), versions, machine=machine_name)
    assert len({file.sha256 for file in files}) == len(versions)


def test_checksums_are_written_from_what_the_official_sites_publish() -> None:
    lines = (line.split() for line in downloads.CHECKSUMS.read_text().splitlines())
    pinned = {name: digest for digest, name in lines}
    published = {
        f"{name}.sha256": digest.encode()
        for name, digest in pinned.items()
        if not name.endswith(".tar.gz")
    }
    lists: dict[str, str] = {}
    for name, digest in pinned.items():
        if "helm" in name:
            published[f"{name}.sha256sum"] = f"{digest}  {name.rsplit('/', 1)[1]}\n".encode()
        elif name.endswith(".tar.gz"):
            place, file = name.rsplit("/", 1)
            other = f"{'0' * 64}  {file}.sig\n"
            text = lists.get(f"{place}/SHA256SUMS", other)
            lists[f"{place}/SHA256SUMS"] = f"{text}{digest}  {file}\n"
    with serve(published | {name: text.encode() for name, text in lists.items()}) as site:
        assert read_official_checksums(f"{site.url}/") == downloads.CHECKSUMS.read_text()
        site.files[next(iter(lists))] = b"no digest\n"
        with pytest.raises(ValueError, match="SHA256SUMS has no SHA-256 of etcd-v"):
            read_official_checksums(f"{site.url}/")
