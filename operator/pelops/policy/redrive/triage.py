"""Which dead letters have the same cause, by their normalized texts, and what to do with them.

Two dead letters are of one cluster if reason, error type, error and payload are equal after
numbers, addresses and quoted words are replaced. Every text here is bounded, whatever a dead letter
contains. The advice is a suggestion with its reason; a person decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from pelops.domain.records.redrive import PlannedLetterAction

WORDS_LIMIT: Final = 240  # characters of a normalized text
TYPE_LIMIT: Final = 120
_READ_AT_MOST: Final = 2048  # characters; differences after them are ignored

# In the order in which they are tried at each position. `#` counts as a digit, so that a second
# pass matches what the first one left.
_RULES: Final[tuple[tuple[str, str], ...]] = (
    (r'"(?:[^"\\]|\\.)*"', "?"),
    (r"`[^`]*`", "?"),
    # An apostrophe within a word opens nothing; Python quotes bytes as b'...'.
    (r"(?<!\w)[bBrRuU]{0,2}'(?:[^'\\]|\\.)*'", "?"),
    (r"\b0[xX][0-9a-fA-F]+", "#"),
    (r"\b[0-9a-fA-F#]{8}(?:-[0-9a-fA-F#]{4}){3}-[0-9a-fA-F#]{12}\b", "#"),  # a UUID
    # Hexadecimal with at least one digit, or too long to be a word.
    (r"\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{6,}\b", "#"),
    (r"\b[0-9a-fA-F]{16,}\b", "#"),
    # The suffix of a generated Kubernetes name: letters and digits that do not form words.
    (r"(?<=-)(?=[a-z#]*[0-9#])[bcdfghjklmnpqrstvwxz0-9#]{5,10}\b", "#"),
    # Numbers, and texts made of several numbers: times, versions, addresses, entry IDs.
    (r"[0-9#]+(?:(?:[-.:,_/+]|(?<=[0-9#])T(?=[0-9#]))[0-9#]+)*", "#"),
    (r"\s+", " "),
)
_ANY: Final = re.compile("|".join(f"({pattern})" for pattern, _ in _RULES), re.DOTALL)
_PUT: Final = [instead for _, instead in _RULES]
_TYPE: Final = re.compile(r"([A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)(?::|\s*$)")
_THREAD: Final = re.compile(r'Exception in thread "[^"]*" ')


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What dead letters of one cluster have in common."""

    reason: str  # of the dead letters, normalized
    exception: str  # type of the error as its language names it; empty if none is reported
    error: str  # normalized
    shape: str  # of the payload; see policy/redrive/payload_shape.py

    @property
    def cluster(self) -> str:
        """Sixteen hexadecimal digits that are equal for equal signatures, everywhere."""
        parts = (self.reason, self.exception, self.error, self.shape)
        text = b"".join(b"%d:%s" % (len(part), part) for part in map(_encode, parts))
        return blake2b(text, digest_size=8).hexdigest()


def build_signature(*, reason: str, error: str, shape: str) -> Signature:
    """Return the signature of a dead letter; `error` may be a whole stack trace. Total."""
    line = pick_error_line(error)
    return Signature(
        reason=normalize_words(reason),
        exception=read_exception_type(line),
        error=normalize_words(line),
        shape=shape,
    )


def normalize_words(text: str) -> str:
    """Replace numbers and hexadecimal by `#`, quoted text by `?`, and white space by one space.

    Idempotent. Returns at most `WORDS_LIMIT` characters; `…` at the end shows that it was cut.
    """
    text = _replace_all(text[:_READ_AT_MOST])
    while len(text) > WORDS_LIMIT:
        # A word that was cut may match another pattern.
        text = _replace_all(f"{text[: WORDS_LIMIT - 1]}…")
    return text


def pick_error_line(error: str) -> str:
    """Return the line of a stack trace with the error; the first line of any other text."""
    lines = [line for line in error[-_READ_AT_MOST:].splitlines() if line.strip()]
    if error.lstrip().startswith("Traceback (most recent call last)"):
        # Python prints the error last; further lines of its message are not indented either.
        named = [line for line in lines if not line[0].isspace() and read_exception_type(line)]
        return named[-1] if named else (lines[-1] if lines else "")
    head = [line for line in error[:_READ_AT_MOST].splitlines() if line.strip()]
    return _THREAD.sub("", head[0].strip()) if head else ""


def read_exception_type(line: str) -> str:
    """Return the error type at the start of a line, such as `ValueError`; empty if there is none.

    The last part of a type begins with a capital: `java.io.IOException`, `redis.TimeoutError`.
    """
    match = _TYPE.match(line.strip())
    if not match:
        return ""
    name = match[1]
    # Generated classes carry numbers: `Proxy$12`.
    return re.sub(r"[0-9]+", "#", name)[:TYPE_LIMIT] if _is_type(name) else ""


def _is_type(name: str) -> bool:
    last = re.split(r"[.$]", name)[-1] or name
    return last[0].isupper() and any(letter.islower() for letter in last)


def _replace_all(text: str) -> str:
    """Replace until nothing changes. Each pass shortens the text, or leaves fewer digits in it."""
    while (once := _ANY.sub(_replacement, text).strip()) != text:
        text = once
    return text


def _by_group(found: re.Match[str]) -> str:
    return _PUT[(found.lastindex or 1) - 1]


_replacement: Final[Callable[[re.Match[str]], str]] = _by_group


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# Words of temporary errors: another service was unavailable or overloaded.
_PASSING: Final = re.compile(
    r"time-?d?\s?-?out|connection|unavailable|refused|reset by peer|broken pipe|throttl|too many"
    r"|rate.?limit|temporar|try again|deadlock|lock wait|dns|name resolution|overload|unreachable",
    re.IGNORECASE,
)
# Types are written in one word: ConnectTimeoutException.
_PASSING_TYPE: Final = re.compile(
    r"Timeout|Connect|Unavailable|Throttl|RateLimit|Deadlock|Temporar"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A suggestion."""

    action: PlannedLetterAction
    reason: str  # a sentence for the user who decides


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What is known of the dead letters of one cluster."""

    signature: Signature
    letters: int
    returned: int = 0  # dead letters whose entry was redriven before, and failed again


def advise_redrive(facts: ClusterFacts) -> Advice:
    """Advise what to do with the dead letters of a cluster; if unsure, inspect. Total."""
    reason = facts.signature.reason
    if reason == "PayloadGone":
        return Advice(
            action=PlannedLetterAction.DISCARD,
            reason="The body of the entry was deleted or trimmed while it was pending, so there is "
            "nothing to redrive.",
        )
    if facts.returned:
        return Advice(
            action=PlannedLetterAction.INSPECT,
            reason=f"{facts.returned} of {facts.letters} failed again after an earlier "
            "redrive. Fix the cause before you redrive them.",
        )
    if reason == "StreamExhausted":
        return Advice(
            action=PlannedLetterAction.REDRIVE,
            reason="The entry could not be copied to the stream; its processing did not fail. "
            "Correct the stream first.",
        )
    return _advise_by_error(facts.signature)


def _advise_by_error(signature: Signature) -> Advice:
    # The operator's error text for a crash names no cause, whatever words it contains.
    if signature.reason == "MaxRetriesExceeded" and not signature.exception:
        return Advice(
            action=PlannedLetterAction.INSPECT,
            reason="Its workers crashed, or stopped sending heartbeats, each time while they "
            "processed it.",
        )
    # A decoder's error that quotes "connection" from a payload is not an outage.
    if signature.reason in {"Undecodable", "Rejected"}:
        return Advice(
            action=PlannedLetterAction.INSPECT,
            reason="The worker rejected its content: it fails again until the entry or the worker "
            "changes.",
        )
    if _PASSING_TYPE.search(signature.exception) or _PASSING.search(signature.error):
        return Advice(
            action=PlannedLetterAction.REDRIVE,
            reason="The error is temporary, such as an outage of a service that the worker uses. "
            "Redrive when the service works again.",
        )
    return Advice(
        action=PlannedLetterAction.INSPECT,
        reason="The handler failed each time. Find the cause before you redrive these.",
    )
