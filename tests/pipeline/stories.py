"""Steps of stories: what happens to a stream and its group, and what an audit then reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pelops.domain.records.audit import AuditSummary
from tests.pipeline.audited import GROUP, STUCK_AFTER_MS, Audited
from tests.pipeline.hardships import amid

Step = Callable[[Audited], object]
_PARTS = {"exceptions", "still", "settled", "retried"}


def reports(
    *,
    of: int = 0,
    windows: int = 1,
    limit: str = "",
    says: str = "",
    has: str = "",
    **expected: Any,
) -> Step:
    """Audit once, and compare what the audit reports of one of so many windows.

    - counts: entries of the window by status.
    - kinds: findings by kind, each with its count; worst: the kind of the first one.
    - exceptions, settled, retried, still (open): statuses by the number of the entry, or by the ID
      of a copy that the operator made.
    - settled_why: in the place of statuses, what these rest on.
    - left_out, gone_before: entries that are not the group's.
    - root_counts: outcomes of what users added.
    - has: the kind of one of the findings.
    - limit: a part of a sentence about what the audit cannot prove.
    - says: a part of the sentence of the summary.
    - All other names are those of the summary.
    """

    def check(one: Audited) -> None:
        summaries = one.audit()
        assert len(summaries) == windows
        summary = summaries[of]
        assert {name: _fact(one, summary, name) for name in expected} == expected
        assert says in summary.sentence
        assert not has or has in {finding.kind for finding in summary.findings}
        limits = one.limits(summary.window.number)
        assert not limit or [text for text in limits if limit in text], limits

    return check


def _fact(one: Audited, summary: AuditSummary, name: str) -> object:
    number = summary.window.number
    if name == "counts":
        return one.counts(summary)
    if name == "worst":
        return summary.findings[0].kind
    if name == "kinds":
        return {finding.kind: finding.count for finding in summary.findings}
    part, _, why = name.partition("_")
    if part in _PARTS:
        rows = one.rows("open" if part == "still" else part, number)
        return {_name(one, row["id"]): row[why or "status"] for row in rows}
    if name in {"left_out", "gone_before"}:
        return getattr(one.state(number), name)
    if name == "root_counts":
        return one.report(number).roots
    return getattr(summary, name)


def _name(one: Audited, entry_id: str) -> int | str:
    return one.ids.index(entry_id) if entry_id in one.ids else entry_id


def during(module: Any, name: str, act: Step, audit: Step) -> Step:
    """Do something right before a step of the audit."""

    def run(one: Audited) -> None:
        with amid(module, name, lambda: act(one)):
            audit(one)

    return run


def add(number: int) -> Step:
    return lambda one: one.add(number)


def create(at: int | str = "0") -> Step:
    """Create the group at an ID, or at the entry of this number."""
    return lambda one: one.create_group(at=_id(one, at))


def destroy() -> Step:
    return lambda one: one.client.xgroup_destroy(one.stream, GROUP)


def set_position(at: int | str) -> Step:
    return lambda one: one.client.xgroup_setid(one.stream, GROUP, id=_id(one, at))


def deliver(number: int, consumer: str = "a") -> Step:
    return lambda one: one.deliver(number, consumer)


def work(number: int, left: int = 0) -> Step:
    """Deliver new entries, and acknowledge all but the last ones."""
    return lambda one: one.acknowledge(*one.deliver(number)[: number - left])


def acknowledge(*entries: int) -> Step:
    """Acknowledge entries by their numbers, in the order of their addition."""
    return lambda one: one.acknowledge(*(one.ids[entry] for entry in entries))


def delete(*entries: int) -> Step:
    return lambda one: one.client.xdel(one.stream, *(one.ids[entry] for entry in entries))


def trim(first: int) -> Step:
    """Trim what lies before an entry."""
    return lambda one: one.client.xtrim(one.stream, minid=one.ids[first], approximate=False)


def trim_all() -> Step:
    return lambda one: one.client.xtrim(one.stream, maxlen=0, approximate=False)


def let_idle(entry: int, idle_ms: int = 2 * STUCK_AFTER_MS) -> Step:
    return lambda one: one.let_idle(one.ids[entry], idle_ms)


def archive() -> Step:
    """Archive a window that no audit looks at yet."""
    return lambda one: one.archive_only()


def record(kind: str, *pairs: Any, at_ms: int | None = None) -> Step:
    """Write an event into the ledger; `entry(n)` among the pairs stands for an entry's ID."""
    entry_id = "*" if at_ms is None else f"{at_ms}-*"

    def write(one: Audited) -> None:
        words = [word(one) if callable(word) else word for word in pairs]
        one.record(kind, *words, entry_id=entry_id)

    return write


def entry(number: int) -> Callable[[Audited], str]:
    """The ID of an entry, within the pairs of `record`."""
    return lambda one: one.ids[number]


def moved(number: int, new: str = "9-9", times: str = "0 1 40") -> tuple[Any, Any]:
    """An entry and its new ID, within the pairs of `record`."""
    return entry(number), lambda one: f"{new} {one.ids[number]} {times}"


def _id(one: Audited, at: int | str) -> str:
    return one.ids[at] if isinstance(at, int) else at
