"""A server out of Debian's packages, unpacked into a directory and run by its own libc.

Nothing is installed: apt works on private lists, caches and an empty package database, so the
machine's own packages and configuration stay as they are and no privilege is needed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_cluster.redis_servers.versions import NoSuchServer, Wished

KEYRINGS = Path("/usr/share/keyrings")

# Hooks of the machine would clean its own caches and wake its daemons after the download.
APT_CONFIG = """\
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "20";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Dir::Etc::SourceList "{area}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "{area}/preferences";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{area}/state";
Dir::State::Status "{area}/status";
Dir::Cache "{area}/cache";
Dir::Log "{area}/log";
"""

# The newest of the listed suites wins, although Debian ranks experimental below all others.
PIN = "Package: *-tools\nPin: release a={suite}\nPin-Priority: 500\n"

# Debian's server and its check-rdb are one program that looks at the name it was called by.
# LD_LIBRARY_PATH is not an option here: children of the host's libc would inherit it.
WRAPPER = """\
#!/bin/sh
self=$(/usr/bin/readlink -f "$0")
root=${{self%/*}}/../root
exec "$root/{loader}" --library-path "{libraries}" --argv0 {name} "$root/usr/bin/{program}" "$@"
"""


@dataclass(frozen=True, slots=True)
class AptArea:
    """A directory in which apt knows only the suites asked for, and nothing as installed."""

    path: Path

    def run(self, *args: str, cwd: Path | None = None) -> None:
        command = ["apt-get", "-q", "-c", str(self.path / "apt.conf"), *args]
        run_quietly(command, cwd=cwd or self.path, timeout_s=600)


@contextmanager
def apt_area(wished: Wished, *, kind: str) -> Iterator[AptArea]:
    """An area with fresh lists of packages (`kind` deb) or of sources (`kind` deb-src).

    Raises NoSuchServer on a machine without apt.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NoSuchServer(f"this machine has no {tool}")
    with tempfile.TemporaryDirectory(prefix="pelops-apt-") as folder:
        area = Path(folder)
        for sub in ("state/lists/partial", "cache/archives/partial", "log"):
            (area / sub).mkdir(parents=True)
        (area / "status").touch()
        (area / "apt.conf").write_text(APT_CONFIG.format(area=area))
        (area / "sources.list").write_text(_sources(wished, kind))
        (area / "preferences").write_text(PIN.format(suite=wished.suites[-1]))
        apt = AptArea(area)
        apt.run("update", "--error-on=any")
        yield apt


def unpack_packages(wished: Wished, prefix: Path) -> None:
    """Fill `prefix` with the server, its libraries, and wrappers in `prefix/bin`."""
    with apt_area(wished, kind="deb") as apt:
        # Against an empty package database, the solver names every library down to libc.
        apt.run("install", "--yes", "--download-only", f"{wished.program}-tools")
        for package in sorted((apt.path / "cache/archives").glob("*.deb")):
            if _holds_programs_or_libraries(package):
                run_quietly(["dpkg-deb", "-x", str(package), str(prefix / "root")], timeout_s=120)
    _write_wrappers(wished, prefix)


def run_quietly(command: list[str], *, cwd: Path | None = None, timeout_s: float) -> None:
    """Run to the end. Raises NoSuchServer with the last lines of output when it fails."""
    answer = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if answer.returncode != 0:
        ending = "\n".join(answer.stdout.strip().splitlines()[-5:])
        raise NoSuchServer(f"{command[0]} ended with {answer.returncode}:\n{ending}")


def _sources(wished: Wished, kind: str) -> str:
    keyrings = sorted(KEYRINGS.glob("debian-archive-keyring.*"))
    signed_by = f"[signed-by={keyrings[0]}] " if keyrings else ""
    mirror = _mirror()
    return "".join(f"{kind} {signed_by}{mirror} {suite} main\n" for suite in wished.suites)


def _mirror() -> str:
    """The address this machine takes its main packages from, also if it never fetched a list."""
    answer = subprocess.run(
        ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    for line in answer.stdout.splitlines():
        address, _, suite = line.rpartition(" ")
        if address and not any(word in suite for word in ("-", "/")):  # -security, -updates, ...
            return address
    raise NoSuchServer("apt on this machine has no package source")


def _holds_programs_or_libraries(package: Path) -> bool:
    name = package.name.partition("_")[0]
    return name.startswith(("lib", "zlib")) or name.endswith("-tools")


def _write_wrappers(wished: Wished, prefix: Path) -> None:
    root = prefix / "root"
    loaders = sorted(root.glob("**/ld-linux*.so.*"))
    if not loaders:
        raise NoSuchServer("libc6 came without a loader")
    folders = [*sorted(root.glob("lib/*-linux-gnu")), *sorted(root.glob("usr/lib/*-linux-gnu"))]
    libraries = ":".join(f"$root/{folder.relative_to(root)}" for folder in folders)
    (prefix / "bin").mkdir()
    for what in ("server", "cli", "benchmark"):
        name = f"{wished.program}-{what}"
        program = f"{wished.program}-check-rdb" if what == "server" else name
        wrapper = prefix / "bin" / name
        wrapper.write_text(
            WRAPPER.format(
                loader=loaders[0].relative_to(root),
                libraries=libraries,
                name=name,
                program=program,
            )
        )
        wrapper.chmod(0o755)
