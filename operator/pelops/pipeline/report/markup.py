"""HTML that cannot be broken out of: every text is escaped where it enters, and nothing else can.

Texts come from payloads, names and errors that anybody may have written. What would be invisible
or turn the text round (control characters, bidirectional marks, half of a surrogate pair) is
written out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from typing import Final, TypeAlias

_VOID: Final = frozenset({"meta", "br", "col"})
# Categories of what nobody sees: control, format, surrogate, private, unassigned, line, paragraph.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\n\t]")
_MARKS: Final = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{3,}"
)


class Html(str):
    """Markup that is safe as it is. Only this package makes it."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | Iterable[Child] | None"


def tag(name: str, /, *children: Child, **attributes: str | int | float | None) -> Html:
    """An element. Texts among the children are escaped; attributes that are None are left out.

    `class_` is `class`, and other underscores are hyphens. Names of tags and attributes are ours.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opened = f"<{name}{given}>"
    return Html(opened if name in _VOID else f"{opened}{join(children)}</{name}>")


def join(children: Child) -> Html:
    """The children one after another."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, str | int):
        return Html(_escape(str(children)))
    return Html("".join(map(join, children)))


def make_visible(text: str) -> str:
    """The text with everything unseen as `\\u{202e}`; tabs and line feeds stay.

    Of marks that pile up on one letter, two stay.
    """
    return _MARKS.sub(lambda found: found[0][:2], _SUSPECT.sub(_spell, text))


def show_bytes(head: bytes, size: int) -> str:
    """The beginning of a value of `size` bytes: as text, or as `\\x00` where it is none."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last letter may have been cut in two.
        is_cut = size > len(head) and error.start >= len(head) - 3 and "end" in error.reason
        text = head[: error.start].decode("utf-8") if is_cut else _hexadecimal(head)
    return make_visible(text).replace("\n", "\u23ce").replace("\t", "\u21e5")


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters of a text, without line feeds and tabs."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return " ".join(make_visible(short).split())


def _hexadecimal(head: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in head)


def _escape(text: str) -> str:
    return escape(make_visible(text), quote=True)


def _spell(found: re.Match[str]) -> str:
    return _spelled(found[0])


@lru_cache(maxsize=4096)
def _spelled(character: str) -> str:
    is_unseen = unicodedata.category(character) in _UNSEEN
    return f"\\u{{{ord(character):x}}}" if is_unseen else character
