"""A large redrive whose replicas are killed: each dead letter moves once, and counts are exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from local_cluster.operators import Operators
from local_cluster.processes import Process
from local_cluster.redis_servers import StandaloneServers
from pelops.domain.records.ledger import LedgerKind
from tests.api_objects import create_namespace
from tests.cluster_fixtures import FAST, own_plane
from tests.e2e.recovering import Group, measured
from tests.e2e.redriving import REDRIVE, Redrives, workers
from tests.operators import Resources

LETTERS = 100_000
CAUSES = 30
CHOSEN = 27
FAILING = 100  # one in so many fails again
KILLS = 3
LONG_S = 300.0


@pytest.mark.full
def test_replicas_that_are_killed_move_each_letter_once_and_count_exactly(
    tmp_path: Path, redis_86: StandaloneServers
) -> None:
    with own_plane(tmp_path) as plane, Operators(plane, tmp_path, environment=FAST) as operators:
        create_namespace(plane, "shop")
        group = Group(Resources(plane, "shop"), redis_86, "orders-under-kills")
        replicas = {name: start(operators, name) for name in ("a", "b")}
        group.declare()
        redrives, chosen = Redrives(group), set[str]()
        for cause in range(CAUSES):
            error = f"cause {cause}: no such article"
            ids = redrives.add_letters(LETTERS // CAUSES, error=error, cause=str(cause))
            chosen |= set(ids) if cause < CHOSEN else set()
        with workers(group, fails=lambda fields: int(fields["n"]) % FAILING == 0) as running:
            selection = {"errorMatches": "^cause ([0-9]|1[0-9]|2[0-6]):"}
            redrives.create(ratePerSecond=2000, selection=selection)
            for kill in range(1, KILLS + 1):
                moved = kill * len(chosen) // (KILLS + 1)
                group.until(lambda: moved_of(group) >= moved, f"{moved} to be moved", LONG_S)  # noqa: B023
                name = last_actor(group)
                replicas.pop(name).kill()
                replicas[f"{name}{kill}"] = start(operators, f"{name}{kill}")
            status = redrives.await_reason("Completed", timeout_s=LONG_S)
        failed = sum(1 for fields in running.failed)
        moved = len(chosen)
        assert {name: status[name] for name in ("selected", "moved", "skipped", "remaining")} == {
            "selected": moved,
            "moved": moved,
            "skipped": 0,
            "remaining": 0,
        }
        assert (status["failedAgain"], status["acknowledged"]) == (failed, moved - failed)
        assert Counter(group.recorded(LedgerKind.REDRIVEN)) == Counter(chosen)
        seen = Counter((one["cause"], one["n"]) for one in (*running.done, *running.failed))
        assert (len(seen), set(seen.values())) == (moved, {1})
        assert len(group.letters()) == LETTERS // CAUSES * CAUSES - moved + failed
        alive = Operators(plane, tmp_path)
        alive.ports = operators.ports[-1:]
        shown = {
            state: measured(alive, "pelops_redrive_entries", state=state, name=REDRIVE)
            for state in ("moved", "failed_again", "acknowledged", "remaining")
        }
        assert shown == {
            "moved": moved,
            "failed_again": failed,
            "acknowledged": moved - failed,
            "remaining": 0,
        }


def start(operators: Operators, name: str) -> Process:
    """One more replica, of this name in the ledger."""
    return operators.start(1, PELOPS_IDENTITY=name)[0]


def last_actor(group: Group) -> str:
    """The replica that moved dead letters last."""
    events = group.redis.xrevrange(group.keys.ledger, count=100)
    return str(next(fields["actor"] for _, fields in events if fields["kind"] == "redriven"))


def moved_of(group: Group) -> int:
    """How many dead letters all redrives of the group have moved."""
    return int(group.redis.hget(group.keys.state, "total:redriven") or 0)
