"""A run that is repeated: what it works on, how it dies, and what its tables hold in the end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipeline.audited import Audited, Row
from tests.pipeline.steps import Step, then


class Killed(BaseException):
    """As a kill: nothing handles it."""


def prepare(audited: Audited) -> None:
    audited.create_group()
    audited.add(300)
    read = audited.deliver(200)
    audited.acknowledge(*read[:150])
    audited.record("requeued", read[0], f"5-0 {read[0]} 1 1 40")


def die_after(audited: Audited, step: Step) -> None:
    """Audit, and die after a step."""

    def die() -> None:
        raise Killed

    with then(step, die), pytest.raises(Killed):
        audited.audit()


def first_window(audited: Audited) -> dict[str, list[Row]]:
    """What the tables hold of the first window; a repeated run closes a second one as well."""
    return {
        table: [row for row in rows if row.get("as_of", row["window"]) == 0]
        for table, rows in audited.content().items()
    }


def start_from(audited: Audited, archive: Path) -> None:
    """Take an archive as it was once, in the place of the present one."""
    shutil.rmtree(audited.archive, ignore_errors=True)
    shutil.copytree(archive, audited.archive)
