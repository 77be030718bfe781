"""The text of an error as dead letters carry it: of bounded length, and without the payload.

Libraries quote their input in errors: `invalid literal for int(): '4111'`. A dead letter is kept
longer than its entry and read by more people, so quotes of the entry are removed from the error.
The setting `redact` replaces this by a function that the user provides.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from pelops.worker.entry import Entry, report_without_input
from pelops.worker.outcomes import REPORTED_AT_MOST, Reject, Retry, Undecodable

Redact: TypeAlias = Callable[[BaseException], str]

log = logging.getLogger("pelops.worker")

TAKEN_OUT: Final = "[...]"
_WHOLE: Final = 3  # minimum length of a whole value that is taken out
_PART: Final = 8  # minimum length of a part of a value that is taken out
_SEARCHED: Final = 64 * 1024  # characters of values; with more, the whole message is taken out
_WORD: Final = re.compile(r"\w")


def describe_failure(error: BaseException, given: Sequence[Entry], redact: Redact | None) -> str:
    """Type and message of an error, at most REPORTED_AT_MOST characters. Never raises.

    Args:
        given: what the handler was given: one entry, or a batch.
        redact: the function that the user provides; its result is only cut to length. When it
            raises, the dead letter has only the type of the error.
    """
    try:
        text = redact(error) if redact is not None else _without_payload(error, given)
        if not isinstance(text, str):
            raise TypeError(f"redact returned {type(text).__name__}, not a string")
    except Exception as failure:
        log.warning(
            "a dead letter holds only the type of its error: the text could not be redacted (%s)",
            type(failure).__name__,
        )
        text = type(error).__name__
    return text[:REPORTED_AT_MOST].encode("utf-8", "replace").decode()


def cause_of(error: BaseException) -> BaseException:
    """The error to show: for a Retry, or a Reject without `error`, its cause."""
    is_silent = isinstance(error, Retry) or (isinstance(error, Reject) and not error.error)
    return (error.__cause__ or error.__context__ or error) if is_silent else error


def _without_payload(error: BaseException, given: Sequence[Entry]) -> str:
    if isinstance(error, Undecodable):
        return error.error[:REPORTED_AT_MOST]  # has only names of fields and types
    shown = report_without_input(error)
    if shown is None:
        message = error.error if isinstance(error, Reject) else str(error)
        shown = message[: 4 * REPORTED_AT_MOST]  # the cut may be within a value
        shown = redact(shown, given) if shown else shown
    if isinstance(error, Reject):
        return shown
    return f"{type(error).__name__}: {shown}"


def redact(message: str, given: Sequence[Entry]) -> str:
    """Replace all quotes of the entries' values in a message."""
    texts = [value.decode("utf-8", "backslashreplace") for one in given for _, value in one.pairs]
    if sum(map(len, texts)) > _SEARCHED:
        return TAKEN_OUT
    values = {value for text in texts for value in _values(text)}
    # Messages may quote values with quotes or control characters in their escaped form.
    values |= {repr(value)[1:-1] for value in values}
    hidden = bytearray(len(message))
    for value in values | {*texts}:
        _hide_whole(message, value, hidden)
    _hide_parts(message, values, hidden)
    return "".join(_visible(message, hidden))


def _values(text: str) -> Iterator[str]:
    """The scalars of JSON without member names, or the whole text if it is not JSON."""
    try:
        yield from _scalars(json.loads(text))
    except (ValueError, RecursionError):
        yield text


def _scalars(parsed: Any) -> Iterator[str]:
    waiting = [parsed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif value is not None and not isinstance(value, bool):
            yield str(value)


def _hide_whole(message: str, value: str, hidden: bytearray) -> None:
    """Hide a value where it is not part of a longer word."""
    at = message.find(value) if len(value) >= _WHOLE else -1
    while at >= 0:
        end = at + len(value)
        before, after = message[at - 1 : at], message[end : end + 1]
        is_within = (_WORD.match(before) and _WORD.match(value)) or (
            _WORD.match(after) and _WORD.match(value[-1])
        )
        if not is_within:
            hidden[at:end] = b"\1" * len(value)
        at = message.find(value, end)


def _hide_parts(message: str, values: Iterable[str], hidden: bytearray) -> None:
    """Hide parts of longer values, because some messages quote only a part."""
    parts = {
        value[at : at + _PART] for value in values for at in range(max(len(value) - _PART + 1, 0))
    }
    for at in range(len(message) - _PART + 1 if parts else 0):
        if message[at : at + _PART] in parts:
            hidden[at : at + _PART] = b"\1" * _PART


def _visible(message: str, hidden: bytearray) -> Iterator[str]:
    was_hidden = 0
    for character, is_hidden in zip(message, hidden, strict=True):
        if not is_hidden:
            yield character
        elif not was_hidden:
            yield TAKEN_OUT
        was_hidden = is_hidden
