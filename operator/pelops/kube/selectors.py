"""Label selectors in both of their forms.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_SET = re.compile(r"^\s*(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
# A comma outside of parentheses ends a requirement.
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it; an absent key meets NotIn, as in Kubernetes."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")

    def __str__(self) -> str:
        if self.operator == "Exists":
            return self.key
        if self.operator == "DoesNotExist":
            return f"!{self.key}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
        return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that all must be met. An empty selector matches nothing here."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return bool(self.requirements) and all(r.is_met(labels) for r in self.requirements)

    def required_value(self, key: str) -> str | None:
        """The one value that this label must have; None when others would do as well."""
        for requirement in self.requirements:
            if (requirement.key, requirement.operator) == (key, "In") and len(
                requirement.values
            ) == 1:
                return requirement.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_label_selector(selector: Mapping[str, Any] | None) -> Selector:
    """From `matchLabels` and `matchExpressions`."""
    selector = selector or {}
    equal = (
        Requirement(key, "In", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    sets = (
        Requirement(item["key"], item["operator"], tuple(item.get("values") or ()))
        for item in selector.get("matchExpressions") or ()
    )
    return Selector((*equal, *sets))


def parse_selector(text: str) -> Selector:
    """From the string form, as the scale subresource shows it."""
    return Selector(tuple(_requirement(part) for part in _COMMA.split(text) if part.strip()))


def _requirement(text: str) -> Requirement:
    if match := _SET.match(text):
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "In" if match["op"] == "in" else "NotIn", values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, found, value = text.partition(sign)
        if found:
            return Requirement(key.strip(), operator, (value.strip(),))  # type: ignore[arg-type]
    name = text.strip()
    if name.startswith("!"):
        return Requirement(name[1:], "DoesNotExist")
    return Requirement(name, "Exists")
