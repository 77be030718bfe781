"""The context of a run of the pipeline."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from pelops.pipeline.archive.redis_reader import RedisReader
from pelops.pipeline.archive.tables import Archive
from pelops.pipeline.errors import DeadlineNear
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import PipelineSettings

_SPARE_S: Final = 60.0  # before the deadline, in which no step begins


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One run of the pipeline. Close its watch after use."""

    spark: LazySession
    archive: Archive
    watch: RedisReader
    settings: PipelineSettings
    ends_at: float | None = None  # deadline by `time.monotonic`

    def check_time(self) -> None:
        """Raise DeadlineNear if no further step may begin; KeyboardInterrupt after Ctrl-C."""
        if self.spark.interrupted.is_set():
            raise KeyboardInterrupt
        if self.ends_at is not None and time.monotonic() > self.ends_at:
            raise DeadlineNear(
                "the deadline is near: finished steps are kept, and the next run continues"
            )


def open_run(session: LazySession, settings: PipelineSettings) -> PipelineRun:
    """Open the context of a run. Raises ArchiveUnusable if the archive has another layout."""
    ends_at = None
    if settings.deadline is not None:
        given_s = settings.deadline.total_seconds()
        ends_at = time.monotonic() + given_s - min(_SPARE_S, given_s / 10)
    session.begin_run()
    return PipelineRun(
        spark=session,
        archive=Archive.of(settings),
        watch=RedisReader(settings.place),
        settings=settings,
        ends_at=ends_at,
    )
