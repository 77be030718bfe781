"""Field values of entries, column by column.

Producers write the same fields in the same order, mostly, so a page is turned by slicing one flat
list; an entry that differs sends its page the slow way.
"""

from __future__ import annotations

from collections.abc import Sequence

Flat = list[bytes]  # name, value, name, value, ...
Values = Sequence[bytes | None]


def values_by_field(
    flats: Sequence[Flat], fields: Sequence[bytes], *, keeps_first: bool
) -> list[Values]:
    """For each field its value in each entry; None where an entry lacks it.

    Of a repeated field the last value counts, or the first.
    """
    width = len(flats[0])
    joined = common_layout(flats, width)
    if joined is None:
        return _one_by_one(flats, fields, keeps_first=keeps_first)
    names = joined[0:width:2]
    if keeps_first:
        at = {name: 2 * i + 1 for i, name in reversed(list(enumerate(names)))}
    else:
        at = {name: 2 * i + 1 for i, name in enumerate(names)}
    absent: Values = [None] * len(flats)
    return [joined[at[field] :: width] if field in at else absent for field in fields]


def common_layout(flats: Sequence[Flat], width: int) -> Flat | None:
    """All entries in one flat list if they have the same field names in the same order."""
    number = len(flats)
    if list(map(len, flats)).count(width) != number:
        return None
    joined = joined_flats(flats)
    # One comparison of two long lists costs half of looking at each name's place in turn.
    return joined if joined[::2] == joined[0:width:2] * number else None


def joined_flats(flats: Sequence[Flat]) -> Flat:
    """Names and values of all entries, one after the other."""
    joined: Flat = []
    for flat in flats:
        joined += flat
    return joined


def _one_by_one(
    flats: Sequence[Flat], fields: Sequence[bytes], *, keeps_first: bool
) -> list[Values]:
    entries = [pairs_of(flat, keeps_first=keeps_first) for flat in flats]
    return [[entry.get(field) for entry in entries] for field in fields]


def pairs_of(flat: Flat, *, keeps_first: bool) -> dict[bytes, bytes]:
    """The fields of one entry; of a repeated field the last value counts, or the first."""
    if keeps_first:
        return dict(zip(flat[-2::-2], flat[::-2], strict=True))
    return dict(zip(flat[::2], flat[1::2], strict=True))
