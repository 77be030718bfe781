"""Bookmarks to windows: which parts of a stream a run closes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId
from pelops.pipeline.bookmarks import Bookmark
from pelops.pipeline.watching import StreamLook

# A schedule is late by a little now and then, and early the next time.
_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBreak:
    """The stream is another one than the archive knew, or went back."""

    known: Bookmark
    found: Bookmark


def find_break(known: Bookmark, now: Bookmark) -> EpochBreak | None:
    """Whether the stream's counters went back since they were known."""
    if now.added < known.added or now.at_id < known.at_id:
        return EpochBreak(known=known, found=now)
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
