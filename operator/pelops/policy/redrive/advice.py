"""What to do with a cluster of dead letters: a suggestion and its reason; a person decides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pelops.policy.redrive.triage import Signature

# Words of errors that pass by themselves: somebody else was not there, or had too much to do.
_PASSING: Final = re.compile(
    r"time-?d?\s?-?out|connection|unavailable|refused|reset by peer|broken pipe|throttl|too many"
    r"|rate.?limit|temporar|try again|deadlock|lock wait|dns|name resolution|overload|unreachable",
    re.IGNORECASE,
)
# Types are written in one word: ConnectTimeoutException.
_PASSING_TYPE: Final = re.compile(
    r"Timeout|Connect|Unavailable|Throttl|RateLimit|Deadlock|Temporar"
)


class RedriveAction(StrEnum):
    """What a redrive does with a dead letter."""

    REDRIVE = "redrive"  # move it back: it can succeed as it is
    INSPECT = "inspect"  # leave it until a person has looked
    DISCARD = "discard"  # nothing is left to process


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A suggestion."""

    action: RedriveAction
    reason: str  # a sentence for whoever decides


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What is known of the dead letters of one cluster."""

    signature: Signature
    letters: int
    returned: int = 0  # letters whose entry had become a dead letter before, and was redriven


def advise_redrive(facts: ClusterFacts) -> Advice:
    """What to do with the letters of a cluster. First match wins; when in doubt, inspect. Total."""
    reason = facts.signature.reason
    if reason == "PayloadGone":
        return Advice(
            action=RedriveAction.DISCARD,
            reason="The body was deleted or trimmed while it was pending: nothing is left.",
        )
    if facts.returned:
        return Advice(
            action=RedriveAction.INSPECT,
            reason=f"{facts.returned} of {facts.letters} came back after an earlier redrive: as "
            "they are, they fail again.",
        )
    if reason == "StreamExhausted":
        return Advice(
            action=RedriveAction.REDRIVE,
            reason="The stream took no copy; the entry did not fail. Repair the stream first.",
        )
    return _advise_by_error(facts.signature)


def _advise_by_error(signature: Signature) -> Advice:
    # What the operator reports a crash names no cause, whatever words are in it.
    if signature.reason == "MaxRetriesExceeded" and not signature.exception:
        return Advice(
            action=RedriveAction.INSPECT,
            reason="Its workers died or fell silent, each time while it was in their hands.",
        )
    # A decoder that complains of "connection" in a payload is not an outage.
    if signature.reason in {"Undecodable", "Rejected"}:
        return Advice(
            action=RedriveAction.INSPECT,
            reason="The worker refused it for what it holds: it fails again until the entry or the "
            "worker changes.",
        )
    if _PASSING_TYPE.search(signature.exception) or _PASSING.search(signature.error):
        return Advice(
            action=RedriveAction.REDRIVE,
            reason="The error is of a kind that passes, such as an outage of something the worker "
            "needs. Redrive when that is well again.",
        )
    return Advice(
        action=RedriveAction.INSPECT,
        reason="The handler failed each time: find the cause before these are sent again.",
    )
