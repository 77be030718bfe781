"""JSON from the API server with untrusted content: bounded in depth, lists parsed item by item.

Users choose the content of parts that no schema describes, such as pod templates. If it is nested
a thousand levels deep, parsing it raises RecursionError; with newer versions of Python, copying the
object does. Parsed JSON takes up to 25 times the memory of its text.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

# Levels of objects and lists. Pod templates have about 15, and lists of objects two more.
MOST_DEPTH: Final = 64
# Replaces deeper values. Objects that contain it are refused where they are used.
TOO_DEEP: Final = "pelops.dev/nested-too-deeply"

_BRACKETS: Final = b'"{}[]'
_ALL_ELSE: Final = bytes(set(range(256)) - set(_BRACKETS))
_STEPS: Final = [1 if one in b"{[" else -1 for one in range(256)]
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()


def is_too_deep(text: bytes) -> bool:
    """Whether objects and lists are nested deeper than `MOST_DEPTH`. Fast: nothing is parsed."""
    if text.count(b"{") + text.count(b"[") <= MOST_DEPTH:
        return False
    # Remove escapes first, so that each remaining quote begins or ends a string. Pairs of adjacent
    # quotes can then be removed without effect on the text outside of strings.
    quoted = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _ALL_ELSE)
    outside = b"".join(quoted.replace(b'""', b"").split(b'"')[::2])
    return max(accumulate(map(_STEPS.__getitem__, outside)), default=0) > MOST_DEPTH


def cut_depth(text: bytes) -> bytes:
    """Return the text with `TOO_DEEP` in place of values nested deeper than `MOST_DEPTH`."""
    kept: list[bytes] = []
    depth = kept_to = 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == MOST_DEPTH + 1:
                kept.append(text[kept_to : token.start()])
        elif token[0] in (b"}", b"]"):
            if depth == MOST_DEPTH + 1:
                kept.append(json.dumps(TOO_DEEP).encode())
                kept_to = token.end()
            depth -= 1
    return b"".join((*kept, text[kept_to:]))


async def bound_depth(text: bytes) -> bytes:
    """Return the text, cut where it is nested too deeply, without blocking the event loop."""
    return await asyncio.to_thread(cut_depth, text) if is_too_deep(text) else text


async def parse_json(text: bytes) -> Any:
    """Parse a text. Raises ValueError if it is not JSON."""
    return json.loads(await bound_depth(text))


def cut_value(value: Any) -> Any:
    """Replace values nested deeper than `MOST_DEPTH` by `TOO_DEEP`, in place.

    For a value that was parsed without `bound_depth`. It may be nested to any depth.
    """
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(MOST_DEPTH - 1):
        level = [
            part
            for container in level
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, dict | list)
        ]
        if not level:
            return value
    for container in level:
        places = container.items() if isinstance(container, dict) else enumerate(container)
        for place, part in list(places):
            if isinstance(part, dict | list):
                container[place] = TOO_DEEP
    return value


class ListText:
    """A LIST as text. Its items are parsed one by one during iteration, and only once."""

    def __init__(self, text: str) -> None:
        """`text` must be bounded in depth: see `bound_depth`."""
        self._text = text
        self._at = 0
        self._rest: dict[str, Any] = {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the list. Complete after all items were read."""
        return self._rest.get("metadata") or {}

    def items(self) -> Iterator[dict[str, Any]]:
        """Yield each object. Raises ValueError if the text is not a JSON object."""
        try:
            self._accept("{")
            while not self._accept("}", is_needed=False):
                key = self._value()
                self._accept(":")
                if key == "items" and self._accept("[", is_needed=False):
                    yield from self._list()
                else:
                    self._rest[key] = self._value()
                self._accept(",", is_needed=False)
        except IndexError as error:
            raise ValueError("the text of a LIST ends early") from error

    def _list(self) -> Iterator[dict[str, Any]]:
        while not self._accept("]", is_needed=False):
            yield self._value()
            self._accept(",", is_needed=False)

    def _value(self) -> Any:
        self._skip()
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        return value

    def _accept(self, sign: str, *, is_needed: bool = True) -> bool:
        self._skip()
        if self._text[self._at] != sign:
            if is_needed:
                raise ValueError(f"no {sign} at {self._at} in the text of a LIST")
            return False
        self._at += 1
        return True

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
