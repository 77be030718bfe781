"""The part of `metadata` that Pelops reads."""

from __future__ import annotations

from pydantic import Field

from pelops.api.schema.base import ApiModel
from pelops.api.schema.bounds import Timestamp


class ObjectMeta(ApiModel):
    """Who and what an object is; the API server validates it, so there are no bounds here."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_being_deleted(self) -> bool:
        return self.deletion_timestamp is not None
