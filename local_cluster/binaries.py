"""Sources of the control plane's servers and kubectl: a directory, a download, or a build."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_cluster.downloads import DownloadFailed, download, find_official_files
from local_cluster.errors import LocalClusterError
from local_cluster.processes import Process, start_process, wait_until
from local_cluster.progress import Step, report, step

SOURCE = Path(__file__).with_name("control_plane")
SOURCE_FILES = ("go.mod", "go.sum", "main.go")
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
OFFICIAL = "official-"  # a directory of downloaded binaries
BUILD_TIMEOUT_S = 3600.0
# The compiler collects garbage less often: a fifth less processor time for large packages, of
# which the largest takes 530 MB instead of 370 MB.
COMPILER_GOGC = "400"
GO_PROGRAMS = "/usr/local/go/bin"  # where Go's own archive goes, often on no PATH but the shell's
NO_GO = """the Kubernetes control plane cannot be downloaded ({reason}), and there is no Go
toolchain to build it with. Do one of these:
  - allow this machine to reach https://dl.k8s.io and https://github.com, directly or by a proxy
    (HTTPS_PROXY), or name a mirror in PELOPS_DOWNLOAD_SITE;
  - install Go {minimum} or newer (https://go.dev/doc/install) and run this again;
  - name a directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl
    in KUBEBUILDER_ASSETS;
  - with Docker: install kind and pass --kind;
  - name a cluster that you may use: --kubeconfig PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A program for each of PARTS."""

    paths: Mapping[str, Path]
    origin: str  # for people


def cache_directory() -> Path:
    """`$PELOPS_CACHE`, else `~/.cache/pelops`; it need not exist."""
    return Path(os.environ.get("PELOPS_CACHE") or Path.home() / ".cache" / "pelops").absolute()


def find_binaries() -> Binaries:
    """Every part, from KUBEBUILDER_ASSETS where it has them.

    The others are downloaded, or built where they cannot be downloaded (minutes, once).
    Raises LocalClusterError when neither is possible.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        directory = provide_control_plane()
        return Binaries(paths=_parts_in(directory), origin=_describe_origin(directory))
    found = _parts_in(Path(assets))
    if not found:
        raise LocalClusterError(f"KUBEBUILDER_ASSETS={assets} holds none of {', '.join(PARTS)}")
    missing = ", ".join(part for part in PARTS if part not in found)
    if not missing:
        return Binaries(paths=found, origin=f"from {assets}")
    report(f"{assets} has no {missing}: these are downloaded or built")
    directory = provide_control_plane()
    origin = f"from {assets}; {missing} {_describe_origin(directory)}"
    return Binaries(paths=_parts_in(directory) | found, origin=origin)


def _parts_in(directory: Path) -> dict[str, Path]:
    paths = {part: directory.absolute() / part for part in PARTS}
    return {part: path for part, path in paths.items() if os.access(path, os.X_OK)}


def _describe_origin(directory: Path) -> str:
    return "downloaded" if directory.name.startswith(OFFICIAL) else "built from Go modules"


def is_control_plane_installed() -> bool:
    """Whether `find_binaries` needs no download and no build."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and len(_parts_in(Path(assets))) == len(PARTS):
        return True
    return _find_cached(cache_directory() / "control-plane") is not None


def provide_control_plane() -> Path:
    """The directory with every part: from the cache, else downloaded, else built.

    Raises LocalClusterError.
    """
    kept = cache_directory() / "control-plane"
    found = _find_cached(kept)
    if found is None:
        kept.mkdir(parents=True, exist_ok=True)
        with _sole_provider(kept):
            found = _find_cached(kept) or _download_or_build(kept)
    return found


def _find_cached(kept: Path) -> Path | None:
    """What an earlier call downloaded or built. Without Go, the build of any version of Go."""
    official, go = _official_target(kept), _find_go()
    builds = sorted(kept.glob(f"{_hash_source()}-*")) if go is None else [_build_target(kept, go)]
    return next((one for one in (official, *reversed(builds)) if one.exists()), None)


def _official_target(kept: Path) -> Path:
    digest = hashlib.sha256(f"{platform.machine()}\0{find_versions()}".encode())
    return kept / f"{OFFICIAL}{digest.hexdigest()[:24]}"


def _build_target(kept: Path, go: str) -> Path:
    return kept / f"{_hash_source()}-{_go_version(go)}"


def find_versions() -> dict[str, str]:
    """The version of each part in go.mod."""
    kubernetes, etcd = _stated("k8s.io/kubernetes"), _stated("go.etcd.io/etcd/server/v3")
    return {part: etcd if part == "etcd" else kubernetes for part in PARTS}


def _download_or_build(kept: Path) -> Path:
    try:
        target = _official_target(kept)
        download(find_official_files(find_versions()), target)
    except DownloadFailed as error:
        go = _find_go()
        if go is None:
            raise LocalClusterError(NO_GO.format(reason=error, minimum=_stated("go"))) from error
        report(f"the official binaries are not used: {error}. Building from source instead")
        target = _build_target(kept, go)
        _build_into(target, go, _build_flags())
    return target


def _find_go() -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), GO_PROGRAMS])
    return shutil.which("go", path=path)


def _go_version(go: str) -> str:
    try:
        # Read, not asked: any `go` command writes telemetry into the home directory.
        return (Path(go).resolve().parents[1] / "VERSION").read_text().split()[0]
    except (FileNotFoundError, IndexError):
        asked = [go, "env", "GOVERSION"]
        answer = subprocess.run(asked, cwd=SOURCE, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise LocalClusterError(f"`go env` fails: {answer.stderr.strip()}") from None
        return answer.stdout.strip()


def _stated(first: str) -> str:
    """What follows `first` on its line of go.mod."""
    for line in (SOURCE / "go.mod").read_text().splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == first:
            return words[1]
    raise LocalClusterError(f"{SOURCE / 'go.mod'} does not state {first}")


def _build_flags() -> list[str]:
    """Flags of `go build`; without the version, clients cannot parse that of the server."""
    version = _stated("k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamps = [
        f"-X {package}.{key}={value}" for package in packages for key, value in values.items()
    ]
    return [
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        # Debug information is not needed, and is up to a quarter of the compiler's work.
        "-gcflags=all=-dwarf=false",
        "-ldflags",
        " ".join(["-s -w", *stamps]),
    ]


def _hash_source() -> str:
    digest = hashlib.sha256("\0".join([platform.machine(), *_build_flags()]).encode())
    for file in SOURCE_FILES:
        digest.update(b"\0" + (SOURCE / file).read_bytes())
    return digest.hexdigest()[:24]


@contextmanager
def _sole_provider(directory: Path) -> Iterator[None]:
    """Hold the right to fill the cache; two builds at once would take twice as long each."""
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step("waiting for another process that downloads or builds the control plane"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_into(target: Path, go: str, flags: list[str]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch,
        step(f"building Kubernetes {_stated('k8s.io/kubernetes')} (minutes, once)") as shown,
    ):
        output, temporary = Path(scratch, "parts"), Path(scratch, "tmp")
        output.mkdir()
        temporary.mkdir()
        log = Path(scratch, "build.log")
        argv = [go, "build", "-v", *flags, "-o", str(output / "control-plane"), "."]
        env = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTMPDIR": str(temporary)}
        env.setdefault("GOGC", COMPILER_GOGC)
        _await_build(start_process("go build", argv, log=log, env=env, cwd=SOURCE), shown)
        for part in PARTS:
            (output / part).symlink_to("control-plane")
        output.rename(target)


def _await_build(build: Process, shown: Step) -> None:
    def has_ended() -> bool:
        # `go build -v` names each package as it compiles it, and each module as it fetches it.
        named = build.log.read_text(errors="replace").splitlines() if build.log.exists() else []
        modules = sum(line.startswith("go: downloading") for line in named)
        shown.detail = f"{modules} modules fetched, {len(named) - modules} packages compiled"
        return not build.is_alive()

    try:
        wait_until(has_ended, timeout_s=BUILD_TIMEOUT_S, what="go build", every_s=0.5)
        if build.exit_code:
            raise LocalClusterError(f"go build failed:\n{build.tail(30)}")
    finally:
        build.stop()
