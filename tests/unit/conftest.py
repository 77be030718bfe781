"""Fixtures of unit tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a shell script in front of all programs of the PATH, in the directory of the test."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def install(name: str, script: str) -> Path:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)
        return program

    return install
