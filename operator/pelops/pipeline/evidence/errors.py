"""What makes an append-only directory useless as evidence."""

from __future__ import annotations

from pelops.errors import PelopsError


class EvidenceUnusable(PelopsError):
    """The append-only files cannot be read, or hold what they should not; the message says what."""
