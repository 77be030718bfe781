"""What became of the copies that a redrive added to a stream: delivered, lost, or not known.

Redis does not record which entries were delivered to a group. It shows the position of the group
and the entries in the stream. So each observation of the stream is compared with the one before.
Copies that are not undelivered any more were delivered, unless undelivered entries were removed:

    Nothing was removed:                All were delivered.
    The position has not changed:       All were removed before their delivery, and are lost.
    Another stream or group exists:     The same, as of the earlier observation.
    Otherwise:                          Those that still exist were delivered. The outcome of the
                                        others is not known.

The counter entries-read is not evidence: most versions of Redis count trimmed entries as read.

An observation begins with one script and can end with a later one. The start of the earlier one is
compared with the end of the current one, so no removal is missed between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pelops.domain.entry_id import EntryId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCounters:
    """A stream and the group's position in it, at one instant."""

    position: EntryId
    added: int  # entries ever added
    length: int
    first: EntryId | None  # first entry of the stream; None: it is empty
    deleted: EntryId  # the greatest ID that XDEL has removed

    @property
    def removed(self) -> int:
        """Entries ever trimmed or deleted."""
        return self.added - self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesObservation:
    """The copies at one observation, and all that is known of earlier ones."""

    stream: StreamCounters | None = None  # None: not observed, or there was no group
    moved: int = 0  # copies, up to this observation
    undelivered: int = 0  # copies that waited for their delivery
    requeued: int = 0  # entries of the group that were requeued since the redrive started
    lost: int = 0  # copies that were removed before their delivery
    unknown: int = 0  # copies that were removed, and it is not known whether they were delivered


def find_floor(former: CopiesObservation, first: EntryId) -> EntryId:
    """Return the greatest ID up to which no copy was undelivered at the earlier observation.

    `first` is the first copy.
    """
    before = first.before()
    return before if former.stream is None else max(former.stream.position, before)


def is_untouched(former: CopiesObservation, now: StreamCounters, first: EntryId) -> bool:
    """Whether no copy that was undelivered at the earlier observation can have been removed."""
    seen = former.stream
    if seen is not None:
        if now.added < seen.added or now.position < seen.position:
            return False  # it is another stream or group
        if now.removed == seen.removed:
            return True
    floor = find_floor(former, first)
    is_trimmed = now.first is None or now.first > max(floor, first)
    return not is_trimmed and now.deleted <= floor


def compare_observations(
    former: CopiesObservation,
    *,
    begin: StreamCounters | None,
    end: StreamCounters | None,
    first: EntryId,
    moved: int,
    undelivered: int,
    requeued: int,
    kept: int,
) -> CopiesObservation:
    """Return the current observation. `undelivered` must be exact.

    `kept` is the number of copies that were delivered after the floor (`find_floor`) and still
    exist. It matters only if entries were removed.
    """
    left = max(0, former.undelivered + moved - former.moved - undelivered)
    lost, unknown = 0, 0
    if end is None or _is_another(former.stream, end):
        lost = left
    elif not is_untouched(former, end, first):
        if end.position <= find_floor(former, first):
            lost = left
        else:
            # A requeued copy is undelivered again, and hides one that was removed.
            hidden = min(undelivered, max(0, requeued - former.requeued))
            unknown = max(0, left - kept) + hidden
    return CopiesObservation(
        stream=begin,
        moved=moved,
        undelivered=undelivered,
        requeued=requeued,
        lost=former.lost + lost,
        unknown=former.unknown + unknown,
    )


def _is_another(former: StreamCounters | None, now: StreamCounters) -> bool:
    return former is not None and now.added < former.added
