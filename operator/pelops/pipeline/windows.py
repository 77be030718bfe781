"""Bookmarks to windows: which parts of a stream a run closes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId
from pelops.pipeline.bookmarks import Bookmark
from pelops.pipeline.watching import StreamLook

# A schedule is late by a little now and then, and early the next time.
_TOLERANCE = 0.1


def find_break(known: Bookmark, look: StreamLook) -> str | None:
    """Why the stream is not the one that was known, or not as far; None when it goes on."""
    if look.added < known.added or look.last_generated < known.at_id:
        return (
            f"the stream went back from {known.added} entries added, the last {known.at_id}, to "
            f"{look.added}, the last {look.last_generated}: it was deleted or flushed and made "
            "anew, or a failover or a restored snapshot lost its end; what was added between "
            "cannot be known"
        )
    added = look.added - known.added
    if look.first is not None and look.first > known.at_id and look.length > added:
        return (
            f"the stream was deleted or flushed and made anew: {look.length} entries lie after "
            f"{known.at_id}, and since then only {added} were added by its count; what else was "
            "added between cannot be known"
        )
    return None


def beginning(look: StreamLook, now: Bookmark) -> Bookmark:
    """Where the archive of a stream begins that it knows nothing of: before what is left of it."""
    before = EntryId.MIN if look.removed == 0 else (look.first or look.last_generated).before()
    if look.first is None:
        before = look.last_generated
    return Bookmark(at_id=before, added=look.removed, at=now.at)


def close_windows(
    begin: Bookmark, bookmarks: Iterable[Bookmark], *, span: timedelta | None, number: int
) -> list[Window]:
    """Windows from `begin` on, each as long as `span` or longer; None: one up to the last bookmark.

    A window begins where the one before ended. Without a bookmark as late as that, nothing is
    closed. Bookmarks may come in any order; those that contradict the others are left out.
    """
    ends = _choose_ends(begin, _consistent(begin, bookmarks), span)
    return [
        Window(
            number=number + place,
            from_id=one.at_id,
            to_id=other.at_id,
            from_added=one.added,
            to_added=other.added,
            at=other.at,
        )
        for place, (one, other) in enumerate(pairwise([begin, *ends]))
    ]


def _choose_ends(
    begin: Bookmark, bookmarks: Sequence[Bookmark], span: timedelta | None
) -> list[Bookmark]:
    if span is None:
        return list(bookmarks[-1:])
    least, ends, last = span * (1 - _TOLERANCE), [], begin
    for bookmark in bookmarks:
        if bookmark.at - last.at >= least:
            ends.append(bookmark)
            last = bookmark
    return ends


def _consistent(begin: Bookmark, bookmarks: Iterable[Bookmark]) -> list[Bookmark]:
    """In order of time, and neither ID nor count ever going back."""
    kept: list[Bookmark] = []
    last = begin
    for bookmark in sorted(bookmarks, key=lambda one: (one.at, one.added, one.at_id)):
        if bookmark.added >= last.added and bookmark.at_id >= last.at_id:
            kept.append(bookmark)
            last = bookmark
    return kept
