"""Whatever is recorded in whatever order: a window's losses count once, and none is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.audit import AuditRecord
from pelops.redis_streams.audit.records import (
    acknowledge_audit,
    forget_audit,
    read_audits,
    record_audit,
)
from tests.audits import a_summary, a_window
from tests.properties.server_adapter import ServerAdapter

KEYS: Final = derive_keys("{audit-scripts}:orders", "g")
NAMES: Final = ("a/one", "a/two")
RECORD = st.tuples(
    st.just("record"),
    st.sampled_from(NAMES),
    st.integers(0, 5),  # number of the window
    st.integers(0, 3),  # entries lost in it
    st.none() | st.integers(1, 9),  # up to where the ledger is archived
)
OTHER = st.tuples(st.sampled_from(["acknowledge", "forget"]), st.sampled_from(NAMES))
STEPS = st.lists(RECORD | RECORD | RECORD | OTHER, max_size=25)


@dataclass
class Model:
    """The reports of one audit until now."""

    windows: dict[int, int] = field(default_factory=dict)  # entries lost, by number
    acknowledged: int = 0
    archived: int | None = None

    @property
    def lost(self) -> int:
        return sum(self.windows.values())


@given(steps=STEPS)
@settings(max_examples=40)
def test_what_was_recorded_is_what_a_careful_clerk_would_have_written(
    adapter: ServerAdapter, steps: list[tuple[object, ...]]
) -> None:
    adapter.ask("DEL", KEYS.audit)
    models: dict[str, Model] = {}
    for step in steps:
        _take(adapter, models, step)
        _compare(adapter, models)
    adapter.ask("DEL", KEYS.audit)


def _take(adapter: ServerAdapter, models: dict[str, Model], step: tuple[object, ...]) -> None:
    what, name = str(step[0]), str(step[1])
    if what == "forget":
        gone = adapter.wait(forget_audit(adapter.server, KEYS, name))
        assert gone is (models.pop(name, None) is not None)
    elif what == "acknowledge":
        if name in models:
            model = models[name]
            model.acknowledged = model.lost
            adapter.wait(acknowledge_audit(adapter.server, KEYS, name, model.lost))
    else:
        _, _, number, lost, archived = step
        assert isinstance(number, int) and isinstance(lost, int)
        assert archived is None or isinstance(archived, int)
        summary = a_summary(a_window(number), lost=lost)
        position = None if archived is None else EntryId(archived)
        model = models.setdefault(name, Model())
        is_old = number < max(model.windows, default=0)
        if not is_old:
            model.windows[number] = lost
            model.archived = archived or model.archived
        answer = adapter.wait(record_audit(adapter.server, KEYS, name, summary, archived=position))
        assert answer == (None if is_old else model.lost)


def _compare(adapter: ServerAdapter, models: dict[str, Model]) -> None:
    for name in NAMES:
        record = adapter.wait(read_audits(adapter.server, [KEYS], name))[KEYS]
        model = models.get(name)
        if model is None:
            assert record is None
            continue
        assert isinstance(record, AuditRecord)
        newest = max(model.windows)
        assert (record.summary.window.number, record.lost) == (newest, model.lost)
        assert record.summary.lost == model.windows[newest]
        assert record.acknowledged == model.acknowledged
    words = (adapter.ask("HMGET", KEYS.audit, "archived")[0] or b"").decode().split()
    reported = dict(zip(words[::2], words[1::2], strict=True))
    assert reported == {
        name: "-" if model.archived is None else f"{model.archived}-0"
        for name, model in models.items()
    }
    assert bool(adapter.ask("EXISTS", KEYS.audit)) == bool(models)
