"""What to do with a resource that is being deleted. Deletion never hangs.

With `Retain` there is no finalizer and nothing to wait for. With `Delete` the finalizer holds the
resource while Redis is asked to drop the group; when that cannot be done within the patience, the
resource goes all the same and an event says what was left behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pelops.policy.reasons import Reason

PATIENCE = timedelta(seconds=30)


class CleanupAction(StrEnum):
    """The next step of a deletion."""

    NOTHING = "Nothing"  # no finalizer of ours: the API server finishes by itself
    DESTROY = "Destroy"  # destroy the group and its own keys, then let go
    LET_GO = "LetGo"  # remove the finalizer


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupDecision:
    """One step, why, and the sentence for people."""

    action: CleanupAction
    reason: Reason
    message: str


def decide_finalizer(*, deletes_group: bool, has_finalizer: bool) -> bool | None:
    """True: add the finalizer; False: remove it; None: it is as it should be."""
    return None if deletes_group == has_finalizer else deletes_group


def decide_cleanup(
    *,
    has_finalizer: bool,
    deletes_group: bool,
    deleted_at: datetime,
    failure: str | None,
    now: datetime,
) -> CleanupDecision:
    """The next step for a resource whose deletion was asked for at `deleted_at`.

    `failure` is why the last attempt to destroy the group failed; None before the first.
    """
    if not has_finalizer:
        return CleanupDecision(
            action=CleanupAction.NOTHING, reason=Reason.RETAINED, message="nothing to clean up"
        )
    if not deletes_group:
        return CleanupDecision(
            action=CleanupAction.LET_GO, reason=Reason.RETAINED, message="the group stays in Redis"
        )
    if failure is not None and now - deleted_at >= PATIENCE:
        return CleanupDecision(
            action=CleanupAction.LET_GO,
            reason=Reason.LEFT_BEHIND,
            message=(
                f"The group could not be destroyed within {PATIENCE.seconds} s and stays in "
                f"Redis: {failure}"
            ),
        )
    return CleanupDecision(
        action=CleanupAction.DESTROY, reason=Reason.DESTROYING, message="destroying the group"
    )
