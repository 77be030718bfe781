"""Entry IDs, for programs that use `redis_core` alone: the same class as everywhere in Pelops."""

from pelops.domain.entry_id import LARGEST_PART, EntryId, parse_entry_id

__all__ = ["LARGEST_PART", "EntryId", "parse_entry_id"]
