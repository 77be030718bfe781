"""The steps of the demo: what is printed before each, and what is kept for the next run."""

import json
from pathlib import Path

import pytest

from demo import introduction
from demo.introduction import list_missing, render_introduction
from demo.steps import CLUSTER, INSTALL, STEPS, STOP, Steps, read_durations, write_durations

pytestmark = pytest.mark.full


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "durations.json"


def known(file: Path) -> Steps:
    write_durations(file, {one.name: 2.0 for one in STEPS})
    return Steps.open(file, without=[INSTALL])


def test_a_step_says_how_long_it_took_the_last_time(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for shown in ("", " (last time: 0 s)"):
        steps = Steps.open(file, without=[INSTALL])
        with steps.run(CLUSTER):
            pass
        assert capsys.readouterr().err == f"\n[1/9] {CLUSTER.title}{shown}\n"
        assert read_durations(file).keys() == {CLUSTER.name}


def test_a_step_that_fails_leaves_what_earlier_runs_took(file: Path) -> None:
    steps = known(file)
    with pytest.raises(ValueError, match="broken"), steps.run(CLUSTER):
        raise ValueError("broken")
    assert read_durations(file)[CLUSTER.name] == 2.0
    assert steps.took == {}


def test_the_total_is_of_the_steps_of_this_run(file: Path) -> None:
    steps = known(file)
    assert steps.describe_last_total() == " (last time: 18 s)"
    kept = Steps.open(file, without=[INSTALL, STOP])
    assert kept.describe_last_total() == " (last time: 16 s)"


def test_without_a_complete_run_there_is_no_total(file: Path) -> None:
    assert Steps.open(file).describe_last_total() == ""
    write_durations(file, {CLUSTER.name: 3.0})
    assert Steps.open(file).describe_last_total() == ""


@pytest.mark.parametrize("text", ["", "[1]", '{"cluster": "long"}', "null", '{"cluster": null}'])
def test_a_file_that_cannot_be_read_is_ignored(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert read_durations(file) == {}


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write_durations(tmp_path / "file" / "durations.json", {CLUSTER.name: 1.0})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_durations_are_kept_as_seconds_by_step(file: Path) -> None:
    write_durations(file, {CLUSTER.name: 1.26})
    assert json.loads(file.read_text()) == {"cluster": 1.3}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_introduction_lists_the_steps_with_their_times(file: Path) -> None:
    text = render_introduction(known(file), [])
    assert "Everything that it needs is in " in text
    assert "Steps (last time: 18 s):\n" in text
    assert f"\n  1  {CLUSTER.title} (last time: 2 s)\n" in text
    assert INSTALL.title not in text


def test_the_introduction_says_what_is_installed_and_where(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KUBEBUILDER_ASSETS", "PELOPS_REDIS_86"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PELOPS_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    missing = list_missing()
    assert missing[:2] == [introduction.CONTROL_PLANE, introduction.REDIS]
    assert set(missing[2:]) <= {introduction.JAVA, introduction.JARS}
    text = render_introduction(Steps.open(file), missing)
    assert f"This run installs into {tmp_path / 'empty'}:\n  {introduction.CONTROL_PLANE}\n" in text
    assert f"Steps:\n  1  {INSTALL.title}\n" in text
