"""What an audit found, for people (one HTML page) and for programs (one JSON document)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pelops.pipeline.settings import Settings


def run(session: SparkSession, settings: Settings) -> int:
    """The command `report`: write page and document into the archive; answers the exit code."""
    # Whoever renders a report needs no Spark; only this gathers one.
    from pelops.pipeline.report.running import run_report

    return run_report(session, settings)
