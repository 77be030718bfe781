"""Which audits and groups a change of an audit, a CronJob or a group concerns."""

from typing import Any

import pytest

from pelops.controller.audit.audit_index import AuditIndex, audit_of
from pelops.controller.runtime.cache import Cache, Name
from pelops.kube.client import CRON_JOB, STREAM_AUDIT, STREAM_CONSUMER_GROUP, Kind, Manifest
from tests.audit_facts import audit_manifest

NIGHTLY: Name = ("shop", "nightly")
ORDERS: Name = ("shop", "order-processing")


class AuditCache(AuditIndex):
    """The index and the cache that it follows, as the controller of audits uses them."""

    def __init__(self) -> None:
        self.objects = Cache()
        super().__init__(self.objects)

    @property
    def jobs(self) -> dict[Name, Manifest]:
        """The CronJobs that are kept, by their audits."""
        kept = self.objects.objects(CRON_JOB).items()
        return {owner: job for name, job in kept if (owner := audit_of(name)) is not None}

    def put(self, kind: Kind, manifest: Manifest) -> set[Name]:
        return self.objects.put_answer(kind, manifest, writer=STREAM_AUDIT)

    def remove(self, kind: Kind, name: Name, uid: str) -> set[Name]:
        return self.objects.remove_deleted(kind, name, uid, writer=STREAM_AUDIT)


@pytest.fixture
def reported() -> list[set[Name]]:
    return []


@pytest.fixture
def cache(reported: list[set[Name]]) -> AuditCache:
    cache = AuditCache()
    cache.objects.listen(STREAM_CONSUMER_GROUP, lambda _, names: reported.append(names))
    cache.put(STREAM_AUDIT, audit_manifest())
    return cache


def version(number: int, **more: Any) -> dict[str, Any]:
    return {"resourceVersion": str(number), **more}


def with_loss(lost: int, number: int) -> dict[str, Any]:
    group = {"stream": "s", "group": "g", "name": "order-processing", "lost": lost}
    return {**audit_manifest(metadata=version(number)), "status": {"groups": [group]}}


def cron_job(name: str = "nightly-audit", *, owner: str = "StreamAudit") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "1"}
    metadata["ownerReferences"] = [{"kind": owner, "uid": "uid-a"}]  # type: ignore[assignment]
    return {"metadata": metadata, "spec": {"schedule": "@daily"}}


def test_a_cron_job_concerns_the_audit_whose_it_would_be(cache: AuditCache) -> None:
    assert cache.put(CRON_JOB, cron_job()) == {NIGHTLY}
    assert cache.jobs[NIGHTLY]["spec"] == {"schedule": "@daily"}
    assert cache.put(CRON_JOB, cron_job("somebody-elses")) == set()
    assert cache.remove(CRON_JOB, ("shop", "nightly-audit"), "uid-nightly-audit") == {NIGHTLY}
    assert cache.jobs == {}


def test_of_a_strangers_job_only_the_owner_is_kept(cache: AuditCache) -> None:
    cache.put(CRON_JOB, cron_job(owner="HelmRelease"))
    assert cache.jobs[NIGHTLY].keys() == {"metadata"}


def test_only_names_that_an_audit_can_have_made_are_its() -> None:
    assert audit_of(("shop", "nightly-audit")) == NIGHTLY
    assert audit_of(("shop", "-audit")) is None
    assert audit_of(("shop", "audit")) is None


def test_a_group_is_notified_only_when_its_audit_notices_change(
    cache: AuditCache, reported: list[set[Name]]
) -> None:
    cache.put(STREAM_AUDIT, with_loss(2, 2))
    assert reported == [{ORDERS}]
    assert [notice.lost for notice in cache.notices(ORDERS)] == [2]
    cache.put(STREAM_AUDIT, with_loss(2, 3))
    assert reported == [{ORDERS}]
    assert cache.notices(("elsewhere", "order-processing")) == ()
    cache.remove(STREAM_AUDIT, NIGHTLY, "uid-a")
    assert reported == [{ORDERS}, {ORDERS}]
    assert cache.notices(ORDERS) == ()


def test_an_older_state_and_one_that_is_gone_are_no_news(cache: AuditCache) -> None:
    cache.put(STREAM_AUDIT, with_loss(2, 5))
    assert cache.put(STREAM_AUDIT, with_loss(9, 4)) == set()
    cache.remove(STREAM_AUDIT, NIGHTLY, "uid-a")
    assert cache.put(STREAM_AUDIT, with_loss(9, 6)) == set()
    assert cache.objects.objects(STREAM_AUDIT) == {}


def test_the_audits_of_a_group_are_those_that_name_it_now(cache: AuditCache) -> None:
    assert cache.auditing(ORDERS) == {NIGHTLY}
    cache.put(STREAM_AUDIT, audit_manifest(metadata=version(2), groups=["mailing"]))
    assert cache.auditing(ORDERS) == set()
    assert cache.auditing(("shop", "mailing")) == {NIGHTLY}


def test_a_status_that_cannot_be_read_says_nothing(cache: AuditCache) -> None:
    broken = {**audit_manifest(metadata=version(2)), "status": {"groups": "none"}}
    assert cache.put(STREAM_AUDIT, broken) == {NIGHTLY}
    assert cache.notices(ORDERS) == ()


def a_group(number: int, *, generation: int) -> Manifest:
    metadata = {"name": "order-processing", "namespace": "shop", "uid": "uid-g"}
    return {"metadata": {**metadata, **version(number), "generation": generation}}


def test_an_audit_follows_what_its_groups_ask_for_and_not_their_status(cache: AuditCache) -> None:
    assert cache.put(STREAM_CONSUMER_GROUP, a_group(1, generation=1)) == {NIGHTLY}
    assert cache.put(STREAM_CONSUMER_GROUP, a_group(2, generation=1)) == set()
    assert cache.put(STREAM_CONSUMER_GROUP, a_group(3, generation=2)) == {NIGHTLY}
    assert cache.remove(STREAM_CONSUMER_GROUP, ORDERS, "uid-g") == {NIGHTLY}
