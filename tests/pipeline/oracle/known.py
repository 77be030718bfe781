"""Histories, each made small, in which an audit once said what was not so."""

from __future__ import annotations

from typing import Any, Final

from tests.pipeline.oracle.histories import Act, Files, History, Kind

_END, _BEGINNING = 0, 1  # picks of a position


def _history(*acts: Act, **changes: Any) -> History:
    given: dict[str, Any] = {
        "seed": -1 - len(acts),
        "groups": 1,
        "has_operator": False,
        "files": Files.NONE,
        "start": "0",
        "acts": acts,
    }
    return History(**(given | changes))


_AUDITED: Final = (Act(Kind.ADD, 20), Act(Kind.DRAIN), Act(Kind.AUDIT))
_BEFORE_THE_FIRST: Final = (
    Act(Kind.ADD, 100),
    Act(Kind.READ, 90),
    Act(Kind.ACKNOWLEDGE, 80),
    Act(Kind.DELETE_PENDING, 4),
    Act(Kind.DELETE_UNDELIVERED, 5),
    Act(Kind.RECOVER),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
)
_GONE_BEFORE_THE_ARCHIVE: Final = (
    *_AUDITED,
    Act(Kind.ADD, 50),
    Act(Kind.READ, 40),
    Act(Kind.DELETE_PENDING, 10),
    Act(Kind.DELETE_UNDELIVERED, 5),
    Act(Kind.AUDIT),
)
_REQUEUED_AND_TRIMMED: Final = (
    *_AUDITED,
    Act(Kind.ADD, 50),
    Act(Kind.READ, 20),
    Act(Kind.RECOVER),
    Act(Kind.DRAIN),
    Act(Kind.RETENTION),
    Act(Kind.AUDIT),
)
_TRIMMED_UNWATCHED: Final = (
    *_AUDITED,
    Act(Kind.ADD, 20),
    Act(Kind.AUDIT),
    Act(Kind.TRIM, 30, is_unwatched=True),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
)
_SET_BACK: Final = (
    Act(Kind.SET_POSITION, pick=_BEGINNING),
    Act(Kind.READ, 10),
    Act(Kind.ACKNOWLEDGE, 1),
    Act(Kind.DELETE_PENDING, 1),
    Act(Kind.AUDIT),
)
_SET_BACK_OVER_WHAT_WAS_GONE: Final = (
    Act(Kind.ADD, 1),
    Act(Kind.DELETE_UNDELIVERED, 1),
    Act(Kind.TRIM, 5, pick=1),
    Act(Kind.SET_POSITION, pick=_BEGINNING),
    Act(Kind.AUDIT),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
)
_SKIPPED: Final = (
    Act(Kind.ADD, 50),
    Act(Kind.READ, 20),
    Act(Kind.SET_POSITION, pick=_END),
    Act(Kind.AUDIT),
)
_GROUP_ANEW: Final = (
    Act(Kind.ADD, 50),
    Act(Kind.READ, 35),
    Act(Kind.CREATE, pick=_END),
    Act(Kind.AUDIT),
)
_CONSUMER_DELETED: Final = (
    Act(Kind.ADD, 30),
    Act(Kind.READ, 15),
    Act(Kind.DELETE_CONSUMER),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
)
_BODY_GONE_AND_ACKNOWLEDGED: Final = (
    Act(Kind.ADD, 30),
    Act(Kind.READ, 15),
    Act(Kind.DELETE_PENDING, 5),
    Act(Kind.AUDIT),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
)
_FLUSHED_AND_FILLED: Final = (
    Act(Kind.ADD, 20),
    Act(Kind.READ, 5),
    Act(Kind.AUDIT),
    Act(Kind.FLUSH, 40),
    Act(Kind.DRAIN),
    Act(Kind.TRIM, 35),
    Act(Kind.AUDIT),
)
_DELETED_UNREAD: Final = (
    Act(Kind.ADD, 30),
    Act(Kind.AUDIT),
    Act(Kind.DELETE_UNDELIVERED, 10),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
)
_TRIMMED_UNREAD: Final = (
    Act(Kind.ADD, 30),
    Act(Kind.WORK, 5),
    Act(Kind.AUDIT),
    Act(Kind.ADD, 30),
    Act(Kind.TRIM, 50, pick=1),
    Act(Kind.AUDIT),
)
KNOWN: Final[dict[str, History]] = {
    "removed before the first archive": _history(*_BEFORE_THE_FIRST, has_operator=True),
    "removed before the first archive, with files": _history(
        *_BEFORE_THE_FIRST, has_operator=True, files=Files.WHOLE
    ),
    "a group that never read": _history(Act(Kind.ADD, 50), Act(Kind.AUDIT), start="$", seed=-2),
    "a group made after its entries": _history(
        Act(Kind.ADD, 50), Act(Kind.CREATE, pick=_END), Act(Kind.AUDIT)
    ),
    "a group made anew": _history(*_GROUP_ANEW),
    "a group made anew, with files": _history(*_GROUP_ANEW, files=Files.WHOLE),
    "a position that was moved": _history(*_SKIPPED),
    "a position that was moved, with files": _history(*_SKIPPED, files=Files.WHOLE),
    "a position set back to before the group, with files": _history(
        *_SET_BACK, start="$", files=Files.REWRITTEN, has_operator=True
    ),
    "a position set back over what was gone before the group": _history(
        *_SET_BACK_OVER_WHAT_WAS_GONE, start="$", has_operator=True
    ),
    "a position set back over what was gone before the group, with files": _history(
        *_SET_BACK_OVER_WHAT_WAS_GONE, start="$", files=Files.WHOLE
    ),
    "a position set back, by the operator's ledger": _history(
        Act(Kind.ADD, 10),
        Act(Kind.READ, 5),
        Act(Kind.SET_POSITION, pick=_BEGINNING),
        Act(Kind.READ, 12),
        Act(Kind.AUDIT),
        start="$",
        has_operator=True,
    ),
    "a position set back to before the group, after an audit": _history(
        Act(Kind.AUDIT),
        Act(Kind.SET_POSITION, pick=_BEGINNING),
        Act(Kind.AUDIT),
        Act(Kind.READ, 5),
        Act(Kind.AUDIT),
        Act(Kind.READ, 2),
        Act(Kind.DELETE_PENDING, 3),
        Act(Kind.ADD, 5),
        Act(Kind.AUDIT),
        start="$",
        has_operator=True,
    ),
    "a position set back over discarded dead letters": _history(
        Act(Kind.ADD, 10),
        Act(Kind.FAIL, 5, pick=2),
        Act(Kind.DELETE_DONE, 5),
        Act(Kind.DISCARD, 5),
        Act(Kind.SET_POSITION, pick=_BEGINNING),
        Act(Kind.READ, 2),
        Act(Kind.AUDIT),
        has_operator=True,
    ),
    "set back unseen, and trimmed under the operator's eyes": _history(
        Act(Kind.ADD, 20),
        Act(Kind.DRAIN, is_unwatched=True),
        Act(Kind.SET_POSITION, pick=_BEGINNING, is_unwatched=True),
        Act(Kind.READ, 1),
        Act(Kind.ACKNOWLEDGE, 1),
        Act(Kind.TRIM, 10, pick=1),
        Act(Kind.READ, 5),
        Act(Kind.AUDIT),
        has_operator=True,
    ),
    "gone before the archive": _history(*_GONE_BEFORE_THE_ARCHIVE),
    "gone before the archive, with files": _history(*_GONE_BEFORE_THE_ARCHIVE, files=Files.WHOLE),
    "requeued and trimmed": _history(*_REQUEUED_AND_TRIMMED, has_operator=True),
    "a consumer that was deleted": _history(*_CONSUMER_DELETED, files=Files.WHOLE),
    "a consumer that was deleted, seen by the operator": _history(
        *_CONSUMER_DELETED, has_operator=True
    ),
    "a body that was gone, and an acknowledgement": _history(*_BODY_GONE_AND_ACKNOWLEDGED),
    "flushed and filled": _history(*_FLUSHED_AND_FILLED),
    "restarted and filled": _history(
        *(Act(Kind.RESTART_EMPTY, 40) if a.kind is Kind.FLUSH else a for a in _FLUSHED_AND_FILLED)
    ),
    "deleted before delivery": _history(*_DELETED_UNREAD),
    "deleted before delivery, under the operator's eyes": _history(
        *_DELETED_UNREAD, has_operator=True
    ),
    "trimmed before delivery": _history(*_TRIMMED_UNREAD),
    "trimmed between two observations": _history(*_TRIMMED_UNWATCHED, has_operator=True),
    "dead-lettered after the audit of its window": _history(
        Act(Kind.ADD, 20),
        Act(Kind.READ, 10),
        Act(Kind.AUDIT),
        Act(Kind.DEAD_LETTER, 3),
        Act(Kind.DRAIN),
        Act(Kind.AUDIT),
        has_operator=True,
    ),
    "groups that share a stream": _history(
        Act(Kind.ADD, 30),
        Act(Kind.WORK, 30, 0),
        Act(Kind.WORK, 30, 1),
        Act(Kind.AUDIT),
        groups=2,
    ),
}
