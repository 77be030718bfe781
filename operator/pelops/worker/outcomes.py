"""Outcomes of an entry, beside success. A handler raises or returns them."""

from __future__ import annotations

from typing import Final, TypeAlias

HANDLER_FAILED: Final = "HandlerFailed"  # reason of entries that exceeded the retries
MAX_RETRIES: Final = "MaxRetriesExceeded"  # reason of entries that ended too many processes
REJECTED: Final = "Rejected"
UNDECODABLE: Final = "Undecodable"
LONGEST_REASON: Final = 100  # characters of a reason that go into a dead letter
REPORTED_AT_MOST: Final = 2000  # characters of an error that go into a dead letter


class Retry(Exception):
    """Retry this entry later, in the same worker.

    Args:
        after: seconds until the retry. Default: the backoff of the retry policy.
        counts: whether this run is a failed attempt. Use False to wait for something else.
    """

    def __init__(self, after: float | None = None, *, counts: bool = True) -> None:
        if after is not None and not after >= 0:
            raise ValueError(f"after={after!r}: must be 0 s or more")
        super().__init__("retry" if after is None else f"retry in {after:g} s")
        self.after = after
        self.counts = counts


class Reject(Exception):
    """Move this entry to the dead-letter stream at once.

    Args:
        reason: one word. Dead letters are searched and counted by it.
        error: description of the failure, for people.
    """

    def __init__(self, reason: str = REJECTED, error: str = "") -> None:
        super().__init__(f"{reason}: {error}" if error else reason)
        self.reason = reason
        self.error = error


class Undecodable(Reject):
    """The entry does not hold what the handler requires. A retry cannot succeed."""

    def __init__(self, error: str) -> None:
        super().__init__(UNDECODABLE, error)


Outcome: TypeAlias = Retry | Reject | BaseException | None
