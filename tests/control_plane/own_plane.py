"""A control plane for one module: its operators are the only ones, and it may be broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_cluster.plane import ControlPlane
from tests.operators import install


@contextmanager
def own_plane(directory: Path) -> Iterator[ControlPlane]:
    """A control plane with the CRDs and the rights of Pelops, and nothing that uses them."""
    plane = ControlPlane.start(directory / "control-plane")
    try:
        install(plane)
        yield plane
    finally:
        plane.stop()
