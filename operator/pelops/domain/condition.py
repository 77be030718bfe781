"""Conditions as Kubernetes defines them: one type each, with a reason and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

Truth = Literal["True", "False", "Unknown"]

# The schema allows 32768 characters; people read fewer, and every write carries all of them.
MESSAGE_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What holds, or not, of a resource: for machines the reason, for people the message."""

    type: str
    status: Truth
    reason: str
    message: str
    # Whether a new generation of the resource begins it anew, though the status stays the same.
    begins_with_generation: bool = False

    @property
    def is_true(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that keeps a resource from being ready, in a word and in a sentence."""

    reason: str  # becomes the condition's reason
    message: str  # says what is wrong and what to do
    is_terminal: bool = False  # True: waiting does not help, somebody must change something


def shorten(text: str, limit: int) -> str:
    """The text with at most `limit` characters; `…` at its end shows that some are missing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def capitalize(text: str) -> str:
    """The text as a sentence begins. A first word with a dot is a field or a host, and stays.

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

    `lastTransitionTime` is that of the previous condition unless the status flips: the same facts
    give the same bytes, whoever writes them.
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
