"""Which windows a run works on: those that were begun, then those that can be closed now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import parse_ledger_event
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import (
    SPAN,
    WindowPlace,
    find_units,
    mark_layout,
    stream_path,
    window_numbers,
)
from pelops.pipeline.archive.windows import (
    Checkpoint,
    Plan,
    Replacement,
    Traces,
    beginning,
    close_windows,
    find_break,
    find_replacement,
    milliseconds,
    moment,
    parse_plan,
    read_checkpoint,
    render_plan,
)
from pelops.pipeline.redis_reader import RedisReader, ServerSnapshot, StreamSnapshot
from pelops.pipeline.settings import AuditTarget
from pelops.pipeline.stages import PipelineRun

_LEAST_OF_A_TASK: Final = 100_000
_MOST_OF_A_TASK: Final = 5_000_000
_TASKS: Final = 8  # of a window of any size between: each takes a moment to plan
_MOST_TASKS: Final = 200
_MOST_OF_A_PAGE: Final = 1000
BYTES_OF_A_PAGE: Final = 256 * 1024  # what Redis answers within a millisecond
_SAMPLED: Final = 8
_OVERLAP: Final = timedelta(minutes=1)  # of what two windows read of a ledger: clocks go back
_LEDGER_PAGE: Final = 200


def plan_windows(
    run: PipelineRun, stream: str, targets: Sequence[AuditTarget]
) -> Iterator[tuple[Plan, str]]:
    """The plans to work on, in order, each written down before it is handed out; and their paths.

    Windows that a run has died in, or has only archived, are the first to be finished.
    """
    last = last_plan(run, stream)
    for plan in _unfinished(run, last):
        yield plan, _place(run, plan).path
    for plan in _new_plans(run, stream, targets, last):
        yield _make(run, plan), _place(run, plan).path


def last_plan(run: PipelineRun, stream: str) -> Plan | None:
    """The plan of the newest window; None before the first."""
    names = run.storage.list_names(stream_path(run.settings.archive, stream))
    for number in reversed(window_numbers(names)):
        plan = read_plan(run, stream, number)
        if plan is not None:
            return plan
    return None


def remove_old_windows(run: PipelineRun, stream: str) -> list[int]:
    """Remove windows that are older than the archive is kept; answers their numbers.

    What they left open is carried on by those after them; the newest two stay in any case.
    """
    base = stream_path(run.settings.archive, stream)
    numbers = window_numbers(run.storage.list_names(base))
    removed: list[int] = []
    if run.settings.retention is None or not numbers:
        return removed
    newest = read_plan(run, stream, numbers[-1])
    for number in numbers[:-2]:
        plan = read_plan(run, stream, number)
        # Without a plan it is what a run has left that died while it removed the window.
        if plan is None or _is_older(plan, newest, run.settings.retention):
            _remove_window(run, stream, number)
            removed.append(number)
    return removed


def _is_older(plan: Plan, newest: Plan | None, retention: timedelta) -> bool:
    return newest is not None and newest.window.at - plan.window.at > retention


def _remove_window(run: PipelineRun, stream: str, number: int) -> None:
    """The manifest goes first and the plan last: whoever finds the plan removes the rest."""
    place = WindowPlace(root=run.settings.archive, stream=stream, number=number)
    run.storage.remove(place.part("manifest.json"))
    is_last = number % SPAN == SPAN - 1  # what is merged goes with the last of it
    for unit in find_units(run.storage, place):
        run.storage.remove(unit if is_last else f"{unit}/{number}")
    plan = place.part("plan.json")
    for name in run.storage.list_names(place.path):
        if f"{place.path}/{name}" != plan:
            run.storage.remove(f"{place.path}/{name}")
    run.storage.remove(place.path)


def read_plan(run: PipelineRun, stream: str, number: int) -> Plan | None:
    """The plan of one window; None when it was never made."""
    place = WindowPlace(root=run.settings.archive, stream=stream, number=number)
    path = place.part("plan.json")
    found = run.storage.read_json(path)
    return None if found is None else parse_plan(found, path)


def is_complete(run: PipelineRun, plan: Plan) -> bool:
    """Whether the window was audited to its end."""
    return run.storage.exists(_place(run, plan).part("manifest.json"))


def _unfinished(run: PipelineRun, last: Plan | None) -> list[Plan]:
    """Windows up to the last without a manifest, in order: before one that has it, all have."""
    found: list[Plan] = []
    plan = last
    while plan is not None and not is_complete(run, plan):
        found.append(plan)
        plan = read_plan(run, plan.stream, plan.window.number - 1)
    return found[::-1]


def _new_plans(
    run: PipelineRun, stream: str, targets: Sequence[AuditTarget], last: Plan | None
) -> Iterator[Plan]:
    watch = run.watch
    # Positions first: what they had passed then was there to be delivered.
    positions = {group: look.position for group, look in watch.groups(stream).items()}
    look = watch.stream(stream)
    now = Checkpoint(at_id=look.last_generated, added=look.added, at=moment(watch.now_ms(stream)))
    server = watch.server(stream)
    found = _find_break(run, last, look, server)
    broken = found.broken
    begin = beginning(look, now) if last is None or broken is not None else last.end
    # After a failover to a server whose clock is behind, no window would be long enough for long.
    is_behind = now.at < begin.at
    span = None if last is None or broken is not None or is_behind else run.settings.window
    checkpoints = [now]
    if span is not None and targets and now.at - begin.at >= 2 * span:
        ledger = derive_keys(stream, targets[0].group).ledger
        reported = _reported_checkpoints(watch, ledger, stream, begin)
        # A window in which nothing was added is closed for what is open, which is looked at now.
        checkpoints += [one for one in reported if one.at <= now.at and one.added > begin.added]
    windows = close_windows(
        begin, checkpoints, span=span, number=0 if last is None else last.window.number + 1
    )
    basis = Plan(
        stream=stream,
        window=Window(
            number=0, from_id=EntryId.MIN, to_id=EntryId.MIN, from_added=0, to_added=0, at=now.at
        ),
        targets=tuple(targets),
        payload=run.settings.payload,
        business_key=run.settings.business_key,
        page_size=page_size(watch, stream),
        positions={t.group: positions[t.group] for t in targets if t.group in positions},
        ledger_from=_ledger_since(targets, last, begin, now),
        removed=look.removed,
        retention_margin=None if last is None else _margin(last, look),
        doubts=() if found.doubt is None else (found.doubt,),
        max_deleted=look.max_deleted,
        run_id=server.run_id,
        made_ms=milliseconds(now.at),
    )
    for window in windows:
        plan = replace(basis, window=window, cuts=_cuts(run, stream, window))
        digest = _digest(watch, stream, window.to_id)
        plan = replace(plan, retries=_retries(run, plan), end_digest=digest)
        if broken is not None:
            plan = replace(plan, breaks=(broken,))
        yield plan
        basis = replace(basis, ledger_from=_ledger_from(targets, plan.end), doubts=())
        broken = None


def _find_break(
    run: PipelineRun, last: Plan | None, look: StreamSnapshot, server: ServerSnapshot
) -> Replacement:
    """Whether the stream is another one than the newest window's, or may be."""
    if last is None:
        return Replacement()
    broken = find_break(last.end, look)
    if broken is not None:
        return Replacement(broken=broken)
    is_same = _is_same(run.watch, last)
    if is_same:
        return Replacement()
    traces = Traces(
        was_there=last.end_digest is not None,
        is_same=is_same,
        max_deleted=last.max_deleted,
        restarted=last.run_id not in {"", server.run_id},
        began_empty=server.began_empty,
        ledger_is_left=_is_ledger_left(run, last),
    )
    return find_replacement(last.end, look, traces)


def _is_same(watch: RedisReader, last: Plan) -> bool | None:
    """Whether the newest window's last entry is as it was; None when it is not there."""
    digest = _digest(watch, last.stream, last.window.to_id)
    if digest is None:
        return None
    # One that was not there when the window was planned had been deleted, and is another one.
    return digest == last.end_digest if last.run_id else True


def _digest(watch: RedisReader, stream: str, entry_id: EntryId) -> str | None:
    """Of the fields of an entry; None when it is not there."""
    digest = blake2b(digest_size=16)
    for _, flat in watch.ask(stream, "XRANGE", stream, str(entry_id), str(entry_id)):
        for part in flat:
            digest.update(b"%d:%b" % (len(part), part))
        return digest.hexdigest()
    return None


def _is_ledger_left(run: PipelineRun, last: Plan) -> bool | None:
    """Whether an event that was archived is still in a ledger: then no data was lost.

    None when the newest window saw no event.
    """
    is_left = None
    content = run.storage.read_json(_place(run, last).part("acts.json")) or {}
    for group, reported in content.get("groups", {}).items():
        ledger, event = derive_keys(last.stream, group).ledger, reported["archived"]
        if reported["exists"] and parse_entry_id(event) > EntryId.MIN:
            is_left = bool(run.watch.ask(ledger, "XRANGE", ledger, event, event))
        if is_left:
            return True
    return is_left


def _make(run: PipelineRun, plan: Plan) -> Plan:
    """The plan that counts: this one, or that of a run that was faster."""
    path = _place(run, plan).part("plan.json")
    mark_layout(run.storage, run.settings.archive)
    if run.storage.create_json(path, render_plan(plan)):
        return plan
    theirs = read_plan(run, plan.stream, plan.window.number)
    return plan if theirs is None else theirs


def _place(run: PipelineRun, plan: Plan) -> WindowPlace:
    return WindowPlace(root=run.settings.archive, stream=plan.stream, number=plan.window.number)


def _reported_checkpoints(
    watch: RedisReader, ledger: str, stream: str, begin: Checkpoint
) -> Iterator[Checkpoint]:
    """The operator's checkpoints since `begin`."""
    after = f"({milliseconds(begin.at)}-0"
    while True:
        page = watch.ask(ledger, "XRANGE", ledger, after, "+", "COUNT", _LEDGER_PAGE)
        for entry_id, flat in page:
            pairs = dict(zip(flat[::2], flat[1::2], strict=True))
            checkpoint = read_checkpoint(
                parse_ledger_event(parse_entry_id(entry_id), pairs), stream
            )
            if checkpoint is not None:
                yield checkpoint
        if len(page) < _LEDGER_PAGE:
            return
        after = f"({page[-1][0].decode()}"


def _ledger_since(
    targets: Sequence[AuditTarget], last: Plan | None, begin: Checkpoint, now: Checkpoint
) -> Mapping[str, EntryId]:
    """From where each ledger is read: all of it for the first window."""
    if last is not None and now.at < begin.at:
        # IDs go on from where they were, however far the clock went back.
        return last.ledger_from
    return _ledger_from(targets, None if last is None else begin)


def _ledger_from(targets: Sequence[AuditTarget], begin: Checkpoint | None) -> dict[str, EntryId]:
    if begin is None:
        return {}
    at = EntryId(max(0, milliseconds(begin.at - _OVERLAP)), 0)
    return {target.group: at for target in targets}


def _margin(last: Plan, look: StreamSnapshot) -> float | None:
    """What of the retained part lies between what is trimmed and what is archived."""
    if look.length == 0 or look.removed == 0 or look.added <= last.window.to_added:
        return 1.0
    return round((last.window.to_added - look.removed) / look.length, 6)


def _cuts(run: PipelineRun, stream: str, window: Window) -> tuple[EntryId, ...]:
    """Where the reading is cut into tasks: the last ID of each but the last."""
    produced = window.to_added - window.from_added
    if produced < 2 * _LEAST_OF_A_TASK:
        return ()
    of_a_task = max(
        _LEAST_OF_A_TASK, min(_MOST_OF_A_TASK, produced // _TASKS), produced // _MOST_TASKS
    )
    # Here, since they need PySpark, and a small window does not.
    from pyspark_redis_streams.batch.probes import plan_spans
    from pyspark_redis_streams.batch.ranges import span_between

    options = run.watch.options(run.watch.place, entriesPerPartition=str(of_a_task))
    first, last = window.from_id.after(), window.to_id
    span = span_between(run.watch.connections, stream, first, last, entries=produced)
    if span is None:
        return ()
    tasks = plan_spans(run.watch.connections, [span], options)
    begins = sorted(one.first for task in tasks for one in task.ranges)
    return tuple(begin.before() for begin in begins[1:])


def page_size(watch: RedisReader, stream: str) -> int:
    """As many entries as Redis can answer in a moment, by the size of a few of the newest."""
    if not watch.stream(stream).exists:
        return _MOST_OF_A_PAGE
    sample = watch.ask(stream, "XREVRANGE", stream, "+", "-", "COUNT", _SAMPLED)
    sizes = [sum(map(len, flat)) + 8 * len(flat) for _, flat in sample]
    return max(1, min(_MOST_OF_A_PAGE, BYTES_OF_A_PAGE // max([*sizes, 1])))


def _retries(run: PipelineRun, plan: Plan) -> dict[str, tuple[EntryId, EntryId]]:
    """What of each group's retry stream belongs to the window: all since the last one."""
    last = read_plan(run, plan.stream, plan.window.number - 1) if plan.window.number else None
    found = {}
    for target in plan.targets:
        look = run.watch.stream(derive_keys(plan.stream, target.group).retry)
        if look.exists:
            known = last.retries.get(target.group) if last is not None else None
            after = known[1] if known is not None else EntryId.MIN
            found[target.group] = (min(after, look.last_generated), look.last_generated)
    return found
