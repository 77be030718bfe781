"""Which Java is taken, and what happens where there is none."""

from pathlib import Path

import pytest

from local_cluster.errors import LocalClusterError
from local_cluster.java import Machine, find_java, require_java


def a_java(home: Path, version: str, code: int = 0) -> Path:
    """A home whose java says that it is of this version."""
    program(home / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2; exit {code}")
    return home


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def a_machine(root: Path, *, is_root: bool = False, **variables: str) -> Machine:
    """A machine on which nothing of the real one is found."""
    named = {"PATH": f"{root}/bin", **variables}
    return Machine(variables=named, is_root=is_root, installed=root / "jvm")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_one_that_is_too_old_is_passed_over_for_another(tmp_path: Path, version: str) -> None:
    old = a_java(tmp_path / "old", version)
    machine = a_machine(tmp_path, JAVA_HOME=str(old))
    assert find_java(machine) is None
    newer = a_java(tmp_path / "jvm" / "newer", "17.0.1")
    assert find_java(machine) == newer


def test_without_any_it_says_what_helps(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="JAVA_HOME"):
        require_java(a_machine(tmp_path))
