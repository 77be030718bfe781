"""Changes of audits, CronJobs and groups reach whom they concern, and nobody else."""

from typing import Any

import pytest

from pelops.controller.audit.cache import AuditCache, audit_of
from pelops.controller.runtime.versions import Name
from pelops.kube.resources import CRON_JOB, STREAM_AUDIT
from tests.audit_facts import audit_manifest

NIGHTLY: Name = ("shop", "nightly")
ORDERS: Name = ("shop", "order-processing")


@pytest.fixture
def told() -> list[set[Name]]:
    return []


@pytest.fixture
def cache(told: list[set[Name]]) -> AuditCache:
    cache = AuditCache(told.append)
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


def test_a_group_is_told_when_something_else_is_said_of_it_and_only_then(
    cache: AuditCache, told: list[set[Name]]
) -> None:
    cache.put(STREAM_AUDIT, with_loss(2, 2))
    assert told == [{ORDERS}]
    assert [notice.lost for notice in cache.notices(ORDERS)] == [2]
    cache.put(STREAM_AUDIT, with_loss(2, 3))
    assert told == [{ORDERS}]
    assert cache.notices(("elsewhere", "order-processing")) == ()
    cache.remove(STREAM_AUDIT, NIGHTLY, "uid-a")
    assert told == [{ORDERS}, {ORDERS}]
    assert cache.notices(ORDERS) == ()


def test_an_older_state_and_one_that_is_gone_are_no_news(cache: AuditCache) -> None:
    cache.put(STREAM_AUDIT, with_loss(2, 5))
    assert cache.put(STREAM_AUDIT, with_loss(9, 4)) == set()
    cache.remove(STREAM_AUDIT, NIGHTLY, "uid-a")
    assert cache.put(STREAM_AUDIT, with_loss(9, 6)) == set()
    assert cache.audits == {}


def test_the_audits_of_a_group_are_those_that_name_it_now(cache: AuditCache) -> None:
    assert cache.auditing(ORDERS) == {NIGHTLY}
    cache.put(STREAM_AUDIT, audit_manifest(metadata=version(2), groups=["mailing"]))
    assert cache.auditing(ORDERS) == set()
    assert cache.auditing(("shop", "mailing")) == {NIGHTLY}


def test_a_status_that_cannot_be_read_says_nothing(cache: AuditCache) -> None:
    broken = {**audit_manifest(metadata=version(2)), "status": {"groups": "none"}}
    assert cache.put(STREAM_AUDIT, broken) == {NIGHTLY}
    assert cache.notices(ORDERS) == ()
