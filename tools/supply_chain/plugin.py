"""The command line as one file, and as a plugin for krew.

Both contain the modules of Pelops' wheels and no other package. Python 3.11 or later runs the file;
the commands that need a package name it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from pelops.domain.site import SITE

# Where the archive of a release is downloaded from.
RELEASES: Final = f"{SITE}/releases"
MANIFEST: Final = "manifests/krew/pelops.yaml"
PROGRAM: Final = "kubectl-pelops"
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_MAIN: Final = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("pelops: Python 3.11 or later is required, this is " + sys.version.split()[0])
from pelops.cli.main import main

main()
"""
_EXECUTABLE: Final = 0o755
_FILE: Final = 0o644
_REGULAR: Final = 0o100000  # the type bits of a file in a zip


def build_plugin(wheels: Sequence[Path], root: Path, directory: Path, epoch: int) -> list[Path]:
    """Build the file, the archive for krew and its manifest; return them.

    The same wheels and epoch give the same bytes. All wheels have one version.
    """
    version = wheels[0].name.split("-")[1]
    program = build_zipapp(wheels, epoch)
    zipapp = directory / f"pelops-{version}.pyz"
    zipapp.write_bytes(program)
    zipapp.chmod(_EXECUTABLE)
    archive = directory / f"{PROGRAM}-{version}.tar.gz"
    archive.write_bytes(_pack(program, (root / "LICENSE").read_bytes(), epoch))
    manifest = directory / "pelops.yaml"
    manifest.write_text(
        render_manifest((root / MANIFEST).read_text(encoding="utf-8"), version, archive)
    )
    return [zipapp, archive, manifest]


def build_zipapp(wheels: Iterable[Path], epoch: int) -> bytes:
    """Return one executable file with the modules of these wheels."""
    time = datetime.fromtimestamp(epoch, UTC).timetuple()[:6]
    packed = io.BytesIO(_SHEBANG)
    packed.seek(0, io.SEEK_END)
    contents: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as modules:
            names = [name for name in modules.namelist() if name.startswith("pelops/")]
            contents |= {name: modules.read(name) for name in names}
    with zipfile.ZipFile(packed, "a") as new:
        for name, content in sorted({**contents, "__main__.py": _MAIN.encode()}.items()):
            entry = zipfile.ZipInfo(name, time)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix
            entry.external_attr = (_REGULAR | _FILE) << 16
            new.writestr(entry, content)
    return packed.getvalue()


def render_manifest(template: str, version: str, archive: Path) -> str:
    """Return the manifest for krew, without the comment at its top."""
    lines = [line for line in template.splitlines() if not line.startswith("#")]
    uri = f"{RELEASES}/v{version}/{archive.name}"
    digest = sha256(archive.read_bytes()).hexdigest()
    filled = "\n".join(lines) + "\n"
    for name, value in {"version": version, "uri": uri, "sha256": digest}.items():
        filled = filled.replace(f"{{{name}}}", value)
    return filled


def _pack(program: bytes, license_text: bytes, epoch: int) -> bytes:
    packed = io.BytesIO()
    files = (("LICENSE", license_text, _FILE), (PROGRAM, program, _EXECUTABLE))
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content, mode in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, epoch
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=epoch)
