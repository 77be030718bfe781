"""Quantities of Kubernetes, for those who are told of them in other units."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from pelops.errors import InvalidSpec

_FACTORS: Final = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_SHAPE: Final = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{1,9})?(?:[eE][+-]?[0-9]{1,2})?)([A-Za-z]*)")


def parse_quantity(quantity: object, *, field: str) -> Decimal:
    """The number that a quantity stands for. Raises InvalidSpec, which names the field."""
    found = None if isinstance(quantity, bool) else _SHAPE.fullmatch(str(quantity))
    if found is None or found[2] not in _FACTORS:
        raise InvalidSpec(
            f"{field} must be a quantity such as 500m or 2Gi; it is {str(quantity)[:64]!r}"
        )
    return Decimal(found[1]) * _FACTORS[found[2]]


def mebibytes(quantity: object, *, field: str) -> int:
    """A quantity of memory in whole MiB. Raises InvalidSpec, which names the field."""
    return int(parse_quantity(quantity, field=field) / 1024**2)
