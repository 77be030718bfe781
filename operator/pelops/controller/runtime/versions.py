"""Which state of which object is known: older news is no news, and what is gone stays away."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from pelops.kube.client import Manifest
from pelops.kube.resources import Kind

Name: TypeAlias = tuple[str, str]  # namespace (empty for nodes) and name
REMEMBERED = 10_000  # removed objects; what is under way comes within seconds


class Versions:
    """The newest version of each object that a watch or a LIST has told of."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        self._versions: dict[str, dict[Name, tuple[str, int]]] = {k.plural: {} for k in kinds}
        self._gone: dict[str, None] = {}  # uids of what was removed last, the oldest first

    def take(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether this state is news, and remember it if so.

        Of an object that was removed nothing is: a LIST or an answer under way may still bring it.
        """
        metadata = manifest["metadata"]
        if metadata["uid"] in self._gone:
            return False
        name, version = name_of(manifest), int(metadata.get("resourceVersion") or 0)
        known = self._versions[kind.plural].get(name)
        if known is not None and known[0] == metadata["uid"] and known[1] > version:
            return False
        self._versions[kind.plural][name] = (metadata["uid"], version)
        return True

    def bury(self, kind: Kind, name: Name, uid: str | None) -> bool:
        """Remember that an object is gone for good; False when it was not the one that is known.

        Without a uid the one that is known.
        """
        known = self._versions[kind.plural].get(name)
        gone = uid if uid is not None or known is None else known[0]
        if gone is not None:
            self._gone[gone] = None
            if len(self._gone) > REMEMBERED:
                del self._gone[next(iter(self._gone))]
        if known is None or known[0] != gone:
            return False
        del self._versions[kind.plural][name]
        return True

    def knows(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether exactly this state of the object is known already."""
        metadata = manifest["metadata"]
        state = (metadata["uid"], int(metadata.get("resourceVersion") or 0))
        return self._versions[kind.plural].get(name_of(manifest)) == state

    def version(self, kind: Kind, name: Name) -> int:
        """The version in which an object is known; 0 when it is not."""
        return self._versions[kind.plural].get(name, ("", 0))[1]

    def names(self, kind: Kind) -> dict[Name, str]:
        """All names of a kind, with their uids."""
        return {name: uid for name, (uid, _) in self._versions[kind.plural].items()}


def name_of(manifest: Manifest) -> Name:
    """Where an object is found."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def without_managers(manifest: Manifest) -> Manifest:
    """The object without its field managers, which take as much memory as all the rest."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    return {**manifest, "metadata": metadata}
