"""A run that died is repeated, and two runs meet: the results are the same bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pelops.pipeline.archive.layout import slug
from tests.pipeline.audited import GROUP, Audited

# From the last stage to the first that needs no new look at Redis.
STAGES = (f"group={slug(GROUP)}", "duplicates", "acts")


def prepare(audited: Audited) -> None:
    audited.create_group()
    audited.add(300)
    read = audited.deliver(200)
    audited.acknowledge(*read[:150])
    audited.record("requeued", read[0], f"5-0 {read[0]} 1 1 40")


def test_a_run_that_died_at_any_stage_is_repeated_to_the_same_bytes(audited: Audited) -> None:
    prepare(audited)
    before = audited.audit_one()
    files = audited.files()
    window = Path(audited.place().path)
    for stage in (*STAGES, "entries"):
        (window / "manifest.json").unlink()
        for done in (stage, STAGES[0]):
            audited.remove_stage(done)
        # What a killed run leaves: half of a directory that nobody claimed.
        (window / f"{stage}.0.unfinished").mkdir()
        # The interrupted window is finished first; then a new one is closed.
        assert audited.audit()[0] == before
        audited.remove_window(1)
        assert audited.files() == files, stage


def test_two_runs_at_once_agree(audited: Audited) -> None:
    prepare(audited)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: audited.audit(), range(2))
    assert one[0] == other[0]
    assert one[0].produced == sum(one[0].counts.values()) == 300
    left = [name for name in audited.files() if ".unfinished" in name or ".claim" in name]
    assert not left
