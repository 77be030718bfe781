"""The operator's image and the cluster: its name in the manifests, and what it leaves out."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local_cluster.operators import GROUPS, SERVICE_ACCOUNT, is_ready
from local_cluster.plane import ControlPlane
from local_cluster.processes import free_port, start_process, wait_until
from pelops.build import version
from tests.docs_pages import list_blocks

ROOT: Final = Path(__file__).parents[2]
PUBLISHED: Final = "registry.pelops.dev/"
OWN: Final = "registry.example.com/platform/"


def render(plane: ControlPlane, directory: Path) -> list[dict[str, Any]]:
    text = plane.kubectl(
        "kustomize", "--load-restrictor=LoadRestrictionsNone", str(directory)
    ).stdout
    return list(yaml.safe_load_all(text))


def container(rendered: list[dict[str, Any]]) -> dict[str, Any]:
    (deployment,) = (one for one in rendered if one["kind"] == "Deployment")
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.full
@pytest.mark.parametrize(
    "page",
    ["docs/guides/images.md", "docs/get-started/install.md"],
    ids=lambda page: Path(page).stem,
)
def test_a_kustomization_of_the_documentation_replaces_every_name(
    plane: ControlPlane, tmp_path: Path, page: str
) -> None:
    (block,) = (one for one in list_blocks("yaml") if one.page == page and "newName:" in one.code)
    base = ROOT / "manifests" / "base"
    assert "../pelops/manifests/base" in block.code
    # A relative path, since kustomize takes no other.
    (tmp_path / "base").symlink_to(base)
    code = block.code.replace("../pelops/manifests/base", "base")
    (tmp_path / "kustomization.yaml").write_text(code)
    rendered = render(plane, tmp_path)
    made = container(rendered)
    assert made["image"] == f"{OWN}pelops-operator:{version()}"
    assert PUBLISHED not in yaml.safe_dump_all(rendered)
    if page.endswith("images.md"):
        variables = {one["name"]: one.get("value") for one in made["env"]}
        assert variables["PELOPS_AUDIT_IMAGE"] == f"{OWN}pelops-pipeline:{version()}"
        assert {"PELOPS_IDENTITY", "PELOPS_MEMBER_NAMESPACE"} <= variables.keys()


def test_kind_gets_the_image_that_make_image_builds_and_never_pulls(plane: ControlPlane) -> None:
    made = container(render(plane, ROOT / "manifests" / "overlays" / "kind"))
    assert made["image"] == f"{PUBLISHED}pelops-operator:{version()}"
    assert made["imagePullPolicy"] == "Never"


# Refuses to import the modules that the first argument names, and what is in them.
WITHOUT: Final = """
import sys
refused = tuple(f"{name}." for name in sys.argv.pop(1).split(","))
class Missing:
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(refused):
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)
sys.meta_path.insert(0, Missing())
from pelops.controller.replica import main
main()
"""


def test_the_operator_runs_without_what_its_image_leaves_out(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """It lists, watches and writes its Lease with the Kubernetes client that is left."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    removed = re.findall(r"/opt/pelops/lib/python3\*/site-packages/(kubernetes/\S+)", dockerfile)
    assert len(removed) == 2
    modules = ",".join(path.replace("/", ".") for path in removed)
    assert all(find_spec(name) is not None for name in modules.split(","))
    port = free_port()
    config = plane.kubeconfig_for(SERVICE_ACCOUNT, GROUPS)
    words = ["--kubeconfig", str(config), "--http-port", str(port), "--namespace", namespace]
    started = start_process(
        "operator-of-the-image",
        [sys.executable, "-c", WITHOUT, modules, *words, "--identity", f"image-{port}"],
        log=tmp_path / "operator.log",
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator")},
        cwd=tmp_path,
    )
    try:
        wait_until(
            lambda: is_ready(port) or not started.is_alive(),
            timeout_s=120,
            what="the operator to be ready",
        )
        assert started.is_alive(), started.tail(100)
    finally:
        started.stop()
