"""The `pelops` command answers, or says in a sentence why it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pelops.cli.main import main
from tests.builders import manifest

NAMES = ["--stream", "orders:events", "--group", "order-processing"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(arguments)
    return capsys.readouterr().out


def test_keys_are_reported_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    keys = json.loads(run(capsys, "keys", *NAMES))
    assert keys["ledger"] == "{orders:events}:order-processing:ledger"
    assert keys["slot"] == 7863


def test_an_acl_is_reported_as_a_line_for_redis_cli(capsys: pytest.CaptureFixture[str]) -> None:
    line = run(capsys, "acl", *NAMES, "--role", "worker", "--user", "orders")
    assert line.startswith("ACL SETUSER orders on >PASSWORD resetkeys resetchannels -@all ")
    assert " clearselectors ~orders:events " in line
    assert line.endswith("+xreadgroup +xack\n")


@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        ("orders", " ~orders ~{orders}:g:* "),
        ("my orders", " ~my?orders ~{my?orders}:g:* "),
        ("a*", " ~a\\* ~{a\\*}:g:* "),
        ('say "hi"', ' "~say?\\"hi\\"" "~{say?\\"hi\\"}:g:*" '),
        ("it's", ' "~it\'s" "~{it\'s}:g:*" '),
        ("a\x07", ' "~a\\x07" "~{a\\x07}:g:*" '),
        ("é", " ~é ~{é}:g:* "),
    ],
)
def test_a_name_is_quoted_as_redis_cli_reads_it(
    stream: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown in run(capsys, "acl", "--stream", stream, "--group", "g")


def test_the_name_of_the_user_is_quoted_too(capsys: pytest.CaptureFixture[str]) -> None:
    line = run(capsys, "acl", *NAMES, "--user", "o'hara")
    assert line.startswith('ACL SETUSER "o\'hara" on >PASSWORD ')


def test_features_add_their_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert "+unlink" in run(capsys, "acl", *NAMES, "--feature", "delete-policy")


def test_the_environment_is_reported_as_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "resource.yaml"
    other = {"kind": "Secret", "metadata": {"name": "redis"}}
    file.write_text(yaml.safe_dump_all([other, None, manifest(stream="a$b")]))
    block = yaml.safe_load(run(capsys, "env", "-f", str(file)))
    values = {variable["name"]: variable.get("value") for variable in block["env"]}
    assert values["PELOPS_STREAM"] == "a$$b"
    assert values["PELOPS_CONSUMER"] == "$(POD_NAME):$(POD_UID)"


def wrong(**changes: Any) -> bytes:
    return yaml.safe_dump({**manifest(), **changes}).encode()


FILES: dict[str, tuple[bytes | None, str]] = {
    "there is none": (None, "resource.yaml: No such file or directory\n"),
    "it is no YAML": (b"kind: [\n", "not valid YAML: line 2: expected the node content, but found"),
    "it is not a text": (b"\xff\xfe\x00", "not UTF-8 text"),
    "it holds control characters": (b"a: \x01", "not valid YAML"),
    "it holds a day that never was": (b"a: 2026-02-31", "not valid YAML"),
    "it is empty": (b"", "not contain a StreamConsumerGroup"),
    "it holds something else": (b"kind: Deployment", "not contain a StreamConsumerGroup"),
    "the spec is missing": (wrong(spec=None), "spec: "),
    "a field has a wrong type": (wrong(spec={"stream": 5}), "spec.stream: "),
    "the resource has no name": (wrong(metadata={}), "the name of the group is empty"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(
    case: tuple[bytes | None, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, words = case
    file = tmp_path / "resource.yaml"
    if content is not None:
        file.write_bytes(content)
    refused(["env", "--file", str(file)], words, capsys)


@pytest.mark.parametrize("command", ["keys", "acl"])
def test_an_empty_name_is_refused_in_a_sentence(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused([command, "--stream", "", "--group", "g"], "the name of the stream is empty", capsys)


def test_a_producer_is_granted_its_stream_without_a_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = run(capsys, "acl", "--stream", "orders", "--role", "producer", "--feature", "cluster")
    assert " ~orders +hello" in line
    assert {"+xadd", "+cluster|slots"} <= set(line.split())
    refused(
        ["acl", "--stream", "", "--role", "producer"], "the name of the stream is empty", capsys
    )
    for role in ("operator", "worker", "sdk-worker"):
        refused(["acl", "--stream", "orders", "--role", role], "requires --group", capsys)


def test_one_user_may_be_given_several_groups(capsys: pytest.CaptureFixture[str]) -> None:
    group = ["acl", "--role", "sdk-worker", "--stream", "orders", "--group", "g", "--user", "shop"]
    line = run(capsys, *group, "--also", "worker", "refunds", "h", "--also", "producer", "invoices")
    assert line.count("resetkeys") == line.count("clearselectors") == 1
    assert '"(~refunds ~{refunds}:h:retry ~{refunds}:h:handover +hello' in line
    assert line.rstrip().endswith('"(~invoices +hello +auth +ping +client|setname +xadd)"')
    refused([*group, "--also", "worker", "refunds"], "role worker requires", capsys)
    refused([*group, "--also", "chef", "refunds"], "unknown role chef", capsys)
    refused([*group, "--also", "producer"], "--also requires ROLE STREAM", capsys)


def refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    reported = capsys.readouterr()
    assert (ended.value.code, reported.out) == (1, "")
    assert reported.err.startswith("pelops: ")
    assert words in reported.err
    assert reported.err.count("\n") == 1
    assert "\\n" not in reported.err and "[Errno" not in reported.err
