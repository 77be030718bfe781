"""Helm as a user calls it, and what the chart renders."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from local_cluster.kubectl import kubectl_environment
from tests.operators import ROOT

CHART: Final = ROOT / "chart" / "pelops-operator"
RELEASE, NAMESPACE = "pelops-operator", "pelops-system"
TIMEOUT_S: Final = 240.0

Object = dict[str, Any]
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class HelmFailed(AssertionError):
    """Helm ended with an error; the message is what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """One program, and one set of caches."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *args: str) -> str:
        """Run a command; its output. Raises HelmFailed with the errors that it printed."""
        environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            **{f"HELM_{name}_HOME": str(self.home / name) for name in ("CACHE", "CONFIG", "DATA")},
        }
        if self.kubeconfig is not None:
            environment |= kubectl_environment(self.kubeconfig)
        ended = subprocess.run(
            [str(self.program), *args],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if ended.returncode:
            raise HelmFailed(ended.stderr.strip())
        return ended.stdout


@dataclass(slots=True, kw_only=True)
class Renderer:
    """`helm template`, once for each set of values: a call costs 0.3 s."""

    helm: Helm
    scratch: Path
    chart: Path = CHART
    _rendered: dict[str, list[Object]] = field(default_factory=dict)

    def __call__(self, values: Mapping[str, Any] | None = None, release: str = RELEASE) -> Rendered:
        """Render the chart with these values, as nested mappings."""
        key = json.dumps([release, values], sort_keys=True)
        if key not in self._rendered:
            self._rendered[key] = self._render(values, release)
        return Rendered(self._rendered[key])

    def _render(self, values: Mapping[str, Any] | None, release: str) -> list[Object]:
        file = write_values(self.scratch, values)
        command = ("template", release, str(self.chart), "-n", NAMESPACE, "-f", str(file))
        return read_objects(self.helm.run(*command))


class Rendered:
    """The objects of one rendering."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects

    def __iter__(self) -> Iterator[Object]:
        return iter(self.objects)

    def of(self, kind: str) -> list[Object]:
        """All of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def names(self, kind: str) -> set[str]:
        """Their names."""
        return {one["metadata"]["name"] for one in self.of(kind)}

    def one(self, kind: str, name: str | None = None) -> Object:
        """The only one of a kind, or of a kind and a name."""
        (found,) = (o for o in self.of(kind) if name in (None, o["metadata"]["name"]))
        return found

    @property
    def pod(self) -> Object:
        """The spec of the operator's pods."""
        spec: Object = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Object:
        """The operator's container."""
        (container,) = self.pod["containers"]
        assert isinstance(container, dict)
        return container

    @property
    def environment(self) -> dict[str, str]:
        """The variables with plain values."""
        return {one["name"]: one["value"] for one in self.container["env"] if "value" in one}


def read_objects(text: str) -> list[Object]:
    """The objects of a stream of YAML. Large CRDs take seconds without the loader in C."""
    return [one for one in yaml.load_all(text, _LOADER) if one]


def write_values(directory: Path, values: Mapping[str, Any] | None) -> Path:
    """A file of values."""
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values or {})))
    return file


@contextmanager
def refused() -> Iterator[list[str]]:
    """Expect that Helm refuses; the list has the message afterwards."""
    messages: list[str] = []
    try:
        yield messages
    except HelmFailed as error:
        messages.append(str(error))
    assert messages, "Helm accepted it"
