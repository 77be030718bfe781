"""How many jobs of Spark a run has: the same, however many streams and groups it audits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.pipeline.audited import GROUP, Audited, changed

MOST_JOBS = 12
Shape = Callable[[Audited], None]


def one_stream(audited: Audited) -> None:
    """One group that has read half of it."""
    fill(audited, audited.stream, (GROUP,))
    audited.settings = changed(audited.settings, targets=(audited.target(GROUP),))


def many_streams(audited: Audited) -> None:
    """Four streams with three groups each, which have read half of them."""
    groups = (GROUP, "mail", "billing")
    streams = [f"{audited.prefix}{name}" for name in ("sales", "returns", "users", "visits")]
    for stream in streams:
        fill(audited, stream, groups)
    targets = tuple(
        replace(audited.target(group), stream=stream) for stream in streams for group in groups
    )
    audited.settings = changed(audited.settings, targets=targets)


def fill(audited: Audited, stream: str, groups: tuple[str, ...]) -> None:
    for number in range(6):
        audited.client.xadd(stream, {"number": number})
    for group in groups:
        audited.client.xgroup_create(stream, group, id="0")
        ((_, read),) = audited.client.xreadgroup(group, "a", {stream: ">"}, count=3)
        audited.client.xack(stream, group, *[entry_id for entry_id, _ in read[:2]])


def add(audited: Audited) -> None:
    """Two entries more in each stream."""
    for stream in sorted({target.stream for target in audited.settings.targets}):
        for number in range(2):
            audited.client.xadd(stream, {"number": number})


def jobs_of(audited: Audited) -> int:
    """An audit, and how many jobs it has run."""
    audited.audit()
    work = audited.spark.count_work()
    return 0 if work is None else work.jobs


@pytest.fixture
def counted(audited: Audited) -> Callable[[Shape], list[int]]:
    """The jobs of a first audit, and of one that continues from it."""

    def count(shape: Shape) -> list[int]:
        archive = audited.archive.with_name(shape.__name__)
        audited.settings = changed(audited.settings, archive=str(archive))
        shape(audited)
        first = jobs_of(audited)
        add(audited)
        return [first, jobs_of(audited)]

    return count


@pytest.mark.full
def test_the_number_of_jobs_does_not_depend_on_streams_and_groups(
    counted: Callable[[Shape], list[int]],
) -> None:
    few, many = counted(one_stream), counted(many_streams)
    assert few == many
    assert 0 < max(few) <= MOST_JOBS


@pytest.mark.full
def test_the_log_says_what_each_step_has_taken(
    audited: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one_stream(audited)
    audited.audit()
    said = [text.rpartition(" in ")[0] for text in caplog.messages if text.endswith(" s")]
    assert said == [
        "entries archived",
        "groups observed",
        "events archived",
        "entries audited",
        "statuses written",
    ]
