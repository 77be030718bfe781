"""Helm, which the tests of the chart run: a program that you name, a download, or a build.

`python -m local_cluster.helm` prints its path; exit code 1 when there is none.
"""

import fcntl
import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from local_cluster.binaries import (
    OFFICIAL,
    _await_build,
    _find_go,
    _go_version,
    cache_directory,
)
from local_cluster.downloads import DownloadFailed, download, find_official_files
from local_cluster.errors import LocalClusterError
from local_cluster.processes import start_process
from local_cluster.progress import report, step

# Its go.mod has the versions of the control plane's go.mod where both use a module. So Go compiles
# again little of what it has compiled for the control plane.
SOURCE = Path(__file__).with_name("helm_program")
SOURCE_FILES = ("go.mod", "go.sum", "main.go")
PROGRAM = "PELOPS_HELM"  # names a program to use instead
ATTEMPTS = 3  # modules are downloaded, and a download can fail
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
NO_HELM = f"""Helm cannot be downloaded ({{reason}}), and there is no Go toolchain to build it
with. Do one of these:
  - allow this machine to reach https://get.helm.sh, directly or by a proxy (HTTPS_PROXY), or name
    a mirror in PELOPS_DOWNLOAD_SITE;
  - install Go (https://go.dev/doc/install) and run this again;
  - name a Helm program, version 4, in {PROGRAM}."""


def find_helm() -> Path | None:
    """The program that is named, downloaded, or built already; None without one."""
    named = os.environ.get(PROGRAM)
    if named:
        return Path(named)
    official = _official_target() / "helm"
    return official if official.exists() else next(_find_builds(), None)


def provide_helm() -> Path:
    """As `find_helm`, but downloaded or else built when there is none.

    Raises LocalClusterError when neither is possible.
    """
    found = find_helm()
    if found is not None:
        return found
    _programs().mkdir(parents=True, exist_ok=True)
    with (_programs() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return find_helm() or _download_or_build()


def helm_version() -> str:
    """The version in go.mod, such as v4.2.4."""
    for line in (SOURCE / "go.mod").read_text().splitlines():
        words = line.removeprefix("require").split()
        if words and words[0].startswith("helm.sh/helm/") and "=>" not in words:
            return words[1]
    raise LocalClusterError(f"{SOURCE / 'go.mod'} does not state the version of Helm")


def main() -> int:
    """Provide it; returns the exit code."""
    try:
        print(provide_helm())
    except LocalClusterError as error:
        report(f"error: {error}")
        return 1
    return 0


def _programs() -> Path:
    return cache_directory() / "helm"


def _official_target() -> Path:
    return _programs() / f"{OFFICIAL}{helm_version()}-{platform.machine()}"


def _find_builds() -> Iterator[Path]:
    return iter(sorted(_programs().glob(f"{_hash_source()}-*/helm")))


def _download_or_build() -> Path:
    try:
        download(find_official_files({"helm": helm_version()}), _official_target())
        return _official_target() / "helm"
    except DownloadFailed as error:
        go = _find_go()
        if go is None:
            raise LocalClusterError(NO_HELM.format(reason=error)) from error
        report(f"the official Helm is not used: {error}. Building from source instead")
        return _build(go)


def _hash_source() -> str:
    digest = hashlib.sha256("\0".join([platform.machine(), *FLAGS]).encode())
    for file in SOURCE_FILES:
        digest.update(b"\0" + (SOURCE / file).read_bytes())
    return digest.hexdigest()[:24]


def _build(go: str) -> Path:
    target = _programs() / f"{_hash_source()}-{_go_version(go)}"
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _build_once(go, target)
            break
        except LocalClusterError as error:
            if attempt == ATTEMPTS:
                raise
            report(f"Helm was not built, trying again: {error}")
    return target / "helm"


def _build_once(go: str, target: Path) -> None:
    version = helm_version()
    stamps = f"-s -w -X helm.sh/helm/v4/internal/version.version={version}"
    with (
        tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch,
        step(f"building Helm {version} (minutes, once)") as shown,
    ):
        output = Path(scratch, "parts")
        output.mkdir()
        argv = [go, "build", "-v", *FLAGS, "-ldflags", stamps, "-o", str(output / "helm"), "."]
        env = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTMPDIR": scratch}
        log = Path(scratch, "build.log")
        _await_build(start_process("go build", argv, log=log, env=env, cwd=SOURCE), shown)
        output.rename(target)


if __name__ == "__main__":
    sys.exit(main())
