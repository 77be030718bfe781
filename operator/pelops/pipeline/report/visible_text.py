"""Text that anybody may have written, in a form that shows all of it.

Texts come from payloads, names and errors. Characters that are invisible or change the direction of
the text (control characters, bidirectional marks, half of a surrogate pair) are written out.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

# Categories of what nobody sees: control, format, surrogate, private, unassigned, line, paragraph.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\n\t]")
_MARKS: Final = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{3,}"
)
_MOST_COPIED: Final = 2000  # characters of a cell
_NUMBER: Final = re.compile(r"-?[0-9]*(\.[0-9]+)?")


def make_visible(text: str) -> str:
    """Return the text with everything invisible as `\\u{202e}`; tabs and line feeds stay.

    Of combining marks that pile up on one letter, two stay.
    """
    return _MARKS.sub(lambda found: found[0][:2], _SUSPECT.sub(_spell, text))


def show_bytes(head: bytes, size: int) -> str:
    """Return the beginning of a value of `size` bytes as text, or as `\\x00` if it is not text."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last letter may have been cut in two.
        is_cut = size > len(head) and error.start >= len(head) - 3 and "end" in error.reason
        text = head[: error.start].decode("utf-8") if is_cut else _hexadecimal(head)
    return make_visible(text).replace("\n", "\u23ce").replace("\t", "\u21e5")


def one_line(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, without line feeds and tabs."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return " ".join(make_visible(short).split())


def copied_cell(text: object) -> str:
    """Return the text of a cell for a tab-separated table; a spreadsheet does not evaluate it."""
    flat = " ".join(make_visible(str(text)[:_MOST_COPIED]).split())
    is_formula = flat[:1] in {"=", "+", "-", "@"} and not _NUMBER.fullmatch(flat)
    return f"'{flat}" if is_formula else flat


def _hexadecimal(head: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in head)


def _spell(found: re.Match[str]) -> str:
    return _spelled(found[0])


@lru_cache(maxsize=4096)
def _spelled(character: str) -> str:
    is_unseen = unicodedata.category(character) in _UNSEEN
    return f"\\u{{{ord(character):x}}}" if is_unseen else character
