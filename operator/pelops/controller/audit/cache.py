"""What this replica knows of audits, and of what runs them. Every change names who it concerns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from pydantic import ValidationError

from pelops.api.audit.status import StreamAuditStatus
from pelops.controller.runtime.versions import Name, Versions, name_of, without_managers
from pelops.kube.audit_cron_job import audit_job_name
from pelops.kube.client import Manifest
from pelops.kube.resources import CRON_JOB, STREAM_AUDIT, Kind
from pelops.policy.audit.notices import AuditNotice, read_notices

AUDIT_KINDS = (STREAM_AUDIT, CRON_JOB)


class AuditCache:
    """StreamAudits and their CronJobs by name. The watch fills it, a periodic LIST repairs it."""

    def __init__(self, tell_groups: Callable[[set[Name]], None]) -> None:
        """`tell_groups` hears of StreamConsumerGroups of which an audit says something else now."""
        self.audits: dict[Name, Manifest] = {}
        # CronJobs by the names of the audits whose they would be; of strangers only the metadata.
        self.jobs: dict[Name, Manifest] = {}
        self._tell_groups = tell_groups
        self._versions = Versions(AUDIT_KINDS)
        self._notices: dict[Name, dict[str, AuditNotice]] = {}  # by audit, then by group
        self._by_group: dict[Name, set[Name]] = defaultdict(set)  # audits that name a group

    def put(self, kind: Kind, manifest: Manifest) -> set[Name]:
        """Take in an object unless a newer one is known: the audits that it concerns."""
        if not self._versions.take(kind, manifest):
            return set()
        if kind is STREAM_AUDIT:
            return self._store_audit(name_of(manifest), manifest)
        owner = audit_of(name_of(manifest))
        if owner is None:
            return set()
        bare = without_managers(manifest)
        self.jobs[owner] = bare if is_owned(bare) else {"metadata": bare["metadata"]}
        return {owner}

    def remove(
        self, kind: Kind, name: Name, uid: str | None = None, *, last: Manifest | None = None
    ) -> set[Name]:
        """Forget an object for good, if it still is the one with this uid: who is concerned."""
        if not self._versions.bury(kind, name, uid):
            return set()
        if kind is STREAM_AUDIT:
            self._unlink(name)
            self.audits.pop(name, None)
            self._replace_notices(name, {})
            return {name}
        owner = audit_of(name)
        return {owner} if owner is not None and self.jobs.pop(owner, None) is not None else set()

    def knows(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether exactly this state of the object is known already."""
        return self._versions.knows(kind, manifest)

    def names(self, kind: Kind) -> dict[Name, str]:
        """All names of a kind, with their uids."""
        return self._versions.names(kind)

    def auditing(self, group: Name) -> set[Name]:
        """The audits that name a StreamConsumerGroup."""
        return set(self._by_group.get(group, ()))

    def notices(self, group: Name) -> tuple[AuditNotice, ...]:
        """What the audits of its namespace say about a StreamConsumerGroup."""
        told = (
            notices.get(group[1])
            for audit, notices in self._notices.items()
            if audit[0] == group[0]
        )
        return tuple(sorted(notice for notice in told if notice is not None))

    def _store_audit(self, name: Name, manifest: Manifest) -> set[Name]:
        self._unlink(name)
        self.audits[name] = without_managers(manifest)
        named = _groups_of(manifest)
        for group in named:
            self._by_group[name[0], group].add(name)
        self._replace_notices(name, read_notices(name[1], named, _status_of(manifest)))
        return {name}

    def _unlink(self, name: Name) -> None:
        for group in _groups_of(self.audits.get(name, {})):
            self._by_group[name[0], group].discard(name)
            if not self._by_group[name[0], group]:
                del self._by_group[name[0], group]

    def _replace_notices(self, name: Name, notices: dict[str, AuditNotice]) -> None:
        before = self._notices.pop(name, {})
        if notices:
            self._notices[name] = notices
        differing = {
            group for group in {*before, *notices} if before.get(group) != notices.get(group)
        }
        if differing:
            self._tell_groups({(name[0], group) for group in differing})


def audit_of(job: Name) -> Name | None:
    """The audit whose CronJob has this name; None when no audit's can."""
    namespace, name = job
    audit = name.removesuffix(audit_job_name(""))
    return None if audit in {"", name} else (namespace, audit)


def is_owned(job: Manifest, uid: str | None = None) -> bool:
    """Whether an audit owns it; with a uid whether this one does."""
    owners = job["metadata"].get("ownerReferences") or ()
    return any(
        owner.get("kind") == STREAM_AUDIT.kind and uid in (None, owner.get("uid"))
        for owner in owners
    )


def _groups_of(manifest: Manifest) -> list[str]:
    return [str(group) for group in (manifest.get("spec") or {}).get("groups") or ()]


def _status_of(manifest: Manifest) -> StreamAuditStatus | None:
    try:
        return StreamAuditStatus.model_validate(manifest.get("status") or {})
    except ValidationError:
        return None
