"""Builds what is released: `python -m tools.supply_chain.dist DIRECTORY`.

- A wheel and a source archive of each distribution (distributions.py).
- `pelops-VERSION.pyz`: the command line as one file.
- `kubectl-pelops-VERSION.tar.gz` and `pelops.yaml`: its plugin for krew.
- `pelops-operator-VERSION.cdx.json`, `THIRD_PARTY_NOTICES.txt`, and `SHA256SUMS` of them all.

pelops-core contains the commit that it is built from (`pelops/REVISION`). The same commit gives the
same bytes on every machine with the pinned packages. Only tracked files go in, with the same
permissions, in the order of their names. Their time is that of the commit, or SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from build import ProjectBuilder

from pelops.build import REVISION_FILE
from tools.supply_chain.components import OURS, ROOT, list_jars, list_packages
from tools.supply_chain.distributions import CORE, DISTRIBUTIONS
from tools.supply_chain.documents import render_bill_of_materials, render_notices
from tools.supply_chain.plugin import build_plugin

NOTICES: Final = "THIRD_PARTY_NOTICES.txt"
CHECKSUMS: Final = "SHA256SUMS"


def main() -> int:
    """Build into the directory that the command line names, which is emptied before."""
    directory = Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for path in build(ROOT, directory, commit_epoch(ROOT), find_revision(ROOT)):
        print(path)
    return 0


def commit_epoch(root: Path) -> int:
    """SOURCE_DATE_EPOCH, else the time of the last commit, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git(root, "log", "-1", "--format=%ct"))


def find_revision(root: Path) -> str:
    """The last commit, with `-dirty` at the end if a file of a release differs from it."""
    packed = sorted({path for one in DISTRIBUTIONS for path in one.packed})
    commit = _git(root, "rev-parse", "HEAD").strip()
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *packed)
    return f"{commit}-dirty" if changed else commit


def build(root: Path, directory: Path, epoch: int, revision: str) -> list[Path]:
    """Build all into the directory; return what was made.

    Raises:
        ValueError: the license or hash of a component is not known.
    """
    archives = build_archives(root, directory, epoch, revision)
    source = archives[0]
    version = source.name.removesuffix(".tar.gz").rpartition("-")[2]
    components = [*list_packages(), *list_jars()]
    bill = directory / f"{OURS}-{version}.cdx.json"
    bill.write_text(render_bill_of_materials(version, components, epoch))
    notices = directory / NOTICES
    notices.write_text(render_notices(components))
    core = archives[2 * DISTRIBUTIONS.index(CORE) + 1]
    plugin = build_plugin((archives[1], core), root, directory, epoch)
    made = [*archives, *plugin, bill, notices]
    checksums = directory / CHECKSUMS
    checksums.write_text(
        "".join(f"{sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in made)
    )
    return [*made, checksums]


def build_archives(root: Path, directory: Path, epoch: int, revision: str) -> list[Path]:
    """Build the source archive of each distribution, and its wheel: the operator's are first."""
    archives: list[Path] = []
    for one in DISTRIBUTIONS:
        with TemporaryDirectory() as temporary:
            copied = Path(temporary, "copied")
            for name in _git(root, "ls-files", "--", *one.packed).splitlines():
                if (root / name).exists():
                    (copied / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(root / name, copied / name)
            if one.has_revision:
                (copied / "operator" / "pelops" / REVISION_FILE).write_text(f"{revision}\n")
            archives.extend(_build_project(copied / one.project, directory, epoch))
    return archives


def _build_project(project: Path, directory: Path, epoch: int) -> tuple[Path, Path]:
    with TemporaryDirectory() as temporary:
        made = Path(_builder(project, epoch).build("sdist", temporary))
        source = directory / made.name
        source.write_bytes(_without_traces(made, epoch))
        with tarfile.open(source) as archive:
            archive.extractall(temporary, filter="tar")  # with the permissions that it names
        unpacked = Path(temporary, made.name.removesuffix(".tar.gz"))
        wheel = _builder(unpacked, epoch).build("wheel", str(directory))
    return source, Path(wheel)


def _builder(source: Path, epoch: int) -> ProjectBuilder:
    def run(
        cmd: Sequence[str],
        cwd: str | None = None,
        extra_environ: Mapping[str, str] | None = None,
    ) -> None:
        added = {**(extra_environ or {}), "SOURCE_DATE_EPOCH": str(epoch)}
        environment = {**os.environ, **added}
        # What the build writes itself gets the permissions that this allows.
        subprocess.run(
            cmd, cwd=cwd, env=environment, umask=0o022, check=True, stdout=subprocess.DEVNULL
        )

    return ProjectBuilder(source, runner=run)


def _without_traces(path: Path, epoch: int) -> bytes:
    """The archive without what differs between machines: times, owners, permissions, order."""
    packed = BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime = epoch
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(packed.getvalue(), mtime=epoch)


def _git(root: Path, *argv: str) -> str:
    return subprocess.run(
        ["git", *argv], cwd=root, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
