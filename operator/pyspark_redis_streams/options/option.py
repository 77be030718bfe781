"""What an option is, and what a program may want of the data source."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pyspark_redis_streams.options.kinds import Kind


class Use(StrEnum):
    """What a program does with the data source."""

    READ = "read"
    STREAM = "readStream"
    WRITE = "write"


class View(StrEnum):
    """What the rows of a read are."""

    ENTRIES = "entries"
    PENDING = "pending"
    GROUPS = "groups"
    CONSUMERS = "consumers"
    STREAMS = "streams"


EVERY_USE = frozenset(Use)
READS = frozenset({Use.READ, Use.STREAM})
EVERY_VIEW = frozenset(View)
ENTRIES = frozenset({View.ENTRIES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """The name that Spark's Kafka source has for an option, and the values that mean the same."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its name as documented; names are compared without regard to case."""

    name: str
    kind: Kind
    default: str | None  # as a user would write it; None: not set
    sentence: str
    uses: frozenset[Use] = field(default=READS)
    views: frozenset[View] = field(default=ENTRIES)
    kafka: Alias | None = None
