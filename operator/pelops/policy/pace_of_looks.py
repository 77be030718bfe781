"""How long the next look at a group may wait, so that looking follows need."""

from __future__ import annotations

from typing import Final

from pelops.domain.scaling import Backlog

BUSY_S: Final = 1.0  # something is owed, or more workers run than the least
IDLE_AT_ZERO_S: Final = 2.0  # no worker runs and nothing will call
WATCHED_AT_ZERO_S: Final = 20.0  # no worker runs, and the first entry wakes us
LONGEST_IDLE_S: Final = 5.0  # the least number runs and nothing comes
UNSEEN_S: Final = 2.0  # Redis did not answer


def next_look(
    backlog: Backlog | None, *, replicas: int, least: int, idle_looks: int, is_watched: bool
) -> float:
    """Seconds until the next look, before jitter.

    `replicas` is what the workload runs or was just told to, `least` is minReplicas, `idle_looks`
    counts the looks in a row that found nothing to do (the caller starts at 0 again when one did),
    `is_watched` tells whether the first new entry wakes us by itself. `backlog` None: Redis could
    not be seen.
    """
    if backlog is None:
        return UNSEEN_S
    if not backlog.is_nothing_owed or replicas > least:
        return BUSY_S
    if replicas == 0:
        return WATCHED_AT_ZERO_S if is_watched else IDLE_AT_ZERO_S
    return min(LONGEST_IDLE_S, 2.0 + 0.5 * max(0, idle_looks))
