"""What stands in the hash `<prefix>:audit` of a group: what each audit recorded about it.

<audit>               the summary of its newest window (domain/audit.py)
totals:<audit>        "at_ms lost_found lost": the window's end, entries that its run found lost,
                      and those of all runs
acknowledged:<audit>  how many of the lost entries a person has acknowledged
archived              "<audit> <ledger ID> ...", up to where each audit has archived the ledger
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pelops.domain.audit import AuditSummary
from pelops.domain.condition import shorten
from pelops.errors import InvalidSpec

MOST_AUDITS: Final = 16  # that record on one group
MOST_GROUPS: Final = 1000  # that one audit records on
# Fields of the hash that are no audit's name: names hold no colon and no space.
ARCHIVED_FIELD: Final = "archived"
TOTALS_PREFIX: Final = "totals:"
ACKNOWLEDGED_PREFIX: Final = "acknowledged:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What an audit has written about a group, and what people have acknowledged of it."""

    summary: AuditSummary
    lost: int = 0  # entries lost in all windows, whichever run has found it
    acknowledged: int = 0  # of them

    @property
    def unacknowledged(self) -> int:
        """Lost entries that nobody has acknowledged yet."""
        return max(0, self.lost - self.acknowledged)


def check_audit_name(name: str) -> str:
    """The name under which an audit records; the operator uses `namespace/name` of the StreamAudit.

    Raises InvalidSpec for anything that could be taken for another field of the hash.
    """
    if not _NAME.fullmatch(name) or name == ARCHIVED_FIELD:
        raise InvalidSpec(
            f"{shorten(name, 64)!r} cannot name an audit: letters, digits and . _ / - only, 317 at "
            f"most, beginning with a letter or digit, and not the word {ARCHIVED_FIELD}"
        )
    return name
