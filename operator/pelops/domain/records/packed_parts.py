"""Parts of cached objects that are kept compressed, because they are large and seldom read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

PACKED: Final = "pelops.dev/packed"  # the only field of a part that is kept compressed


def unpack(part: Any) -> Any:
    """A part of a cached object, with all compressed parts in it unpacked."""
    if isinstance(part, Mapping):
        packed = part.get(PACKED)
        if isinstance(packed, bytes):  # bytes never come from the API server
            return json.loads(zlib.decompress(packed))
        return {key: unpack(value) for key, value in part.items()}
    return part


def part_of(template: Mapping[str, Any] | None, field: str) -> Any:
    """One field of a cached pod template, unpacked; None when it does not exist."""
    found = template or {}
    return unpack(found).get(field) if PACKED in found else unpack(found.get(field))
