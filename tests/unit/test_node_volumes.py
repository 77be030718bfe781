"""The node stand-in's volumes, logs, probes and addresses."""

import base64
from pathlib import Path
from typing import Any

import pytest

from local_cluster.node.addresses import PodAddresses
from local_cluster.node.environment import ConfigError, PodFacts
from local_cluster.node.log_server import find_tail, parse_wish
from local_cluster.node.output import ContainerOutput
from local_cluster.node.probes import Streak, decide_verdict, find_port
from local_cluster.node.volumes import (
    TokenWish,
    VolumeFile,
    build_files,
    volume_references,
    volume_tokens,
    write_volume,
)

pytestmark = pytest.mark.full

POD = {"metadata": {"name": "p", "namespace": "shop", "uid": "u"}, "spec": {"containers": []}}
FACTS = PodFacts(pod=POD, addresses={}, allocatable={})
SECRET = {"data": {"a": base64.b64encode(b"A").decode(), "b": base64.b64encode(b"B").decode()}}
OBJECTS = {
    ("secrets", "s"): SECRET,
    ("configmaps", "kube-root-ca.crt"): {"data": {"ca.crt": "CA"}},
    ("configmaps", "gone"): None,
}


def contents(volume: dict[str, Any], **tokens: str) -> dict[str, bytes]:
    wishes = {wish: tokens[wish.path] for wish in volume_tokens(volume)}
    files = build_files(volume, FACTS, OBJECTS, wishes)
    return {path: file.content for path, file in files.items()}


def test_a_secret_volume_shows_all_keys_or_the_chosen_ones() -> None:
    assert contents({"name": "v", "secret": {"secretName": "s"}}) == {"a": b"A", "b": b"B"}
    items = [{"key": "b", "path": "deep/er"}]
    chosen = {"name": "v", "secret": {"secretName": "s", "items": items}}
    assert contents(chosen) == {"deep/er": b"B"}


def test_the_token_volume_that_admission_injects_is_understood() -> None:
    name = [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": name}},
    ]
    volume = {"name": "kube-api-access", "projected": {"sources": sources}}
    assert volume_references(volume) == {("configmaps", "kube-root-ca.crt")}
    assert volume_tokens(volume) == [TokenWish(path="token", expiration_s=3607)]
    found = contents(volume, token="T")
    assert found == {"token": b"T", "ca.crt": b"CA", "namespace": b"shop"}


def test_a_missing_source_of_a_volume_is_named_unless_optional() -> None:
    with pytest.raises(ConfigError, match='configmap "gone" not found'):
        contents({"name": "v", "configMap": {"name": "gone"}})
    with pytest.raises(ConfigError, match="non-existent secrets key: z"):
        items = [{"key": "z", "path": "z"}]
        contents({"name": "v", "secret": {"secretName": "s", "items": items}})
    assert contents({"name": "v", "configMap": {"name": "gone", "optional": True}}) == {}


def test_a_volume_is_replaced_whole_and_only_when_it_changed(tmp_path: Path) -> None:
    def files(**content: bytes) -> dict[str, VolumeFile]:
        return {path: VolumeFile(content=one, mode=0o600) for path, one in content.items()}

    assert write_volume(tmp_path, files(a=b"1", b=b"2"))
    assert not write_volume(tmp_path, files(a=b"1", b=b"2"))
    assert write_volume(tmp_path, files(b=b"3", c=b"4"))
    shown = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert shown == {"b": b"3", "c": b"4"}
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2  # ..data and its target


def run_with(output: ContainerOutput, text: bytes) -> None:
    with output.begin_run() as file:
        file.write(text)
    output.end_run()


def read(output: ContainerOutput, *, previous: bool = False) -> bytes | None:
    section = output.section(previous=previous)
    return None if section is None else section.path.read_bytes()[section.start : section.end]


def test_each_run_is_found_in_the_one_log(tmp_path: Path) -> None:
    output = ContainerOutput(tmp_path / "main.log")
    assert read(output) is None
    for text in (b"one\n", b"two\n", b"three\n"):
        run_with(output, text)
    assert (read(output), read(output, previous=True)) == (b"three\n", b"two\n")
    assert output.path.read_bytes() == b"one\ntwo\nthree\n"

    after_a_restart_of_the_node = ContainerOutput(output.path)
    assert read(after_a_restart_of_the_node) == b"one\ntwo\nthree\n"
    run_with(after_a_restart_of_the_node, b"four\n")
    assert read(after_a_restart_of_the_node) == b"four\n"
    assert read(after_a_restart_of_the_node, previous=True) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("lines", "tail"),
    [(None, b"a\nb\nc"), (0, b""), (1, b"c"), (2, b"b\nc"), (9, b"a\nb\nc")],
)
def test_the_tail_begins_at_a_line(tmp_path: Path, lines: int | None, tail: bytes) -> None:
    output = ContainerOutput(tmp_path / "main.log")
    run_with(output, b"before\n")
    run_with(output, b"a\nb\nc")
    section = output.section(previous=False)
    assert section is not None
    assert section.path.read_bytes()[find_tail(section, lines) :] == tail


def test_the_tail_of_a_long_log_is_exact(tmp_path: Path) -> None:
    output = ContainerOutput(tmp_path / "main.log")
    lines = [b"%d %s\n" % (number, b"x" * 100) for number in range(5000)]
    run_with(output, b"".join(lines))
    section = output.section(previous=False)
    assert section is not None
    for count in (1, 700, 4999):
        start = find_tail(section, count)
        assert output.path.read_bytes()[start:] == b"".join(lines[-count:])


def test_a_log_request_is_parsed() -> None:
    wish = parse_wish({"follow": "true", "tailLines": "5"})
    assert (wish.follow, wish.previous, wish.tail_lines) == (True, False, 5)
    with pytest.raises(ValueError, match="invalid literal"):
        parse_wish({"tailLines": "many"})


def test_a_probe_turns_at_its_thresholds() -> None:
    probe = {"failureThreshold": 2, "successThreshold": 1}
    verdicts, streak = [], Streak()
    for healthy in (True, False, True, False, False, False, True):
        streak = streak.extend(healthy)
        verdicts.append(decide_verdict(probe, streak))
    assert verdicts == [True, None, True, None, False, False, True]


def test_a_port_is_found_by_number_and_name() -> None:
    container = {"ports": [{"name": "http", "containerPort": 8080}]}
    assert find_port(container, 9) == 9
    assert find_port(container, "http") == 8080
    with pytest.raises(ValueError, match="no port is named 'admin'"):
        find_port(container, "admin")


def test_addresses_are_never_given_twice() -> None:
    here, there = PodAddresses("same-name"), PodAddresses("same-name")
    given = [addresses.take(f"u{n}") for addresses in (here, there) for n in range(600)]
    assert len(set(given)) == len(given)
    assert all(address.startswith("127.") for address in given)


def test_a_pod_keeps_its_address_if_it_is_free() -> None:
    addresses = PodAddresses("keeper")
    first = addresses.take("a")
    addresses.release(first, "another")
    assert addresses.take("b", first) != first
    addresses.release(first, "a")
    assert addresses.take("c", first) == first
    assert addresses.take("d", "10.0.0.1") != "10.0.0.1"
