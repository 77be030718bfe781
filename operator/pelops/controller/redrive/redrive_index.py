"""The redrives in the cache, by group."""

from __future__ import annotations

from pelops.api.redrive.stream_redrive import (
    StreamRedrive,
)
from pelops.controller.runtime.cache import (
    Cache,
    Concern,
    Name,
    ObjectChange,
)
from pelops.kube.client import (
    STREAM_CONSUMER_GROUP,
    STREAM_REDRIVE,
    Manifest,
)
from pelops.policy.status.reasons import ConditionType


class RedriveIndex:
    """Redrives in the cache, by group.

    A redrive is due when it changes, when its group does, and when another one of the same group
    begins or ceases to be in its way.
    """

    def __init__(self, cache: Cache) -> None:
        self._redrives = cache.objects(STREAM_REDRIVE)
        self._groups = cache.objects(STREAM_CONSUMER_GROUP)
        cache.follow(
            STREAM_REDRIVE,
            Concern(kind=STREAM_REDRIVE, find=self._find_waiting),
            Concern(kind=STREAM_CONSUMER_GROUP, find=self._find_of_group),
        )

    def group(self, redrive: StreamRedrive) -> Manifest | None:
        """The StreamConsumerGroup of a redrive."""
        return self._groups.get((redrive.metadata.namespace, redrive.spec.group_ref.name))

    def find_first(self, redrive: StreamRedrive) -> str | None:
        """The older redrive of the same group that runs first; None when it is this one."""
        if redrive.spec.is_dry_run:
            return None
        namespace, group = redrive.metadata.namespace, redrive.spec.group_ref.name
        own = _age(self._redrives.get((namespace, redrive.metadata.name)) or {})
        older = [
            (_age(manifest), name)
            for (place, name), manifest in self._redrives.items()
            if place == namespace and _group_of(manifest) == group and _blocks_others(manifest)
        ]
        first = min(older, default=None)
        return first[1] if first is not None and first[0] < own else None

    def _find_waiting(self, change: ObjectChange) -> set[Name]:
        before, after = change.before, change.after
        is_news = (before is not None and _blocks_others(before)) != (
            after is not None and _blocks_others(after)
        )
        if not is_news:
            return {change.name}
        group = (change.name[0], _group_of(before or after or {}))
        return {change.name, *self._of_group(group)}

    def _find_of_group(self, change: ObjectChange) -> set[Name]:
        """A group: its redrives, unless only its status has changed."""
        is_news = _spec_version(change.before) != _spec_version(change.after)
        return self._of_group(change.name) if is_news else set()

    def _of_group(self, group: Name) -> set[Name]:
        return {
            name
            for name, manifest in self._redrives.items()
            if name[0] == group[0] and _group_of(manifest) == group[1]
        }


def _age(manifest: Manifest) -> tuple[str, str]:
    metadata = manifest.get("metadata") or {}
    return str(metadata.get("creationTimestamp")), str(metadata.get("uid"))


def _spec_version(manifest: Manifest | None) -> tuple[object, object]:
    metadata = (manifest or {}).get("metadata", {})
    return metadata.get("uid"), metadata.get("generation")


def _group_of(manifest: Manifest) -> str:
    return str(((manifest.get("spec") or {}).get("groupRef") or {}).get("name"))


def _blocks_others(manifest: Manifest) -> bool:
    """Whether younger redrives of the same group wait for this one."""
    spec, metadata = manifest.get("spec") or {}, manifest.get("metadata") or {}
    is_approved = spec.get("approval") != "Required" or spec.get("approved") is True
    may_run = is_approved and not spec.get("suspend") and spec.get("mode") != "DryRun"
    if not may_run or metadata.get("deletionTimestamp"):
        return False
    ended = {ConditionType.COMPLETE, ConditionType.FAILED, ConditionType.STALLED}
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return not any(one.get("type") in ended and one.get("status") == "True" for one in conditions)
