"""A server built from Debian's source package: slow, but asks only for a C compiler and make."""

import os
import shutil
import tarfile
from pathlib import Path

from local_cluster.progress import report
from local_cluster.redis_servers.debian import apt_area, run_quietly
from local_cluster.redis_servers.versions import NoSuchServer, Wished

OPENSSL_HEADER = Path("/usr/include/openssl/ssl.h")
PROGRAMS = ("server", "cli", "benchmark")


def build_from_source(wished: Wished, prefix: Path) -> None:
    """Fill `prefix/bin` with programs for this machine's libc; TLS only with OpenSSL's headers."""
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            raise NoSuchServer(f"this machine has no {tool}")
    work = prefix / "build"
    work.mkdir()
    with apt_area(wished, kind="deb-src") as apt:
        apt.run("source", "--download-only", f"{wished.program}/{wished.suites[-1]}", cwd=work)
    report("compiling takes two to five minutes")
    source = _unpack(work)
    names = [f"{wished.program}-{what}" for what in PROGRAMS]
    run_quietly(["make", *_make_arguments(), *names], cwd=source, timeout_s=1800)
    (prefix / "bin").mkdir()
    for name in names:
        shutil.copy2(source / name, prefix / "bin" / name)
    shutil.rmtree(work)


def _unpack(work: Path) -> Path:
    """The `src` directory of what was fetched."""
    for archive in sorted(work.glob("*.orig.tar.*")):
        with tarfile.open(archive) as packed:
            packed.extractall(work / "tree", filter="data")
    found = sorted((work / "tree").glob("*/src"))
    if not found:
        raise NoSuchServer("the source package has no src directory")
    return found[0]


def _make_arguments() -> list[str]:
    tls = "yes" if OPENSSL_HEADER.exists() else "no"
    return [f"-j{os.cpu_count() or 1}", "MALLOC=libc", f"BUILD_TLS={tls}", "OPTIMIZATION=-O2"]
