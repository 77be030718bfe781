"""The manifest that the demo applies, and what it declares."""

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

MANIFEST = Path(__file__).with_name("indexers.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A StreamConsumerGroup with all that belongs to it, ready to be applied."""

    manifest: str
    namespace: str
    name: str
    stream: str
    group: str
    least: int  # workers
    most: int  # workers
    results_key: str  # Redis hash: path to counts
    max_retries: int


def render_declaration(template: str, *, redis_url: str, source_root: Path) -> Declaration:
    """The manifest with the address of Redis and the directory of the workers' code filled in."""
    values = {"REDIS_URL": redis_url, "SOURCE_ROOT": str(source_root)}
    # JSON is YAML: no name of a directory can break out of its string.
    manifest = Template(template).substitute({key: json.dumps(v) for key, v in values.items()})
    documents = {document["kind"]: document for document in yaml.safe_load_all(manifest)}
    resource: dict[str, Any] = documents["StreamConsumerGroup"]
    metadata, spec = resource["metadata"], resource["spec"]
    container = spec["template"]["spec"]["containers"][0]
    return Declaration(
        manifest=manifest,
        namespace=metadata["namespace"],
        name=metadata["name"],
        stream=spec["stream"],
        group=spec.get("group", metadata["name"]),
        least=spec["scaling"]["minReplicas"],
        most=spec["scaling"]["maxReplicas"],
        results_key={one["name"]: one["value"] for one in container["env"]}["RESULTS_KEY"],
        max_retries=spec["recovery"]["maxRetries"],
    )
