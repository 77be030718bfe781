"""How a kind is served: names, printer columns, selectable fields, scale subresource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.api.schema.base import ApiModel, Rule

GROUP: Final = "pelops.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of `kubectl get`.

    The API server prints nothing where the path is absent; a column of type `string` prints any
    scalar it finds.
    """

    name: str
    type: str
    path: str
    description: str
    is_wide: bool = False  # only with -o wide


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where the scale subresource finds its numbers."""

    spec_replicas: str
    status_replicas: str
    label_selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDefinition:
    """A kind of the group `pelops.dev`, complete enough to write its definition."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    description: str
    spec: type[ApiModel]
    status: type[ApiModel]
    rules: tuple[Rule, ...]  # those that compare the spec with the metadata
    columns: tuple[PrinterColumn, ...]
    selectable_fields: tuple[str, ...]
    scale: ScalePaths | None

    @property
    def definition_name(self) -> str:
        """Return the name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"
