"""The first program that the documentation of workers shows, and its test, run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs_pages import ROOT, list_blocks

PAGE = "docs/worker/index.md"


@pytest.mark.full
def test_the_handler_of_the_first_page_passes_the_test_beside_it(tmp_path: Path) -> None:
    worker, tested = (b.code for b in list_blocks("python") if b.page == PAGE)
    (tmp_path / "worker.py").write_text(worker)
    (tmp_path / "test_worker.py").write_text(tested)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_worker.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "operator"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
