"""What a handler may say of an entry other than that it is done. All can be raised or returned."""

from __future__ import annotations

from typing import Final, TypeAlias

HANDLER_FAILED: Final = "HandlerFailed"  # reason of entries that failed as often as they may
MAX_RETRIES: Final = "MaxRetriesExceeded"  # of entries that ended process after process
REJECTED: Final = "Rejected"
UNDECODABLE: Final = "Undecodable"
LONGEST_REASON: Final = 100  # characters of a reason that go into a dead letter
REPORTED_AT_MOST: Final = 2000  # characters of an error that go into a dead letter


class Retry(Exception):
    """Handle this entry again later, here.

    Args:
        after: seconds; None: as the retry policy says.
        counts: whether this was a failed attempt. One that waits for something else has not failed.
    """

    def __init__(self, after: float | None = None, *, counts: bool = True) -> None:
        if after is not None and not after >= 0:
            raise ValueError(f"after={after!r}: give seconds, 0 or more")
        super().__init__("again" if after is None else f"again in {after:g} s")
        self.after = after
        self.counts = counts


class Reject(Exception):
    """Make this entry a dead letter at once.

    Args:
        reason: one word, by which dead letters are found and counted.
        error: what happened, for people.
    """

    def __init__(self, reason: str = REJECTED, error: str = "") -> None:
        super().__init__(f"{reason}: {error}" if error else reason)
        self.reason = reason
        self.error = error


class Undecodable(Reject):
    """The entry does not hold what the handler asked for, and never will."""

    def __init__(self, error: str) -> None:
        super().__init__(UNDECODABLE, error)


Outcome: TypeAlias = Retry | Reject | BaseException | None
