"""What tests of hardships share: something that happens in mid-audit, and a stream for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pelops.pipeline.archive import entries, tables
from pelops.pipeline.audit import rules
from tests.pipeline.audited import Audited


@contextmanager
def amid(module: Any, name: str, act: Callable[[], object]) -> Iterator[None]:
    """Within the block, something happens once: right before a step of the audit."""
    step = getattr(module, name)
    done: list[bool] = []

    def happen(*given: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return step(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, happen)
        yield
    assert done, f"{name} was never come to"


@contextmanager
def large_windows() -> Iterator[None]:
    """Within the block, rows of windows as small as any pass through Spark's tasks."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (tables, rules, entries):
            patch.setattr(module, "MOST_HERE", -1)
        yield


def half_read(audited: Audited) -> list[str]:
    """Thirty entries: ten acknowledged, ten pending, ten not delivered."""
    audited.create_group()
    ids = audited.add(30)
    audited.deliver(20)
    audited.acknowledge(*ids[:10])
    return ids
