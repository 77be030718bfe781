"""The manifest that the demo applies, and what it declares."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

MANIFEST = Path(__file__).with_name("indexers.yaml")
AUDIT_MANIFEST = Path(__file__).with_name("audit.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A StreamConsumerGroup of the manifest."""

    namespace: str
    name: str
    stream: str
    group: str
    least: int  # workers
    most: int  # workers
    results_stream: str  # where workers add a line for each effect

    @property
    def deployment(self) -> str:
        """The Deployment of its workers."""
        return f"{self.name}-workers"

    def owns(self, pod: str) -> bool:
        """Whether a pod of this name is one of its workers; a consumer's name will do."""
        return pod.startswith(f"{self.deployment}-")


def render_manifest(template: str, *, redis_url: str, source_root: Path) -> str:
    """The manifest with the address of Redis and the directory of the workers' code filled in."""
    return _fill(template, {"REDIS_URL": redis_url, "SOURCE_ROOT": str(source_root)})


def render_audit(template: str, *, archive: Path, java: Path) -> str:
    """The StreamAudit with the directory of its archive and the home of Java filled in."""
    return _fill(template, {"ARCHIVE": str(archive), "JAVA_HOME": str(java)})


def read_audit_name(manifest: str) -> str:
    """The name of the StreamAudit that a manifest is."""
    return str(yaml.safe_load(manifest)["metadata"]["name"])


def read_declarations(manifest: str) -> tuple[Declaration, ...]:
    """The StreamConsumerGroups of a manifest, in its order."""
    documents = yaml.safe_load_all(manifest)
    return tuple(_declare(one) for one in documents if one["kind"] == "StreamConsumerGroup")


def _fill(template: str, values: Mapping[str, str]) -> str:
    # JSON is YAML: no name of a directory can break out of its string.
    return Template(template).substitute({key: json.dumps(v) for key, v in values.items()})


def _declare(resource: Mapping[str, Any]) -> Declaration:
    metadata, spec = resource["metadata"], resource["spec"]
    container = spec["template"]["spec"]["containers"][0]
    scaling = spec.get("scaling") or {}
    return Declaration(
        namespace=metadata["namespace"],
        name=metadata["name"],
        stream=spec["stream"],
        group=spec.get("group", metadata["name"]),
        least=scaling["minReplicas"] if scaling else spec["replicas"],
        most=scaling["maxReplicas"] if scaling else spec["replicas"],
        results_stream={one["name"]: one["value"] for one in container["env"]}["RESULTS_STREAM"],
    )
