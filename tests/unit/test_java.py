"""Which Java is taken, and what happens where there is none."""

from pathlib import Path

import pytest

from local_cluster.errors import LocalClusterError
from local_cluster.java import PACKAGES, Machine, find_java, provide_java, require_java


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


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_that_is_new_enough_is_found_by_path(tmp_path: Path, version: str) -> None:
    home = a_java(tmp_path, version)
    assert find_java(a_machine(tmp_path)) == home


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_one_that_is_too_old_is_passed_over_for_another(tmp_path: Path, version: str) -> None:
    old = a_java(tmp_path / "old", version)
    machine = a_machine(tmp_path, JAVA_HOME=str(old))
    assert find_java(machine) is None
    newer = a_java(tmp_path / "jvm" / "newer", "17.0.1")
    assert find_java(machine) == newer


def test_java_home_comes_first(tmp_path: Path) -> None:
    a_java(tmp_path, "17")
    named = a_java(tmp_path / "named", "21")
    assert find_java(a_machine(tmp_path, JAVA_HOME=str(named))) == named


def test_a_link_is_followed_to_the_home(tmp_path: Path) -> None:
    home = a_java(tmp_path / "real", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(a_machine(tmp_path)) == home


def test_what_does_not_start_is_no_java(tmp_path: Path) -> None:
    a_java(tmp_path, "17", code=1)
    assert find_java(a_machine(tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))) is None


def test_without_any_it_says_what_helps(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="JAVA_HOME"):
        require_java(a_machine(tmp_path))


@pytest.mark.parametrize("package", PACKAGES)
def test_root_gets_the_package_that_its_release_has(tmp_path: Path, package: str) -> None:
    home = tmp_path / "jvm" / "installed"
    body = f'case "$*" in *{package}) mkdir -p {home}/bin; cp {tmp_path}/j {home}/bin/java;; esac'
    program(tmp_path / "j", "echo 'openjdk version \"17\"' >&2")
    program(tmp_path / "bin" / "apt-get", body)
    path = f"{tmp_path}/bin:/usr/bin:/bin"  # for mkdir and cp
    with pytest.raises(LocalClusterError):
        provide_java(a_machine(tmp_path, JAVA_HOME="", PATH=f"{tmp_path}/bin"))
    machine = a_machine(tmp_path, is_root=True, PATH=f"{tmp_path}/bin")
    program(tmp_path / "bin" / "apt-get", f"PATH={path}; {body}")
    assert provide_java(machine) == home


def test_an_install_that_fails_says_what_helps(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "apt-get", "echo no such package >&2; exit 100")
    with pytest.raises(LocalClusterError, match="default-jre-headless"):
        provide_java(a_machine(tmp_path, is_root=True))
