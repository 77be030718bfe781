"""Control planes for one module: no other operator is there, and they may be broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_cluster.plane import ControlPlane
from tests.operators import ROOT, install


@contextmanager
def own_plane(directory: Path) -> Iterator[ControlPlane]:
    """A control plane with the CRDs and the rights of Pelops, and nothing that uses them."""
    plane = ControlPlane.start(directory / "control-plane", prepare=install)
    try:
        yield plane
    finally:
        plane.stop()


@contextmanager
def crd_plane(directory: Path) -> Iterator[ControlPlane]:
    """An API server that serves the CRDs, alone: nothing acts on what is created."""
    plane = ControlPlane.start(directory / "control-plane", controllers=False)
    try:
        plane.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        yield plane
    finally:
        plane.stop()
