"""The `env` block for the container of a Deployment that is the target of a resource."""

from __future__ import annotations

from dataclasses import replace

import yaml

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.naming import derive_keys
from pelops.errors import InvalidSpec
from pelops.kube.container_environment import build_environment, name_secrets


def render_environment(text: str) -> str:
    """Return the variables for the first StreamConsumerGroup as YAML. Raises InvalidSpec."""
    try:
        documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the 31st of February, for example
        raise InvalidSpec(f"the file is not valid YAML: {_explain(error)}") from error
    manifest = next((d for d in documents if d.get("kind") == "StreamConsumerGroup"), None)
    if manifest is None:
        raise InvalidSpec("the file does not contain a StreamConsumerGroup")
    resource = StreamConsumerGroup.parse(manifest)
    spec = resource.spec
    keys = derive_keys(spec.stream, resource.group_name, dead_letter=spec.dead_letter.stream)
    own = spec.redis.secret_ref.name if spec.redis.secret_ref else None
    access = replace(
        name_secrets(spec.redis, spec.worker_secret_ref),
        url=spec.redis.url,
        url_secret=own if spec.redis.url is None else None,
    )
    return yaml.safe_dump({"env": build_environment(resource, keys, access)}, sort_keys=False)


def _explain(error: Exception) -> str:
    """The problem and its line; the parser itself writes several lines with a part of the text."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())
