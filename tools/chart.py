"""What the Helm chart has from manifests/ and crds/, so that there is one source of both.

`python -m tools.chart --write` copies these files to `chart/pelops-operator/files`, which the
templates of the chart read, and writes the table of values in the README of the chart from the
comments in values.yaml. `--check` compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from pelops.api.generated_files import write_or_check

ROOT: Final = Path(__file__).parents[1]
CHART: Final = "chart/pelops-operator"
# From: a file, or those of a directory that match; to: a directory below files/.
COPIED: Final[tuple[tuple[str, str], ...]] = (
    ("crds/*.pelops.dev.yaml", "crds"),
    ("manifests/admission/*.yaml", "admission"),
    ("manifests/base/*.yaml", "base"),
    ("manifests/components/metrics-authentication/roles.yaml", "metrics-authentication"),
    ("manifests/components/network-policies/operator.yaml", "network-policies"),
    ("manifests/tenant/audit_jobs.yaml", "network-policies"),
    ("manifests/overlays/spark-operators/cluster_role.yaml", "spark-operators"),
    ("manifests/monitoring/rules.yaml", "monitoring"),
    ("manifests/monitoring/worker_pod_monitor.yaml", "monitoring"),
    ("manifests/monitoring/dashboards/*.json", "monitoring/dashboards"),
)
# Helm makes the namespace itself.
LEFT_OUT: Final = frozenset({"kustomization.yaml", "namespace.yaml"})
BEGIN: Final = "<!-- generated: values -->"
END: Final = "<!-- end of generated -->"
_COMMENT: Final = re.compile(r"^ *# (?P<first>-- )?(?P<text>.+)$")
_KEY: Final = re.compile(r"^(?P<indent> *)(?P<name>\w+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of the chart that values.yaml describes."""

    path: str  # such as image.tag
    default: object
    description: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or compare them; returns the exit code."""
    files = read_files(ROOT)
    failed = write_or_check(files, "python -m tools.chart", __doc__, arguments)
    stale = find_stale(ROOT, files)
    for name in stale:
        print(f"{name}: its source is gone; remove it")
    return 1 if failed or stale else 0


def read_files(root: Path) -> dict[str, str]:
    """What belongs into each generated file of the chart, by its path from the root."""
    copied = {
        f"{CHART}/files/{directory}/{path.name}": path.read_text("utf-8")
        for pattern, directory in COPIED
        for path in sorted(root.glob(pattern))
        if path.name not in LEFT_OUT
    }
    readme = (root / CHART / "README.md").read_text("utf-8")
    values = read_values((root / CHART / "values.yaml").read_text("utf-8"))
    return {**copied, f"{CHART}/README.md": replace_table(readme, render_table(values))}


def find_stale(root: Path, files: Mapping[str, str]) -> list[str]:
    """Copies whose source no longer exists, by their paths from the root."""
    found = (path for path in (root / CHART / "files").rglob("*") if path.is_file())
    names = (path.relative_to(root).as_posix() for path in found)
    return sorted(name for name in names if name not in files)


def read_values(text: str) -> list[Value]:
    """The described values, in the order of the file."""
    defaults = yaml.safe_load(text)
    return [
        Value(path=".".join(path), default=_find(defaults, path), description=description)
        for path, description in _read_comments(text)
    ]


def _read_comments(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        commented, key = _COMMENT.match(line), _KEY.match(line)
        if commented and commented["first"]:
            comment = [commented["text"]]
        elif commented and comment:
            comment.append(commented["text"])
        elif key:
            path = [*path[: len(key["indent"]) // 2], key["name"]]
            if comment:
                yield tuple(path), " ".join(comment)
            comment = []
        else:
            comment = []


def _find(values: object, path: Sequence[str]) -> object:
    for name in path:
        assert isinstance(values, dict)
        values = values[name]
    return values


def render_table(values: Sequence[Value]) -> str:
    """The values as a table of Markdown."""
    rows = [
        f"| `{one.path}` | {_render_default(one.default)} | {one.description} |" for one in values
    ]
    return "\n".join(["| value | default | description |", "|---|---|---|", *rows])


def _render_default(value: object) -> str:
    if value in ("", None):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).split("\n")[0]
    return f"`{text}`"


def replace_table(page: str, table: str) -> str:
    """The page with this table between the marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
