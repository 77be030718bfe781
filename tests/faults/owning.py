"""What workers that say how long they own an entry did with entries that were not theirs.

By its own account, a worker owns an entry from the start of its handler. It does so until the
handler ends, the worker dies, or its last heartbeat is as old as the processing timeout. A stopped
worker that resumes may do the effect of an entry that another has by then, but not acknowledge it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product

from tests.faults.evidence import Evidence
from tests.faults.history import Act, Event, History, Place, Process

ENDS = frozenset({Act.EFFECT, Act.DROP, Act.CRASH})
ROUNDING_NS = 2_000_000  # Redis counts idle time in whole ms, and so do workers
TAKEN_AWAY = frozenset({"requeued", "dead-lettered", "payload-gone"})
# A slow network does not excuse a lost entry, nor does an end that was asked for.
HELD_BACK = frozenset({"stalled", "slow"})
EXCUSES = frozenset({"stopped", "silent", "cut", "muted", "stalled", "refused", "unserved"})

Turn = list[Event]  # of one handler: its start, what it held, its end
Span = tuple[int, int]


def find_overlaps(history: History) -> list[Evidence]:
    """Entries that two living workers handled at once, each of which believed that it owned it."""
    ends = _read_ends(history)
    found = []
    for unique, turns in _shared_turns(history.events).items():
        for one, other in combinations(turns, 2):
            both_ns = _shared_ns(_believed(one, ends), _believed(other, ends))
            if one[0].process != other[0].process and both_ns > ROUNDING_NS:
                who = f"{one[0].process.consumer} and {other[0].process.consumer}"
                text = f"{who}, for {both_ns / 1e6:.0f} ms"
                found.append(Evidence(anomaly="overlap", subject=unique, text=text))
    return found


def find_acknowledged_without_effect(history: History) -> list[Evidence]:
    """Acknowledged before the handler was through; acknowledged in Redis, and never handled."""
    name = "acknowledged without effect"
    found = [
        _of_event(name, event, f"by {event.process.consumer}, before its handler was through")
        for event, turn in _acknowledged(history.events)
        if not any(one.act is Act.EFFECT for one in turn)
    ]
    effects = {event.place for event in history.events if event.act is Act.EFFECT}
    moved = {move.place for move in history.moves if move.kind in TAKEN_AWAY}
    return [
        *found,
        *(
            Evidence(anomaly=name, subject=place[1], text="Redis has it, and nobody handled it")
            for place in history.acknowledged - effects - moved
        ),
    ]


def find_foreign_acknowledgements(history: History) -> list[Evidence]:
    """What a worker acknowledged though another one had been given it meanwhile, and had begun.

    The network may delay an acknowledgement that was sent in time: harmless, as the effect is done.
    """
    starts: dict[Place, list[Event]] = defaultdict(list)
    for event in history.events:
        if event.act is Act.START and event.place:
            starts[event.place].append(event)
    return [
        _of_event(
            "foreign acknowledgement",
            event,
            f"by {event.process.consumer}; {other.process.consumer} had begun with it",
        )
        for event, turn in _acknowledged(history.events)
        if turn and event.place and event.result == "1"
        for other in starts[event.place]
        if other.process != event.process and turn[0].at_ns < other.at_ns < event.at_ns
        if not _was_hindered(turn[-1], history, by=HELD_BACK, until_ns=event.at_ns)
    ]


def find_inexplicable_duplicates(history: History) -> list[Evidence]:
    """Repeated effects of which no owner died or was kept from its work.

    Who was stopped may be late with its effect: then the second one is that of the first owner.
    """
    effects: dict[str, list[Event]] = defaultdict(list)
    for event in history.events:
        if event.act is Act.EFFECT:
            effects[event.unique].append(event)
    ends = _read_ends(history)
    acknowledged: dict[tuple[Process, Place | None], list[int]] = defaultdict(list)
    for event in history.events:
        if event.act is Act.ACK and event.result == "1":
            acknowledged[event.process, event.place].append(event.at_ns)
    return [
        _of_event("unexplained duplicate", second, f"after {first.process.consumer} had done it")
        for them in effects.values()
        for first, second in pairwise(them)
        if not _was_hindered(second, history)
        and (
            any(
                first.at_ns <= at_ns <= second.at_ns
                for at_ns in acknowledged.get((first.process, first.place), ())
            )
            or not (
                ends.get(first.process, second.at_ns) < second.at_ns
                or _was_hindered(first, history, until_ns=second.at_ns)
            )
        )
    ]


def find_unexpected_ends(history: History) -> list[Evidence]:
    """Workers that died by themselves, or ended otherwise than well."""
    killed = {one.pid for one in history.hindrances or () if one.kind == "killed"}
    ended = [event for event in history.events if event.act is Act.END]
    reported = {event.process for event in ended}
    name = "unexpected end"
    return [
        *(_of_event(name, event, f"code {event.result}") for event in ended if event.result != "0"),
        *(
            Evidence(anomaly=name, subject=one.consumer, text=f"process {one.pid}")
            for one in _read_ends(history)
            if one not in reported and one.pid not in killed
        ),
    ]


def _was_hindered(
    effect: Event,
    history: History,
    *,
    by: Collection[str] = EXCUSES,
    until_ns: int | None = None,
) -> bool:
    """Whether its worker was kept from its work, and may have lost the entry by that."""
    since_ns = effect.at_ns - history.timeout_ns
    until_ns = until_ns or effect.at_ns
    return any(
        one.began_ns < until_ns and one.ended_ns > since_ns and one.hits(effect.process)
        for one in history.hindrances or ()
        if one.kind in by
    )


def _read_ends(history: History) -> Mapping[Process, int]:
    """The last event of each worker that has ended."""
    last = {event.process: event.at_ns for event in history.events}
    return {process: at_ns for process, at_ns in last.items() if process not in history.alive}


def _acknowledged(events: Sequence[Event]) -> Iterator[tuple[Event, Turn]]:
    """Every acknowledgement with the last turn that its worker had at the entry before."""
    turns: dict[tuple[Process, Place], Turn] = {}
    for event in events:
        if event.place is None:
            continue
        key = (event.process, event.place)
        if event.act is Act.START:
            turns[key] = [event]
        elif event.act is Act.ACK:
            yield event, turns.pop(key, [])
        elif key in turns:
            turns[key].append(event)


def _shared_turns(events: Sequence[Event]) -> Mapping[str, list[Turn]]:
    """All turns at entries that more than one worker had."""
    first: dict[str, Process] = {}
    shared: set[str] = set()
    for event in events:
        if event.act is Act.START and first.setdefault(event.unique, event.process) != (
            event.process
        ):
            shared.add(event.unique)
    found: dict[str, list[Turn]] = defaultdict(list)
    open_turns: dict[tuple[Process, str], Turn] = {}
    for event in events:
        if event.unique not in shared:
            continue
        key = (event.process, event.unique)
        if event.act is Act.START:
            open_turns[key] = [event]
            found[event.unique].append(open_turns[key])
        elif key in open_turns:
            open_turns[key].append(event)
            if event.act in ENDS:
                del open_turns[key]
    return found


def _believed(turn: Turn, ends: Mapping[Process, int]) -> list[Span]:
    """When the worker assumed that it owned the entry that it handled."""
    last = turn[-1]
    until_ns = last.at_ns if last.act in ENDS else ends.get(last.process, 1 << 63)
    return [
        (event.at_ns, min(event.at_ns + int(event.result) * 1_000_000, until_ns))
        for event in turn
        if event.act not in ENDS and event.result
    ]


def _shared_ns(some: Sequence[Span], others: Sequence[Span]) -> int:
    """The longest time that is in a span of both."""
    both = (min(one[1], two[1]) - max(one[0], two[0]) for one, two in product(some, others))
    return max(both, default=0)


def _of_event(anomaly: str, event: Event, text: str) -> Evidence:
    return Evidence(anomaly=anomaly, subject=event.unique, text=f"{event.place}: {text}")
