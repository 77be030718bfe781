"""Every `sh` and `python` block of the documentation runs, unless a comment says why it does not.

The blocks of a page run in one directory, in their order, as one user would type them. They have
the commands of Pelops, kubectl on a real API server and redis-cli on a real server. There are the
Deployment, the Secret and the StreamConsumerGroup of the samples, in the namespace `shop`, and the
stream and group that they name. No operator runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest
import redis
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import StandaloneServers
from tests.api_objects import create_namespace
from tests.docs_pages import ROOT, Block, list_blocks

pytestmark = pytest.mark.full

TIMEOUT_S: Final = 120.0
# Pages whose blocks other tests run and that do not say so, or whose blocks do not run, by their
# file names. A page that runs must leave this list.
TO_MEND: Final[frozenset[str]] = frozenset()
BLOCKS: Final = [block for block in list_blocks("sh", "python") if not block.is_marked]
PAGES: Final = {page: [*blocks] for page, blocks in groupby(BLOCKS, key=lambda block: block.page)}
RUN: Final = [page for page in PAGES if Path(page).name not in TO_MEND]
SAMPLE: Final = ROOT / "manifests" / "samples" / "01-smallest.yaml"
NAMES: Final = ("order-processing", "invoices")
DEPLOYMENT: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: order-workers}
spec:
  selector: {matchLabels: {app: order-workers}}
  template:
    metadata: {labels: {app: order-workers}}
    spec: {containers: [{name: worker, image: registry.example/orders:1}]}
"""


@dataclass(frozen=True, slots=True)
class Desk:
    """Where commands run."""

    directory: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Run a command; its output. AssertionError with all of it when it fails."""
        ended = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
        return ended.stdout


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with what the samples name, and nothing that acts on it."""
    plane = ControlPlane.start(tmp_path_factory.mktemp("docs") / "control-plane")
    try:
        # As the installation page has it: commands of pages apply the same again.
        plane.kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "base"))
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        create_namespace(plane, "shop")
        plane.kubectl("apply", "-n", "shop", "-f", "-", stdin=DEPLOYMENT)
        for name in NAMES:
            sample = SAMPLE.read_text("utf-8").replace("order-processing", name)
            plane.kubectl("apply", "-n", "shop", "-f", "-", stdin=sample)
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def desk(plane: ControlPlane, redis_86: StandaloneServers, tmp_path: Path) -> Desk:
    """A directory with the repository's manifests, and the programs of a user on the PATH."""
    client = redis.Redis.from_url(redis_86.url, decode_responses=True)
    client.flushall()
    for name, stream in {"order-processing": "orders:events", "invoices": "invoices"}.items():
        client.xgroup_create(stream, name, "0", mkstream=True)
        for part in ("dlq", "ledger"):
            client.xadd(f"{{{stream}}}:{name}:{part}", {"order": "4711"})
        client.hset(f"{{{stream}}}:{name}:state", "format", "1")
    programs = tmp_path / "bin"
    programs.mkdir()
    binaries = redis_86.ground.binaries
    port = redis_86.url.rsplit(":", 1)[1].split("/")[0]
    write_program(programs / "redis-cli", f'exec {binaries.cli} -p {port} -e "$@"')
    kubectl = shutil.which("kubectl")
    write_program(programs / "kubectl", f'exec {kubectl} "$@"')
    directory = tmp_path / "work"
    directory.mkdir()
    for name in ("manifests", "crds", "examples"):
        (directory / name).symlink_to(ROOT / name)
    shutil.copy(SAMPLE, directory / "order-processing.yaml")
    config = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))
    for context in config["contexts"]:
        context["context"]["namespace"] = "shop"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return Desk(
        directory,
        {
            "PATH": path,
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}",
        },
    )


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run(desk: Desk, page: str) -> None:
    for block in PAGES[page]:
        try:
            run_block(desk, block)
        except AssertionError as error:
            raise AssertionError(f"{block}: {error}") from error


def test_the_list_of_exceptions_names_pages_with_blocks_that_are_not_marked() -> None:
    assert {Path(page).name for page in PAGES} >= TO_MEND


def run_block(desk: Desk, block: Block) -> None:
    program = (
        [sys.executable, "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    )
    desk.run(*program, block.code)


def test_a_command_that_fails_is_shown(desk: Desk) -> None:
    block = Block(page="page.md", line=3, language="sh", code="kubectl get scg nothing\n")
    with pytest.raises(AssertionError, match="not found"):
        run_block(desk, block)


def test_commands_find_the_stream_and_the_resource(desk: Desk) -> None:
    assert "orders:events" in desk.run("kubectl", "get", "scg", "order-processing", "-o", "yaml")
    assert "order-processing" in desk.run("redis-cli", "XINFO", "GROUPS", "orders:events")
