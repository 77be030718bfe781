"""Questions about entries on a real server, and who answers for their processes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.api.group.recovery import RecoverySpec
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.domain.records.inspection import EntryReport
from pelops.domain.recovery import Cutoff, Death, LivenessReason, no_cutoff
from pelops.redis_core.server import Server
from pelops.redis_streams.inspection.entry_history import explain_entry
from pelops.redis_streams.inspection.group_view import (
    FindCutoffs,
    GroupInspection,
    OwnerQuestion,
)
from tests.integration.recovering import KEYS

ALIVE: Final = no_cutoff(LivenessReason.ALIVE, "pod web-a is alive")


def ended(at: datetime, death: Death = Death.CRASHED) -> Cutoff:
    """A process that ended before this moment."""
    return Cutoff(at=at, reason=LivenessReason.GONE, message="pod web-a was deleted", death=death)


def judged(cutoff: Cutoff) -> FindCutoffs:
    """Every consumer is judged alike."""

    async def find_cutoffs(question: OwnerQuestion) -> Mapping[str, Cutoff]:
        return dict.fromkeys(question.consumers, cutoff)

    return find_cutoffs


def dead_soon() -> FindCutoffs:
    """Everything that was delivered so far is of processes that have ended."""

    async def find_cutoffs(question: OwnerQuestion) -> Mapping[str, Cutoff]:
        return dict.fromkeys(question.consumers, ended(question.server_time + timedelta(hours=1)))

    return find_cutoffs


def inspected(
    server: Server,
    *,
    find_cutoffs: FindCutoffs | None = None,
    keys: GroupKeys = KEYS,
    with_payload: bool = False,
    **recovery: Any,
) -> GroupInspection:
    """The group as an operator inspects it."""
    return GroupInspection(
        server=server,
        keys=keys,
        recovery=RecoverySpec(**recovery),
        find_cutoffs=find_cutoffs or judged(ALIVE),
        with_payload=with_payload,
    )


async def explain(
    server: Server, entry_id: EntryId, *, find_cutoffs: FindCutoffs | None = None, **recovery: Any
) -> EntryReport:
    """Where this entry is."""
    return await explain_entry(inspected(server, find_cutoffs=find_cutoffs, **recovery), entry_id)
