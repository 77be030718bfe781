"""Sentences that agree with a number: one entry is, several are. Pure."""

from __future__ import annotations

from typing import Final

_ONE: Final = {
    "are": "is", "were": "was", "have": "has", "they": "it", "them": "it", "their": "its",
    "lie": "lies", "bodies": "body",
}  # fmt: skip
_MANY: Final = {word: word for word in _ONE}


def agree(template: str, n: int, **more: str) -> str:
    """A sentence about so many entries.

    `{n}` is the number, `{entries}` the number with its noun; `{are}`, `{were}`, `{have}`,
    `{they}`, `{them}`, `{their}`, `{lie}` and `{bodies}` agree with it.

    >>> agree("{entries} {are} stuck", 1)
    '1 entry is stuck'
    >>> agree("{entries} {are} stuck", 2)
    '2 entries are stuck'
    """
    words = _ONE if n == 1 else _MANY
    return template.format(n=n, entries="1 entry" if n == 1 else f"{n} entries", **words, **more)
