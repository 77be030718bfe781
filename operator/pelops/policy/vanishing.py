"""Whether the processes of a pod that is gone have ended with it.

Most pods are seen to end: their kubelet reports it before the last of them is removed. A pod that
was deleted by force, or while nobody watched, may live on. It counts as dead when its node has had
the time to end it: a kubelet that reports has ended what the API server no longer names.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pelops.domain.liveness import Cut, FormerPod, LivenessReason, no_cut
from pelops.policy.ends import has_ended

# A node that is cut off still counts as Ready for 50 s (node-monitor-grace-period) and 5 s until
# the next look at it: only a node that is Ready after that has certainly heard of the deletion.
REPORTS_WITHIN: Final = timedelta(seconds=60)


def is_absent_long(former: FormerPod, server_time: datetime) -> bool:
    """Whether a pod has been gone for so long that a look at its node decides."""
    return server_time - former.absent_since >= _patience(former)


def is_proven(former: FormerPod, server_time: datetime, *, skew: timedelta) -> bool:
    """Whether nothing of a former pod can live any more."""
    return (former.last is not None and has_ended(former.last)) or _has_vanished(
        former, server_time, skew
    )


def _has_vanished(former: FormerPod, server_time: datetime, skew: timedelta) -> bool:
    """Whether whatever the pod's node runs must have ended since the pod is not named any more."""
    if not is_absent_long(former, server_time):
        return False
    node = former.node
    if node is None:
        return former.are_all_nodes_ready
    if not node.exists or node.is_out_of_service:
        return True
    # A node that came back has only then heard of the deletion.
    since = node.ready_since
    is_steady = since is None or server_time - since >= _patience(former) + skew
    return node.is_ready is True and is_steady


def _patience(former: FormerPod) -> timedelta:
    return timedelta(seconds=former.grace_s) + REPORTS_WITHIN


def doubt(former: FormerPod, server_time: datetime) -> Cut:
    """The cut of a pod that is gone as long as its end is not proven."""
    node = former.node
    where = f"its node {node.name}" if node is not None else "every node"
    wait = _patience(former)
    return no_cut(
        LivenessReason.MAYBE_ALIVE,
        f"pod {former.name} is gone and the end of its containers was not reported; it counts as"
        f" dead when it has been gone for {wait.total_seconds():g} s and {where} is Ready for as"
        " long, or deleted, or out of service",
        again_at=None if is_absent_long(former, server_time) else former.absent_since + wait,
    )
