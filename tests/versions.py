"""Other versions of the operator: the former one, from the history of Git, and a newer one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from local_cluster.plane import ControlPlane
from pelops.domain.records.state import FORMAT_VERSION
from tests.operators import ROOT

# Names a commit to upgrade from, where another one than the former version is meant.
FROM: Final = "PELOPS_TEST_UPGRADE_FROM"
PARTS: Final = ("operator", "crds", "manifests")
RIGHTS: Final = ("cluster_role", "member_role", "node_clock_role", "user_roles")


class NoFormerVersion(Exception):
    """The history of the repository is not here."""


def find_former() -> str:
    """The newest commit with another operator than the working tree. Raises NoFormerVersion."""
    named = os.environ.get(FROM)
    if named:
        return _git("rev-parse", "--verify", f"{named}^{{commit}}")
    if _git("status", "--porcelain", "--", *PARTS):
        return _git("rev-parse", "HEAD")
    changed = _git("log", "--first-parent", "-1", "--format=%H", "--", *PARTS)
    return _git("rev-parse", "--verify", f"{changed}^1")


def extract_former(directory: Path) -> Path:
    """Code and manifests of the former version; `operator` in it is for PYTHONPATH.

    Raises NoFormerVersion.
    """
    commit = find_former()
    tree = directory / f"former-{commit[:12]}"
    tree.mkdir(parents=True)
    archive = tree / "parts.tar"
    _git("archive", "--output", str(archive), commit, *PARTS)
    shutil.unpack_archive(archive, tree, filter="data")
    archive.unlink()
    return tree


def build_newer(directory: Path) -> Path:
    """This version with the next format of the groups' states, as a directory for PYTHONPATH."""
    copy = directory / "operator-newer"
    shutil.copytree(ROOT / "operator", copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "pelops" / "domain" / "records" / "state.py"
    line = f"FORMAT_VERSION: Final = {FORMAT_VERSION}\n"
    text = file.read_text()
    assert text.count(line) == 1
    file.write_text(text.replace(line, f"FORMAT_VERSION: Final = {FORMAT_VERSION + 1}\n"))
    return copy


def apply_version(plane: ControlPlane, tree: Path) -> None:
    """CRDs first, then policies and rights, as an upgrade does; the operators are the caller's."""
    again = ("apply", "--server-side", "--force-conflicts")
    plane.kubectl(*again, "-k", str(tree / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    for name in RIGHTS:
        plane.kubectl(*again, "-f", str(tree / "manifests" / "base" / f"{name}.yaml"))
    plane.kubectl(*again, "-k", str(tree / "manifests" / "admission"))


def _git(*words: str) -> str:
    try:
        answer = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or str(error)
        raise NoFormerVersion(f"git {words[0]}: {why.strip()[:200]}") from error
    return answer.stdout.strip()
