"""Helm is named, found in the cache, or built; a build that fails is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import helm
from local_cluster.errors import LocalClusterError

pytestmark = pytest.mark.full

# It stands for `go build`: it fails as often as a file says, and notes each call.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.0; exit 0; fi
echo "$@" >> {calls}
if [ $(wc -l < {calls}) -le {failures} ]; then echo "dial tcp: connection reset" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2"; chmod +x "$2"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("PELOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PELOPS_HELM", raising=False)
    return tmp_path / "cache"


def put_go(directory: Path, monkeypatch: pytest.MonkeyPatch, *, failures: int) -> Path:
    """Put a Go toolchain first on the PATH; the file of its calls."""
    calls = directory / "calls"
    calls.touch()
    programs = directory / "go" / "bin"
    programs.mkdir(parents=True)
    (programs / "go").write_text(GO.format(calls=calls, failures=failures))
    (programs / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return calls


def test_a_program_that_is_named_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELOPS_HELM", "/opt/helm")
    assert helm.provide_helm() == helm.find_helm() == Path("/opt/helm")


def test_helm_is_built_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = put_go(tmp_path, monkeypatch, failures=0)
    assert helm.find_helm() is None
    built = helm.provide_helm()
    assert built.is_relative_to(cache) and built.exists()
    assert helm.provide_helm() == helm.find_helm() == built
    (call,) = calls.read_text().splitlines()
    assert f"version.version={helm.helm_version()}" in call


def test_a_build_that_fails_is_tried_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = put_go(tmp_path, monkeypatch, failures=helm.ATTEMPTS - 1)
    assert helm.main() == 0
    assert len(calls.read_text().splitlines()) == helm.ATTEMPTS
    assert "trying again" in capsys.readouterr().err


def test_a_build_that_keeps_failing_is_reported(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_go(tmp_path, monkeypatch, failures=99)
    assert helm.main() == 1
    assert "connection reset" in capsys.readouterr().err
    assert helm.find_helm() is None


def test_without_go_the_message_says_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helm, "_find_go", lambda: None)
    with pytest.raises(LocalClusterError, match="PELOPS_HELM"):
        helm.provide_helm()


def test_modules_have_the_versions_that_the_control_plane_is_built_with() -> None:
    """So that Go compiles a package once for both, and Helm is built within a minute."""
    control_plane = read_versions(helm.SOURCE.with_name("control_plane") / "go.mod")
    ours = read_versions(helm.SOURCE / "go.mod")
    others = {
        name: (version, control_plane[name])
        for name, version in ours.items()
        if control_plane.get(name, version) != version
    }
    # The first is part of builds for Windows alone, the second is replaced in the control plane.
    assert set(others) <= {"github.com/Azure/go-ansiterm", "k8s.io/apiextensions-apiserver"}
    assert len(set(ours) & set(control_plane)) > 60


def read_versions(file: Path) -> dict[str, str]:
    """Module to version, without what a go.mod excludes or replaces."""
    required = file.read_text().partition("\nreplace (")[0]
    text = "".join(part for part in required.split("\n\n") if "exclude (" not in part)
    lines = [line.split("//")[0].split() for line in text.splitlines() if line.startswith("\t")]
    return {words[0]: words[1] for words in lines if len(words) == 2}
