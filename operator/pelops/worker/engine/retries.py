"""What becomes of an entry after its handler: done, again, or a dead letter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from pelops.domain.backoff import backoff_s
from pelops.worker.outcomes import HANDLER_FAILED, Outcome, Reject, Retry, describe_error


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a failed entry is tried again, and after what time.

    The n-th failure waits `initial_s * factor ** (n - 1)`, at most `max_s`: 1, 2, 4 s by default.
    """

    max_retries: int = 3  # one more failure makes a dead letter
    initial_s: float = 1.0
    factor: float = 2.0
    max_s: float = 300.0

    def __post_init__(self) -> None:
        numbers = (self.max_retries, self.initial_s, self.factor, self.max_s)
        if not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"a retry policy has finite numbers, 0 or more: {self}")

    def wait_s(self, failures: int) -> float:
        """How long an entry waits after so many failures, the first one included."""
        return backoff_s(
            max(failures, 1), first_s=self.initial_s, longest_s=self.max_s, factor=self.factor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """It runs here once more."""

    wait_s: float
    counts: bool  # as a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """It becomes a dead letter."""

    reason: str
    error: str


Settlement: TypeAlias = Again | GivenUp | None  # None: it is done


def decide_settlement(outcome: Outcome, failures: int, policy: RetryPolicy) -> Settlement:
    """What becomes of an entry that had failed `failures` times before this outcome."""
    match outcome:
        case Reject():
            error = outcome.error or _cause(outcome)
            return GivenUp(reason=outcome.reason, error=error)
        case Retry(after=after, counts=False):
            wait_s = policy.wait_s(failures + 1) if after is None else after
            return Again(wait_s=wait_s, counts=False)
        case BaseException():
            return _again_or_never(outcome, failures + 1, policy)
        case _:
            return None


def _again_or_never(error: BaseException, failures: int, policy: RetryPolicy) -> Settlement:
    if failures > policy.max_retries:
        reported = _cause(error) or describe_error(error)
        return GivenUp(reason=HANDLER_FAILED, error=reported)
    after = error.after if isinstance(error, Retry) else None
    return Again(wait_s=policy.wait_s(failures) if after is None else after, counts=True)


def _cause(outcome: BaseException) -> str:
    """What lay behind a Retry or a Reject."""
    cause = outcome.__cause__ or outcome.__context__
    return describe_error(cause) if isinstance(outcome, Retry | Reject) and cause else ""
