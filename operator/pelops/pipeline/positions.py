"""Whether a group's position was reached by reading, as far as its looks tell. Pure.

An entry below the position that is not pending counts as acknowledged only where the position was
moved by deliveries. XGROUP CREATE at an ID, XGROUP SETID, and a group that was deleted and created
again move it past entries that were never delivered.

`entries-read` is the sign: the server does not know it for a group that was created or set to an ID
in the middle, until a read reaches the end of the stream. A group that read from the beginning on
loses it only where entries were deleted by XDEL.
"""

from __future__ import annotations

from pelops.domain.entry_id import EntryId
from pelops.pipeline.snapshot import LastLook
from pelops.pipeline.watching import GroupLook


def find_position_doubt(
    look: GroupLook, last: LastLook, *, max_deleted: EntryId, created_at: EntryId | None
) -> str | None:
    """Why entries up to the position may never have been delivered; None when nothing shows it.

    `max_deleted` is the highest ID that XDEL ever removed from the stream; `created_at` is where
    the group was created in this window, as the ledger or append-only files tell.
    """
    if look.position in {EntryId.MIN, created_at}:
        return None
    if last.was_missing and created_at is None:
        return "the group was created since the audit before"
    if last.group is not None and look.is_another(last.group):
        return "the group was deleted and created again since the audit before"
    if look.entries_read is not None:
        return None
    at = f"the group's position {look.position} was set by XGROUP CREATE or SETID"
    # It stays unknown, once it is, while reads do not reach the end.
    was_unknown = created_at not in {None, EntryId.MIN} or (
        last.group is not None and last.group.entries_read is None
    )
    if max_deleted == EntryId.MIN and not was_unknown:
        return f"{at}: the server does not know how much was read up to it"
    if look.given_ms is None:
        return f"{at}, or its consumers were deleted: none of them was ever given an entry"
    if look.given_ms < look.position.ms:
        return f"{at}: no consumer was given an entry since that one was added"
    return None
