"""The dead letters of a group: grouped by their failures, single ones, and pages of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.records.dead_letter import DeadLetter, parse_letter
from pelops.domain.records.inspection import (
    Coverage,
    FoundEntry,
    LetterGroup,
    LettersPage,
    LettersReport,
    StreamKind,
)
from pelops.policy.redrive.payload_shape import describe_shape
from pelops.policy.redrive.triage import (
    ClusterFacts,
    Signature,
    advise_redrive,
    build_signature,
)
from pelops.redis_streams.inspection.bodies import (
    MIB,
    Budget,
    RawEntry,
    read_backward,
    read_forward,
)
from pelops.redis_streams.inspection.entry_history import NoSuchEntry
from pelops.redis_streams.inspection.group_view import GroupInspection

LIST_BUDGET: Final = Budget(entries=10_000, bytes=32 * MIB)
DEEP_LIST_BUDGET: Final = Budget(entries=5_000_000, bytes=4096 * MIB)
PAGE_BUDGET: Final = Budget(entries=500, bytes=MIB)
MOST_GROUPS: Final = 1_000
_SAMPLES: Final = 3
FOREIGN: Final = "NotOfThisGroup"  # reason shown for entries that are not this group's dead letters


@dataclass(slots=True)
class _LetterCluster:
    """Running counts of one cluster of dead letters."""

    signature: Signature
    newest: EntryId
    oldest: EntryId
    letters: int = 0
    returned: int = 0
    samples: list[EntryId] = field(default_factory=list)


async def list_letters(inspection: GroupInspection, *, deep: bool = False) -> LettersReport:
    """Dead letters grouped by similar failures, the largest group first.

    Reads a limited number, from the newest on; `deep` reads more. Raises as every read of Redis.
    """
    server, keys = inspection.server.dry, inspection.keys
    budget = DEEP_LIST_BUDGET if deep else LIST_BUDGET
    groups: dict[str, _LetterCluster] = {}
    searched, size, last = 0, 0, None
    pages = read_backward(server, keys.dead_letter, budget)
    async with aclosing(pages):
        async for page in pages:
            for raw in page:
                _count(groups, inspection, raw)
            searched, last = searched + len(page), page[-1].entry_id
            size += sum(raw.bytes for raw in page)
    total = await server.execute("XLEN", keys.dead_letter, key=keys.dead_letter)
    is_whole = searched < budget.entries and size < budget.bytes
    ordered = sorted(groups.values(), key=lambda one: (-one.letters, one.oldest))
    return LettersReport(
        stream=keys.stream,
        group=keys.group,
        dead_letter=keys.dead_letter,
        letters=int(total),
        groups=tuple(map(_finish, ordered)),
        coverage=(
            Coverage(
                what=f"dead-letter stream {keys.dead_letter}",
                searched=searched,
                is_whole=is_whole,
                until=None if is_whole else last,
            ),
        ),
    )


async def show_letter(
    inspection: GroupInspection, entry_id: EntryId, *, is_discarded: bool = False
) -> LettersPage:
    """One dead letter. Raises NoSuchEntry when the stream does not hold it."""
    place = StreamKind.DISCARDED if is_discarded else StreamKind.DEAD_LETTERS
    reads = replace(inspection, server=inspection.server.dry)
    dead_letter = await reads.find(place, entry_id)
    if dead_letter is None:
        raise NoSuchEntry(
            f"there is no dead letter {entry_id} in {reads.key_of(place)}: it was moved, it "
            f"expired, or {entry_id} is the ID of an entry; `pelops why {entry_id}` finds it"
        )
    return _page(inspection, place, [dead_letter], None)


async def read_letters_page(
    inspection: GroupInspection, *, after: EntryId | None, is_discarded: bool = False
) -> LettersPage:
    """The dead letters after `after`, the oldest first: about `PAGE_BUDGET`, at least one."""
    place = StreamKind.DISCARDED if is_discarded else StreamKind.DEAD_LETTERS
    key, reader = inspection.key_of(place), inspection.reader
    letters: list[FoundEntry] = []
    size = 0
    start = "-" if after is None else f"({after}"
    pages = read_forward(inspection.server.dry, key, start, PAGE_BUDGET)
    async with aclosing(pages):
        async for page in pages:
            letters += [reader.read(place, key, raw) for raw in page]
            size += sum(raw.bytes for raw in page)
    is_last = len(letters) < PAGE_BUDGET.entries and size < PAGE_BUDGET.bytes
    return _page(inspection, place, letters, None if is_last else letters[-1].entry_id)


def _page(
    inspection: GroupInspection,
    place: StreamKind,
    letters: Sequence[FoundEntry],
    after: EntryId | None,
) -> LettersPage:
    keys = inspection.keys
    return LettersPage(
        stream=keys.stream,
        group=keys.group,
        dead_letter=inspection.key_of(place),
        letters=tuple(letters),
        after=after,
    )


def _count(groups: dict[str, _LetterCluster], inspection: GroupInspection, raw: RawEntry) -> None:
    letter = parse_letter(raw.entry_id, raw.flat, inspection.keys)
    signature = _sign(letter)
    known = groups.get(signature.cluster)
    if known is None:
        if len(groups) >= MOST_GROUPS:
            signature = _OTHERS
        known = groups.setdefault(
            signature.cluster, _LetterCluster(signature, newest=raw.entry_id, oldest=raw.entry_id)
        )
    known.letters += 1
    known.oldest = min(known.oldest, raw.entry_id)
    known.newest = max(known.newest, raw.entry_id)
    known.returned += letter is not None and letter.returned > 0
    known.samples.append(raw.entry_id)
    del known.samples[:-_SAMPLES]  # keeps the oldest: the newest are counted first


def _sign(letter: DeadLetter | None) -> Signature:
    if letter is None:
        return Signature(reason=FOREIGN, exception="", error="", shape="")
    shape = describe_shape(letter.pairs)
    return build_signature(reason=letter.reason, error=letter.error, shape=shape)


_OTHERS: Final = Signature(reason="(others)", exception="", error="", shape="")


def _finish(group: _LetterCluster) -> LetterGroup:
    facts = ClusterFacts(signature=group.signature, letters=group.letters, returned=group.returned)
    advice = advise_redrive(facts)
    return LetterGroup(
        cluster=group.signature.cluster,
        reason=group.signature.reason,
        error=group.signature.error,
        letters=group.letters,
        oldest=group.oldest,
        newest=group.newest,
        returned=group.returned,
        action=advice.action.value,
        advice=advice.reason,
        samples=tuple(reversed(group.samples)),
    )
