"""One round trip says everything: what is done, what starts, what lives; and brings what is next.

An entry that may have been given to somebody else, because it was not refreshed for long, is
acknowledged by a script that looks first. What could not be sent is sent again: all of it repeats
safely.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pelops.worker.engine.in_flight import InFlight
from pelops.worker.entry import Entry
from pelops.worker.server.adapter import Exchanged, Ids, Outgoing

REFRESH_AT: Final = 1 / 3  # of the processing timeout: two heartbeats may fail
TRUSTED_FOR: Final = 2 / 3  # of the processing timeout: so long nobody else can have been given it
REFRESHED_AT_ONCE: Final = 200  # 33 us of the server for 10


@dataclass(slots=True)
class Sent:
    """What an exchange is about."""

    outgoing: Outgoing
    at_s: float
    done: list[Entry]
    kept: list[Entry]
    started_ids: bytes


@dataclass(slots=True)
class ExchangeAdditions:
    """What the next exchange carries beside what is held."""

    left: Iterable[bytes]  # started entries of former processes of this name
    started_ids: bytes | None  # as Redis has them; None: unknown
    grant: int  # so many may be active
    grant_at_once: int
    read: int
    trusts: bool = True  # Redis did what it was asked last: this is said at once


def build_outgoing(
    in_flight: InFlight, additions: ExchangeAdditions, now_s: float, idle_s: float
) -> Sent:
    """Take from `holding` what is to be said now."""
    done = in_flight.take_done()
    offered = in_flight.offer(additions.grant, additions.grant_at_once) if additions.grant else []
    acks, checked = _split(done, now_s - idle_s * TRUSTED_FOR if additions.trusts else math.inf)
    kept = in_flight.due_for_refresh(now_s - idle_s * REFRESH_AT, REFRESHED_AT_ONCE)
    _add_doubtful(kept, offered, now_s - idle_s * TRUSTED_FOR)
    if kept and done:
        said = set(done)
        kept = [entry for entry in kept if entry not in said]
    started_ids = b" ".join([*additions.left, *in_flight.started_ids()])
    outgoing = Outgoing(
        acks=acks,
        checked_acks=checked,
        started_ids=None if started_ids == additions.started_ids else started_ids,
        keeps=by_key(kept),
        read=additions.read,
    )
    return Sent(outgoing, now_s, done, kept, started_ids)


def _add_doubtful(kept: list[Entry], offered: Iterable[Entry], trusted_from_s: float) -> None:
    """What may be somebody else's by now is asked for before it starts: it came late."""
    doubtful = [entry for entry in offered if entry.refreshed_s < trusted_from_s]
    if doubtful:
        known = set(kept)
        kept.extend(entry for entry in doubtful if entry not in known)


def _split(done: list[Entry], trusted_from_s: float) -> tuple[Ids, Ids]:
    """What is certainly ours, and what may not be."""
    acks: dict[bytes, list[bytes]] = {}
    checked: dict[bytes, list[bytes]] = {}
    for entry in done:
        into = acks if entry.refreshed_s >= trusted_from_s else checked
        key = entry.key
        if key in into:
            into[key].append(entry.raw_id)
        else:
            into[key] = [entry.raw_id]
    return acks, checked


def by_key(entries: Iterable[Entry]) -> dict[bytes, list[bytes]]:
    """IDs by the stream of each entry."""
    found: dict[bytes, list[bytes]] = {}
    for entry in entries:
        found.setdefault(entry.key, []).append(entry.raw_id)
    return found


@dataclass(slots=True)
class Heard:
    """What an answer means for the entries that it is about."""

    settled: list[Entry]
    unsaid: list[Entry]  # their acknowledgement was refused, and is to be sent again
    lost: list[Entry]
    gone: list[Entry]  # their body was deleted
    kept: list[Entry]
    pending: int  # acknowledged entries that had been pending


def understand_answer(sent: Sent, answer: Exchanged) -> Heard:
    """What became of what was sent. With a problem nothing counts as refreshed."""
    if _is_all_well(sent, answer):
        pending = sum(answer.acked.values())
        return Heard(sent.done, unsaid=[], lost=[], gone=[], kept=sent.kept, pending=pending)
    lost = [entry for entry in (*sent.done, *sent.kept) if _is_in(entry, answer.lost)]
    gone = [entry for entry in sent.kept if _is_in(entry, answer.gone)]
    away = {*lost, *gone}
    acked = answer.acked
    return Heard(
        settled=[entry for entry in sent.done if entry.key in acked and entry not in away],
        unsaid=[entry for entry in sent.done if entry.key not in acked and entry not in away],
        lost=lost,
        gone=gone,
        kept=[entry for entry in sent.kept if not answer.problem and entry not in away],
        pending=sum(acked.values()),
    )


def _is_all_well(sent: Sent, answer: Exchanged) -> bool:
    """Nearly always; then there is nothing to look at entry by entry."""
    asked = sent.outgoing.acks.keys() | sent.outgoing.checked_acks.keys()
    refused = answer.problem or answer.lost or answer.gone
    return not refused and asked <= answer.acked.keys()


def _is_in(entry: Entry, ids: dict[bytes, set[bytes]]) -> bool:
    return bool(ids) and entry.raw_id in ids.get(entry.key, ())
