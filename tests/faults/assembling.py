"""The history of a lane, out of what all who took part wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.faults.aof import cut_tail, find_file
from tests.faults.collecting import ENTRIES, Findings, read_all
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.hindering import find_silences
from tests.faults.history import SECOND_NS, Event, History, Letter, Place, Produced, Source
from tests.faults.journal import read_journals
from tests.faults.notes import Known
from tests.faults.scene import Scene


def assemble_history(
    world: Scene, lane: GroupUnderFault, *, owed: frozenset[str], problems: tuple[str, ...]
) -> History:
    """All that is known of a lane, once it has come to rest or was given up."""
    findings = world.findings[lane.name]
    read_all(world.connect(), lane, findings, offset_ns=world.offset_ns)
    events = tuple(read_journals(world.place.journals(lane)))
    produced = dict(world.producers[lane.name].produced)
    names = _name_all(findings, events, produced)
    known = Known(lane=lane, produced=produced, events=events, findings=findings, names=names)
    resolved = (note.resolve(known) for note in world.notes)
    return History(
        name=lane.name,
        timeout_ns=lane.timeout_s * SECOND_NS,
        produced=produced,
        events=events,
        moves=tuple(findings.moves.values()),
        letters=tuple(_name_letter(one, names) for one in findings.letters.values()),
        copies=tuple(findings.copies.values()),
        disturbances=tuple(one for one in resolved if one is not None),
        owed=owed,
        other_groups=tuple(world.other_groups.get(lane.name, ())),
        is_poisoned_fleet=lane.entries is not None,
        problems=problems,
        disagreements=tuple(world.disagreements),
        unreported=tuple(world.unreported.get(lane.name, ())),
        **_facts_of_hindered(world, lane, events),
    )


def _facts_of_hindered(
    scene: Scene, lane: GroupUnderFault, events: tuple[Event, ...]
) -> dict[str, Any]:
    """The facts that are known only if every fault of a worker was recorded."""
    if not scene.setting.reports_hindrances:
        return {}
    sources = {lane.keys.stream: Source.STREAM, lane.keys.retry: Source.RETRY}
    file = find_file(scene.servers.master().directory)
    kept = cut_tail(file, keep_until_s=0, fraction=1)
    acknowledged = ((sources[key], one) for key, one in kept.acknowledged if key in sources)
    return {
        "hindrances": (*scene.hindrances, *find_silences(events, lane.timeout_s * SECOND_NS)),
        "acknowledged": frozenset(acknowledged),
        "alive": frozenset(scene.living(lane)),
    }


def _name_all(
    findings: Findings, events: tuple[Event, ...], produced: Mapping[str, Produced]
) -> dict[Place, str]:
    names = {one.place: one.unique for one in produced.values() if one.place}
    names |= {event.place: event.unique for event in events if event.place and event.unique}
    return {**names, **{place: name for place, name in findings.names.items() if name}}


def _name_letter(letter: Letter, names: Mapping[Place, str]) -> Letter:
    found = (names.get((source, letter.root_id)) for source in ENTRIES)
    return replace(letter, unique=letter.unique or next((name for name in found if name), ""))
