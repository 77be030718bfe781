"""`pelops version`: both versions, and an exit code where the operator is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pelops import __version__
from pelops.cli.main import run
from tests.unit.conftest import Install

IMAGE = "registry.example.com/pelops-operator:0.1.0"


@pytest.fixture
def answer(tmp_path: Path, install: Install) -> Path:
    """The file with what kubectl answers; kubectl fails without it."""
    forbidden = "echo 'Error from server (Forbidden): pods is forbidden' >&2\nexit 1\n"
    install("kubectl", f"cat {tmp_path}/answer && exit 0\n{forbidden}")
    return tmp_path / "answer"


def a_pod(name: str, *, ready: str = "True", image: str = IMAGE) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "pelops-system", "name": name},
        "spec": {"containers": [{"name": "operator", "image": image}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def test_version_prints_the_client_version_and_the_operator_image(
    answer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer.write_text(json.dumps({"items": [a_pod("a"), a_pod("b", ready="False")]}))
    assert run(["version"]) == 0
    client, operator = capsys.readouterr().out.splitlines()
    assert client.startswith(f"client    {__version__} (revision ")
    assert operator == f"operator  {IMAGE} (namespace pelops-system, 1 of 2 replicas ready)"
    assert run(["version", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["client"]["version"] == __version__
    assert document["operator"] == [
        {"namespace": "pelops-system", "image": IMAGE, "replicas": 2, "readyReplicas": 1}
    ]


def test_during_an_upgrade_each_image_has_a_line(
    answer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = IMAGE.replace("0.1.0", "0.2.0")
    answer.write_text(json.dumps({"items": [a_pod("a"), a_pod("b", image=newer)]}))
    assert run(["version"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == [IMAGE, newer]


def test_without_an_operator_only_the_client_version_is_printed_with_code_3(
    answer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in (None, '{"items": []}'):
        if text is not None:
            answer.write_text(text)
        assert run(["version"]) == 3
        printed = capsys.readouterr()
        assert printed.out.startswith("client ")
        assert "the version of the operator is unknown: " in printed.err
    assert run(["version", "--client"]) == 0
    assert capsys.readouterr().err == ""
