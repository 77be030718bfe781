"""The page that lists the scripts is what their headers say."""

from pathlib import Path

import pytest

from pelops.redis_core.declaration import OPERATOR_SCRIPTS, WORKER_SCRIPTS, list_scripts
from pelops.redis_streams.reference import main, render_page

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "scripts.md").read_text("utf-8") == render_page()


def test_a_page_that_differs_is_shown_and_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    page = tmp_path / "docs" / "reference" / "scripts.md"
    page.write_text(page.read_text().replace("XGROUP CREATE stream", "XGROUP CREATE"))
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "XGROUP CREATE stream" in capsys.readouterr().out


def test_each_script_has_a_row_with_its_keys_commands_and_feature() -> None:
    page = render_page()
    for package in (OPERATOR_SCRIPTS, WORKER_SCRIPTS):
        for name in list_scripts(package):
            assert page.count(f"| [`{name}`](") == 1
    (row,) = (line for line in page.splitlines() if line.startswith("| [`repair_lag`]"))
    assert "| source, state |" in row
    assert "| XGROUP SETID source | `scaling` |" in row
