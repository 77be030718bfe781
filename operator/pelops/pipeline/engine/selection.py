"""How much a window is to work with: little is worked by the driver alone, without Spark."""

from __future__ import annotations

from typing import Final

from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import WindowPlace
from pelops.pipeline.archive.plan import Plan
from pelops.pipeline.archive.window_selection import BYTES_OF_A_PAGE, page_size
from pelops.pipeline.settings import ArchivedPayload, AuditTarget
from pelops.pipeline.stages import PipelineRun

_MOST_BYTES: Final = 256 * 2**20  # of payloads, which are archived in full


def is_small(run: PipelineRun, plan: Plan) -> bool:
    """Whether the driver works on a window by itself.

    By counters alone: what was added, what is pending, what ledgers and retry streams hold. Tables
    of the user's own are read by Spark, whatever their format.
    """
    settings = run.settings
    if settings.sent is not None or settings.effects is not None:
        return False
    if plan.payload is ArchivedPayload.FULL and not _fits(plan.produced, plan.page_size):
        return False
    return plan.produced < settings.spark_from and count_rows(run, plan) < settings.spark_from


def is_small_stream(run: PipelineRun, stream: str) -> bool:
    """Whether all entries of a stream, with all their fields, are read without Spark."""
    number = run.watch.stream(stream).length
    if number >= run.settings.spark_from:
        return False
    return not number or _fits(number, page_size(run.watch, stream))


def count_rows(run: PipelineRun, plan: Plan) -> int:
    """About as many rows as its stages look at."""
    groups = run.watch.groups(plan.stream)
    pending = sum(groups[one.group].pending for one in plan.targets if one.group in groups)
    return plan.produced + pending + sum(_rows_of_group(run, plan, one) for one in plan.targets)


def _rows_of_group(run: PipelineRun, plan: Plan, target: AuditTarget) -> int:
    keys = derive_keys(plan.stream, target.group)
    return sum(
        [
            run.watch.stream(keys.ledger).length,
            run.watch.stream(keys.retry).length,
            _open_before(run, plan, target),
        ]
    )


def _open_before(run: PipelineRun, plan: Plan, target: AuditTarget) -> int:
    """Entries that the window before has left open: they are looked at again."""
    if not plan.window.number:
        return 0
    number = plan.window.number - 1
    before = WindowPlace(root=run.settings.archive, stream=plan.stream, number=number)
    reported = run.storage.read_json(before.of_group(target.group, "audit.json"))
    return 0 if reported is None else int(reported["summary"].get("open", 0))


def _fits(entries: int, entries_of_a_page: int) -> bool:
    """Whether the bodies of so many entries fit into memory, by the largest of a few."""
    return entries * BYTES_OF_A_PAGE // max(1, entries_of_a_page) <= _MOST_BYTES
