"""A consumer group whose consumer is a Spark job: its lag is shown, and it is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.processes import Process
from local_cluster.redis_servers import RedisServers
from pelops.domain.records.ledger import LedgerKind
from tests.e2e.recovering import Group
from tests.e2e.spark_query import read_copied, start_query
from tests.operators import Operators, Resources

NODE = 100  # entries that Redis removes at once
PER_BATCH = 200
START_S = 180.0  # Spark takes its time on a busy machine
pytestmark = pytest.mark.timeout(4 * START_S)
# What the operator may do on such a group's behalf.
EXPECTED_ACTS = {LedgerKind.GROUP_CREATED, LedgerKind.CHECKPOINT, LedgerKind.TRIMMED}


class Query:
    """The query that consumes for a group; whatever runs at the end of the test is ended."""

    def __init__(self, group: Group, directory: Path) -> None:
        self._group = group
        self._directory = directory
        self._process: Process | None = None

    def start(self) -> None:
        """Start it, or start it again from its checkpoint."""
        options = {
            "url": self._group.url,
            "stream": self._group.stream,
            "startingId": "earliest",
            "maxEntriesPerTrigger": str(PER_BATCH),
            "progressGroup": self._group.keys.group,
        }
        self._process = start_query(self._directory, options)

    def kill(self) -> None:
        """End it as a lost node does."""
        if self._process is not None:
            self._process.kill()

    def lag(self) -> int:
        """The lag that the status shows while the query runs."""
        assert self._process is not None and self._process.is_alive(), "the query has ended"
        return _lag(self._group)

    def copied(self) -> list[str]:
        """The IDs that it has written."""
        return read_copied(self._directory)


@pytest.fixture
def group(resources: Resources, operator: Operators, redis_86: RedisServers, stream: str) -> Group:
    """A group that is declared without workers, on a stream that is kept short."""
    group = Group(resources, redis_86, stream)
    group.apply(template=None, replicas=None, retention={"maxLength": NODE})
    group.resources.await_condition(group.name, reason="Ready")
    return group


@pytest.fixture
def query(group: Group, tmp_path: Path, java: Path) -> Iterator[Query]:
    """A query that does not run yet."""
    query = Query(group, tmp_path)
    yield query
    query.kill()


@pytest.mark.full
def test_a_killed_query_resumes_and_its_lag_is_shown_meanwhile(group: Group, query: Query) -> None:
    ids = group.add(6 * PER_BATCH)
    _await_lag(group, len(ids))
    query.start()
    group.until(lambda: 0 < query.lag() < len(ids), "the lag to fall", timeout_s=START_S)
    query.kill()
    left = group.redis.xinfo_groups(group.stream)[0]["lag"]
    assert 0 < left < len(ids)
    _await_lag(group, left)
    assert _column(group, "LAG") == str(left)
    # Entries that the query has not read are kept; what is kept beyond that is of one node.
    group.until(lambda: group.redis.xlen(group.stream) < left + 2 * NODE, "the rest to go")
    more = group.add(PER_BATCH)
    _await_lag(group, left + len(more))
    assert _kept(group)[-left - len(more) :] == [*ids, *more][-left - len(more) :]
    _assert_left_alone(group)
    query.start()
    group.until(lambda: query.lag() == 0, "the lag to be 0", timeout_s=START_S)
    _assert_left_alone(group)
    assert group.redis.xinfo_groups(group.stream)[0]["last-delivered-id"] == more[-1]
    assert query.copied() == sorted([*ids, *more])


def _assert_left_alone(group: Group) -> None:
    """The group is well, nothing was moved, and no position is reported as changed by hand."""
    resources = group.resources
    assert resources.condition(group.name)["status"] == "True"
    assert resources.condition(group.name, "WorkloadReady")["reason"] == "NoWorkload"
    assert resources.condition(group.name, "ScalingActive")["reason"] == "ScalingDisabled"
    for alarm in ("PositionWentBack", "DataLoss", "UnmatchedConsumers"):
        assert not resources.condition(group.name, alarm)
    assert "PositionChanged" not in {event["reason"] for event in resources.events(group.name)}
    acts = {event.kind for kind in LedgerKind for event in group.ledger(kind)}
    assert acts <= EXPECTED_ACTS
    (seen,) = group.redis.xinfo_groups(group.stream)
    assert (seen["consumers"], seen["pending"]) == (0, 0)


def _await_lag(group: Group, lag: int) -> None:
    group.until(lambda: _lag(group) == lag, f"the lag to be {lag}")


def _lag(group: Group) -> int:
    """The lag that the status shows; -1 while it shows none."""
    return int(group.reported("group").get("lag", -1))


def _column(group: Group, heading: str) -> str:
    """A cell of `kubectl get scg`; those before it must not be empty."""
    where = ("-n", group.resources.namespace)
    table = group.resources.plane.kubectl("get", "scg", group.name, *where).stdout
    head, row = (line.split() for line in table.splitlines())
    return row[head.index(heading)]


def _kept(group: Group) -> list[str]:
    return [entry_id for entry_id, _ in group.redis.xrange(group.stream)]
