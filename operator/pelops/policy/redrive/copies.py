"""What became of the copies that a redrive added to a stream: delivered, lost, or not known.

Redis does not record which entries a group was given. It tells the position of the group, and what
the stream holds. So each look at the stream is compared with the look before it. Copies that are
not undelivered any more were delivered, unless an entry that was undelivered then was removed:

    nothing was removed                 all were delivered
    the position has not moved          all were removed before their delivery: lost
    the stream or the group is another  the same, as of the look before
    else                                those that still exist were delivered; of the others it is
                                        not known

The counter entries-read is no evidence: most versions of Redis count trimmed entries as read.

A look begins with one script and can end with a later one. What is compared is the beginning of the
former look and the end of the present one, so no removal falls between two looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from pelops.domain.entry_id import EntryId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAtLook:
    """A stream and the position of the group in it, at one instant."""

    position: EntryId
    added: int  # entries, since the stream exists
    length: int
    first: EntryId | None  # entry that it holds; None: it is empty
    deleted: EntryId  # the greatest ID that XDEL has removed

    @property
    def removed(self) -> int:
        """Entries that were trimmed or deleted, since the stream exists."""
        return self.added - self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The copies as of one look, and all that is known of those before it."""

    stream: StreamAtLook | None = None  # None: of no look, or there was no group
    moved: int = 0  # copies, up to this look
    undelivered: int = 0  # copies that waited for their delivery
    requeued: int = 0  # entries of the group that were requeued since the redrive started
    lost: int = 0  # copies that were removed before their delivery
    unknown: int = 0  # copies that are gone, and nothing tells whether they were delivered


def find_floor(former: Look, first: EntryId) -> EntryId:
    """The greatest ID up to which no copy was undelivered at the former look.

    `first` is the first copy.
    """
    before = first.before()
    return before if former.stream is None else max(former.stream.position, before)


def is_untouched(former: Look, now: StreamAtLook, first: EntryId) -> bool:
    """Whether no copy that was undelivered at the former look can have been removed since."""
    seen = former.stream
    if seen is not None:
        if now.added < seen.added or now.position < seen.position:
            return False  # it is another stream or group
        if now.removed == seen.removed:
            return True
    floor = find_floor(former, first)
    is_trimmed = now.first is None or now.first > max(floor, first)
    return not is_trimmed and now.deleted <= floor


def compare_looks(
    former: Look,
    *,
    begin: StreamAtLook | None,
    end: StreamAtLook | None,
    first: EntryId,
    moved: int,
    undelivered: int,
    requeued: int,
    kept: int,
) -> Look:
    """The present look. `kept` is how many copies still exist that were delivered after the floor.

    It matters where the stream was touched only. `undelivered` has to be exact.
    """
    left = max(0, former.undelivered + moved - former.moved - undelivered)
    lost, unknown = 0, 0
    if end is None or _is_another(former.stream, end):
        lost = left
    elif not is_untouched(former, end, first):
        if end.position <= find_floor(former, first):
            lost = left
        else:
            # A copy that was requeued is undelivered again, and stands for one that is gone.
            hidden = min(undelivered, max(0, requeued - former.requeued))
            unknown = max(0, left - kept) + hidden
    return Look(
        stream=begin,
        moved=moved,
        undelivered=undelivered,
        requeued=requeued,
        lost=former.lost + lost,
        unknown=former.unknown + unknown,
    )


def _is_another(former: StreamAtLook | None, now: StreamAtLook) -> bool:
    return former is not None and now.added < former.added
