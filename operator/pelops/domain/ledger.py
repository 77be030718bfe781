"""The ledger: a stream beside each group that records what the operator did to it.

An event is written by the script that does the act, so neither exists without the other. Fields are
flat text; an event's time is that of its entry ID, on the server's clock. Readers ignore fields and
kinds that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pelops.domain.entry_id import EntryId

KIND_FIELD: Final = "kind"


class LedgerKind(StrEnum):
    """What was done. The value is what the scripts write."""

    GROUP_CREATED = "group-created"  # position: last-delivered-id it begins with
    GROUP_ADOPTED = "group-adopted"  # found as it was, untouched
    OWNER_CHANGED = "owner-changed"  # another resource acts from now on


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    """One act of the operator."""

    entry_id: EntryId
    kind: str  # a LedgerKind, or one of a newer version
    details: Mapping[str, str]


def parse_ledger_event(entry_id: EntryId, pairs: Mapping[bytes, bytes]) -> LedgerEvent:
    """The event that a ledger's entry holds; its kind is empty when it names none."""
    texts = {
        field.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for field, value in pairs.items()
    }
    return LedgerEvent(entry_id=entry_id, kind=texts.pop(KIND_FIELD, ""), details=texts)
