"""The state of an entry that is neither pending nor in a dead-letter stream. Pure.

Redis keeps no record of acknowledgements. Known are the group's position, the entries in the
stream, the counters of removed entries, and the ledger's events of positions and losses::

    greater than every ID of the stream          it never existed
    not there, though nothing was removed there  it never existed
    in the stream, at or below the position      acknowledged, unless the ledger has another reason
    trimmed by the operator                      acknowledged, by every group
    removed otherwise, below the position        acknowledged, or lost: only an audit knows
    removed, beyond the position                 removed before any worker was given it
"""

from __future__ import annotations

from collections.abc import Sequence

from pelops.domain.outcome import EntryState
from pelops.domain.records.inspection import EntryFinding, EntryLocation, Evidence, EvidenceKind

_AUDIT = "An audit with append-only files as evidence can prove it."


def decide_absence(location: EntryLocation, evidence: Sequence[Evidence]) -> EntryFinding:
    """Return the state of an entry that no worker holds. Total."""
    entry_id, position = location.entry_id, location.position
    if location.found is None and _never_was(location):
        return EntryFinding(state=EntryState.NEVER_EXISTED, message=_why_never(location))
    delivered = position.last_delivered
    if delivered is None or entry_id > delivered:
        return EntryFinding(
            state=EntryState.REMOVED,
            message="It is not in the stream, and the group's position has not passed it: it was "
            "deleted or trimmed before any worker was given it, or it never existed.",
            is_certain=False,
        )
    return _passed(location, evidence)


def _never_was(location: EntryLocation) -> bool:
    entry_id, position = location.entry_id, location.position
    if entry_id > position.last_generated or not position.has_removed:
        return True
    # Trimming takes the lowest entries only, and XDEL raises the highest deleted ID.
    is_above_trimmed = position.first is not None and entry_id > position.first
    return is_above_trimmed and entry_id > position.highest_deleted


def _why_never(location: EntryLocation) -> str:
    entry_id, position = location.entry_id, location.position
    if entry_id > position.last_generated:
        return f"No entry has this ID: the last ID of the stream is {position.last_generated}."
    if not position.has_removed:
        return "No entry has this ID: the stream does not hold it, and none was ever removed."
    return (
        "No entry has this ID: the stream does not hold it, and no entry as new as this was ever "
        "deleted or trimmed."
    )


def _passed(location: EntryLocation, evidence: Sequence[Evidence]) -> EntryFinding:
    """Return the state of an entry that is not pending and not beyond the group's position."""
    for kind, state in (
        (EvidenceKind.SKIPPED, EntryState.NOT_DELIVERED),
        (EvidenceKind.LOST, EntryState.REMOVED),
        (EvidenceKind.MAY_BE_DROPPED, EntryState.INDETERMINATE),
        (EvidenceKind.TRIMMED, EntryState.ACKNOWLEDGED),
    ):
        matches = [one for one in evidence if one.kind is kind]
        if matches and not (kind is EvidenceKind.LOST and location.found is not None):
            return EntryFinding(state=state, message=matches[0].message, is_certain=False)
    position = location.position.last_delivered
    if location.found is not None:
        return EntryFinding(
            state=EntryState.ACKNOWLEDGED,
            message=f"It was delivered (the group's position is {position}), it is not pending, "
            "and the ledger has no other reason for that: a worker acknowledged it. "
            f"{_AUDIT}",
            is_certain=False,
        )
    return EntryFinding(
        state=EntryState.INDETERMINATE,
        message="It is not in the stream and not pending, and the group's position "
        f"({position}) has passed it: it was acknowledged and then removed, or removed before it "
        f"was delivered, or it never existed. {_AUDIT}",
        is_certain=False,
    )
