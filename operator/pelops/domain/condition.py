"""Conditions as Kubernetes defines them: one type each, with a reason and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

Truth = Literal["True", "False", "Unknown"]

# The schema allows 32768 characters, but every status write sends them all.
MESSAGE_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a resource: `reason` is for programs, `message` for people."""

    type: str
    status: Truth
    reason: str
    message: str
    # Whether a new generation resets `lastTransitionTime`, even when the status stays the same.
    begins_with_generation: bool = False

    @property
    def is_true(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that keeps a resource from being ready."""

    reason: str  # becomes the condition's reason
    message: str  # what is wrong and what to do
    is_terminal: bool = False  # True: it does not resolve by itself; a user must act


def shorten(text: str, limit: int) -> str:
    """The text with at most `limit` characters; `…` at its end shows that some are missing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def capitalize(text: str) -> str:
    """The text capitalized, unless its first word has a dot (a field or a host name).

    >>> capitalize("no backlog"), capitalize("spec.template is invalid")
    ('No backlog', 'spec.template is invalid')
    """
    first = next(iter(text.split(maxsplit=1)), "")
    return text if "." in first.rstrip(".") else text[:1].upper() + text[1:]


def render_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> datetime | None:
    """The inverse of `render_time`; None for anything that is not such a time."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def render_conditions(
    wished: Iterable[Condition],
    previous: Iterable[Mapping[str, Any]],
    *,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """The `conditions` of a status, in the order given.

    `lastTransitionTime` is kept while the status stays the same, so that the same facts give the
    same bytes in every replica.
    """
    before = {condition.get("type"): condition for condition in previous}
    rendered = []
    for condition in wished:
        old = before.get(condition.type, {})
        unchanged = old.get("status") == condition.status and "lastTransitionTime" in old
        if condition.begins_with_generation and old.get("observedGeneration") != generation:
            unchanged = False
        since = old["lastTransitionTime"] if unchanged else render_time(now)
        rendered.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": shorten(condition.message, MESSAGE_LIMIT),
                "observedGeneration": generation,
                "lastTransitionTime": since,
            }
        )
    return rendered
