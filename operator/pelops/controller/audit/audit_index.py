"""The audits and their CronJobs in the cache, and their notices for groups."""

from __future__ import annotations

from pydantic import ValidationError

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.controller.audit.audit_observer import (
    is_owned,
)
from pelops.controller.runtime.cache import (
    Cache,
    Concern,
    Name,
    ObjectChange,
    concern_itself,
    name_of,
)
from pelops.kube.audit_cron_job import (
    audit_job_name,
)
from pelops.kube.client import (
    CRON_JOB,
    STREAM_AUDIT,
    STREAM_CONSUMER_GROUP,
    Manifest,
)
from pelops.kube.trimmed import trim
from pelops.policy.audit.notices import AuditNotice, read_notices


class AuditIndex:
    """Audits and their CronJobs in the cache, and the notices of audits for groups.

    An audit is due when it, its CronJob, or the spec of a group that it names changes. A group is
    due when the notice of an audit for it changes.
    """

    def __init__(self, cache: Cache) -> None:
        self._audits = cache.objects(STREAM_AUDIT)
        self._notices: dict[Name, dict[str, AuditNotice]] = {}  # by audit, then by group
        cache.follow(
            STREAM_AUDIT,
            concern_itself(STREAM_AUDIT),
            Concern(kind=CRON_JOB, find=_find_owner, keep=_keep_job),
            Concern(kind=STREAM_CONSUMER_GROUP, find=self._find_auditing),
        )
        cache.follow(STREAM_CONSUMER_GROUP, Concern(kind=STREAM_AUDIT, find=self._replace_notices))

    def auditing(self, group: Name) -> set[Name]:
        """The audits that name a StreamConsumerGroup."""
        namespace, name = group
        return {
            audit
            for audit, manifest in self._audits.items()
            if audit[0] == namespace and name in _groups_of(manifest)
        }

    def notices(self, group: Name) -> tuple[AuditNotice, ...]:
        """The notices that the audits of its namespace have for a StreamConsumerGroup."""
        audit_notices = (
            notices.get(group[1])
            for audit, notices in self._notices.items()
            if audit[0] == group[0]
        )
        return tuple(sorted(notice for notice in audit_notices if notice is not None))

    def _find_auditing(self, change: ObjectChange) -> set[Name]:
        """A group: the audits that name it, unless only its status has changed."""
        is_news = _spec_version(change.before) != _spec_version(change.after)
        return self.auditing(change.name) if is_news else set()

    def _replace_notices(self, change: ObjectChange) -> set[Name]:
        """An audit: the groups for which its notices changed."""
        (namespace, name), manifest = change.name, change.after
        notices: dict[str, AuditNotice] = {}
        if manifest is not None:
            notices = read_notices(name, _groups_of(manifest), _status_of(manifest))
        before = self._notices.pop(change.name, {})
        if notices:
            self._notices[change.name] = notices
        groups = {*before, *notices}
        return {(namespace, one) for one in groups if before.get(one) != notices.get(one)}


def audit_of(job: Name) -> Name | None:
    """The audit whose CronJob has this name; None when no audit's can."""
    namespace, name = job
    audit = name.removesuffix(audit_job_name(""))
    return None if audit in {"", name} else (namespace, audit)


def _find_owner(change: ObjectChange) -> set[Name]:
    owner = audit_of(change.name)
    return set() if owner is None else {owner}


def _keep_job(job: Manifest) -> Manifest | None:
    """The CronJob of an audit; only the metadata if another owner has the name."""
    if audit_of(name_of(job)) is None:
        return None
    bare = trim(job)
    return bare if is_owned(bare) else {"metadata": bare["metadata"]}


def _spec_version(group: Manifest | None) -> tuple[object, object]:
    metadata = (group or {}).get("metadata", {})
    return metadata.get("uid"), metadata.get("generation")


def _groups_of(manifest: Manifest) -> list[str]:
    return [str(group) for group in (manifest.get("spec") or {}).get("groups") or ()]


def _status_of(manifest: Manifest) -> StreamAuditStatus | None:
    try:
        return StreamAuditStatus.model_validate(manifest.get("status") or {})
    except ValidationError:
        return None
