"""Where the servers of the control plane and kubectl come from: a directory, or our own build."""

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

from local_cluster.errors import LocalClusterError
from local_cluster.processes import Process, start_process, wait_until
from local_cluster.progress import Step, report, step

SOURCE = Path(__file__).with_name("control_plane")
SOURCE_FILES = ("go.mod", "go.sum", "main.go")
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
BUILD_TIMEOUT_S = 3600.0
NO_GO = """no Go toolchain, which the Kubernetes control plane is built with. Do one of these:
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
    """Every part, from KUBEBUILDER_ASSETS where it has them, the rest built here (minutes, once).

    Raises LocalClusterError when they cannot be built.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return Binaries(paths=_parts_in(build_control_plane()), origin="built from Go modules")
    found = _parts_in(Path(assets))
    if not found:
        raise LocalClusterError(f"KUBEBUILDER_ASSETS={assets} holds none of {', '.join(PARTS)}")
    missing = [part for part in PARTS if part not in found]
    if not missing:
        return Binaries(paths=found, origin=f"from {assets}")
    report(f"{assets} has no {', '.join(missing)}: these come from the Go modules' build")
    built = _parts_in(build_control_plane())
    return Binaries(
        paths=built | found, origin=f"from {assets}; {', '.join(missing)} built from Go modules"
    )


def _parts_in(directory: Path) -> dict[str, Path]:
    paths = {part: directory.absolute() / part for part in PARTS}
    return {part: path for part, path in paths.items() if os.access(path, os.X_OK)}


def build_control_plane() -> Path:
    """The directory with every part, built when the cache does not have it yet.

    Without Go, one that another version of Go has built will do.
    """
    flags = _build_flags()
    builds, source = cache_directory() / "control-plane", _hash_source(flags)
    go = _find_go()
    if go is None:
        return _find_any_build(builds, source)
    target = builds / f"{source}-{_go_version(go)}"
    if not target.exists():
        builds.mkdir(parents=True, exist_ok=True)
        with _sole_builder(builds):
            if not target.exists():
                _build_into(target, go, flags)
    return target


def _find_any_build(builds: Path, source: str) -> Path:
    found = sorted(builds.glob(f"{source}-*"))
    if not found:
        raise LocalClusterError(NO_GO.format(minimum=_stated("go")))
    return found[-1]


def _find_go() -> str | None:
    # /usr/local/go is where Go's own archive goes, and often on no PATH but the shell's.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"])
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
    """Flags of `go build`; without the version, clients cannot parse what the server says it is."""
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
        "-ldflags",
        " ".join(["-s -w", *stamps]),
    ]


def _hash_source(flags: list[str]) -> str:
    digest = hashlib.sha256("\0".join([platform.machine(), *flags]).encode())
    for file in SOURCE_FILES:
        digest.update(b"\0" + (SOURCE / file).read_bytes())
    return digest.hexdigest()[:24]


@contextmanager
def _sole_builder(directory: Path) -> Iterator[None]:
    """Hold the right to build; two builds at once would take twice as long for the same result."""
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step("waiting for another process that is building the control plane"):
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
