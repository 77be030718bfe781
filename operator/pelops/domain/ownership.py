"""Who acts on a consumer group: the record in the group's state key.

Two resources may name one group from two clusters, or under two spellings of one address. Neither
API server can see that, so the group itself says who acts: the oldest resource whose hold is alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.errors import InvalidSpec

OWNERSHIP_LIFETIME: Final = timedelta(
    minutes=10
)  # a resource that is not renewed this long gives way


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """The resource that acts on a group, as it introduces itself to Redis."""

    uid: str
    cluster: str  # identity of the Kubernetes cluster; empty when unknown
    namespace: str
    name: str
    created: datetime  # of the resource: the older one acts

    def __post_init__(self) -> None:
        if self.created.tzinfo is None:
            raise InvalidSpec("the creation time of an owner needs a time zone")

    def __str__(self) -> str:
        place = f" of cluster {self.cluster}" if self.cluster else ""
        return f"{self.namespace}/{self.name}{place}"

    def is_same_as(self, other: OwnerRecord) -> bool:
        """Whether both records speak of one resource, known by its uid alone.

        The cluster may be unknown for a while: a namespaced install cannot read who it is.
        """
        return self.uid == other.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipRecord:
    """An owner's record as the group holds it."""

    owner: OwnerRecord
    owned_until: datetime  # on the server's clock
