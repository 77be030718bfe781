"""What Pelops adds to an entry that becomes a dead letter."""

from __future__ import annotations

from typing import Final

# The last pairs of a dead letter, in this order, each behind spec.recovery.fieldPrefix.
LETTER_FIELDS: Final = (
    "original_id",  # of the first entry in the chain of copies
    "stream",  # that the entry was pending in: the stream, or the retry stream
    "group",
    "consumer",  # its last owner
    "delivery_count",
    "retry_count",  # failed attempts
    "reason",  # one word in CamelCase
    "error",  # for people
    "delivered_ms",  # its last delivery, on the server's clock
    "dead_lettered_ms",
)
