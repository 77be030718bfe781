"""What ends a run of the pipeline early."""

from __future__ import annotations

from pelops.errors import InvalidSpec, PelopsError


class WrongPipelineSettings(InvalidSpec):
    """A variable or an argument is missing or wrong; the message names it."""


class ArchiveUnusable(PelopsError):
    """The archive cannot be read or written, or holds what this version does not understand."""


class StageFailed(PelopsError):
    """A job of Spark failed; the message is its own first cause."""


class SparkLost(PelopsError):
    """The JVM of Spark ended before the run did; the message says what to look at."""


class RunOvertaken(PelopsError):
    """Another run has claimed the archive since this one did: its rows count."""


class DeadlineNear(PelopsError):
    """The time that was given is nearly up; what is finished stays."""
