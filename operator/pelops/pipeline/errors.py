"""Errors that end a run of the pipeline early."""

from __future__ import annotations

from pelops.errors import InvalidSpec, PelopsError


class WrongPipelineSettings(InvalidSpec):
    """A variable or an argument is missing or wrong; the message names it."""


class ArchiveUnusable(PelopsError):
    """The archive cannot be read or written, or has an unknown layout."""


class StageFailed(PelopsError):
    """A Spark job failed; the message has its cause."""


class SparkLost(PelopsError):
    """The JVM of Spark ended before the run; the message has likely causes."""


class RunOvertaken(PelopsError):
    """A later run has claimed the archive: its rows are valid instead of this run's."""


class DeadlineNear(PelopsError):
    """The deadline is near; finished steps are kept."""
