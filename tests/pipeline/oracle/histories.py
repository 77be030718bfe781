"""Random histories as data: a history is made from a number, and stays one when acts are dropped.

Acts do not name entries: each uses those that exist when it runs. So any part of a history can be
lived, and a failing one can be made small.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from enum import StrEnum
from typing import Any, Final


class Files(StrEnum):
    """What append-only files the audits are given."""

    NONE = "none"
    WHOLE = "whole"
    REWRITTEN = "rewritten"  # the server may begin new ones


class Kind(StrEnum):
    """What is done."""

    ADD = "add"
    READ = "read"
    READ_WITHOUT_RECORD = "read-without-record"
    ACKNOWLEDGE = "acknowledge"
    WORK = "work"  # read and acknowledge
    WORK_IN_TRANSACTION = "work-in-transaction"  # results are written, and all is acknowledged
    WORK_IN_TURNS = "work-in-turns"  # entries are renewed, claimed, and acknowledged twice
    DRAIN = "drain"  # read and acknowledge all there is, also what is pending
    DELETE_PENDING = "delete-pending"
    DELETE_UNDELIVERED = "delete-undelivered"
    DELETE_DONE = "delete-done"
    TRIM = "trim"  # the oldest go, in whatever state they are
    TRIM_DONE = "trim-done"  # as careful users trim
    RETENTION = "retention"  # as the operator trims
    DELETE_CONSUMER = "delete-consumer"
    DESTROY = "destroy"
    CREATE = "create"
    SET_POSITION = "set-position"
    CLAIM = "claim"
    CLAIM_BODYLESS = "claim-bodyless"
    LET_IDLE = "let-idle"
    RECOVER = "recover"
    RECOVER_TO_RETRY = "recover-to-retry"
    RETRY_SUSPECT = "retry-suspect"  # one suspect is delivered again, as a copy
    DEAD_LETTER = "dead-letter"
    WORK_ON_COPIES = "work-on-copies"  # of the retry stream
    RECOVER_COPIES = "recover-copies"
    FAIL = "fail"  # entries are delivered, and become dead letters
    REDRIVE = "redrive"  # dead letters go back to the stream
    REDRIVE_TO_RETRY = "redrive-to-retry"
    DISCARD = "discard"
    RESTORE = "restore"
    FLUSH = "flush"
    DELETE_STREAM = "delete-stream"
    RESTART_EMPTY = "restart-empty"
    PROVISION = "provision"  # the operator makes what is missing
    REWRITE = "rewrite"  # of append-only files
    ARCHIVE = "archive"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Act:
    """One step; `pick` chooses among what there is."""

    kind: Kind
    number: int = 0
    group: int = 0
    pick: int = 0
    is_unwatched: bool = False  # the operator observes nothing before the next act

    def __str__(self) -> str:
        unwatched = ", unwatched" if self.is_unwatched else ""
        return f"{self.kind.value}({self.number}, group={self.group}, pick={self.pick}{unwatched})"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that is done, in order, and where."""

    seed: int
    groups: int
    has_operator: bool
    files: Files
    start: str  # where groups begin: `0`, `$`, or `middle`
    acts: tuple[Act, ...]
    server: str = "8.6"

    def without(self, dropped: range) -> History:
        acts = tuple(act for at, act in enumerate(self.acts) if at not in dropped)
        return replace(self, acts=acts)

    def render(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self) | {"acts": [list(astuple(a)) for a in self.acts]}

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: groups={self.groups} operator={self.has_operator} "
            f"files={self.files.value} start={self.start} server={self.server}"
        )
        return "\n".join([head, *(f"  {act}" for act in self.acts)])


def parse_history(found: dict[str, Any]) -> History:
    """What `History.render` made."""
    acts = tuple(Act(Kind(kind), *rest) for kind, *rest in found["acts"])
    return History(**(found | {"acts": acts, "files": Files(found["files"])}))


_ANYWHERE: Final[dict[Kind, int]] = {
    Kind.ADD: 14,
    Kind.READ: 14,
    Kind.ACKNOWLEDGE: 12,
    Kind.WORK: 12,
    Kind.DRAIN: 4,
    Kind.READ_WITHOUT_RECORD: 1,
    Kind.DELETE_PENDING: 4,
    Kind.DELETE_UNDELIVERED: 4,
    Kind.DELETE_DONE: 3,
    Kind.TRIM: 3,
    Kind.TRIM_DONE: 3,
    Kind.DELETE_CONSUMER: 3,
    Kind.DESTROY: 1,
    Kind.CREATE: 2,
    Kind.SET_POSITION: 2,
    Kind.CLAIM: 3,
    Kind.CLAIM_BODYLESS: 2,
    Kind.LET_IDLE: 2,
    Kind.FLUSH: 1,
    Kind.DELETE_STREAM: 1,
    Kind.ARCHIVE: 1,
}
BY_OPERATOR: Final[dict[Kind, int]] = {
    Kind.RETENTION: 6,
    Kind.RECOVER: 8,
    Kind.RECOVER_TO_RETRY: 3,
    Kind.DEAD_LETTER: 4,
    Kind.WORK_ON_COPIES: 4,
    Kind.RECOVER_COPIES: 2,
    Kind.PROVISION: 3,
}
# What is done to dead letters, and that there are some.
ON_DEAD_LETTERS: Final[dict[Kind, int]] = {
    Kind.FAIL: 6,
    Kind.REDRIVE: 3,
    Kind.REDRIVE_TO_RETRY: 2,
    Kind.DISCARD: 2,
    Kind.RESTORE: 2,
}
# Other ways to work on entries, and to try suspects again.
_OTHER_WAYS: Final = {
    Kind.WORK_IN_TRANSACTION: 2,
    Kind.WORK_IN_TURNS: 2,
    Kind.RETRY_SUSPECT: 1,
}
# After a disaster nothing else is seen of what came before: most histories have none.
_DISASTERS: Final = {Kind.FLUSH, Kind.DELETE_STREAM, Kind.RESTART_EMPTY}
_MISHAPS: Final = {Kind.DESTROY, Kind.CREATE, Kind.SET_POSITION}


def make_history(seed: int, *, scale: int = 1, server: str = "8.6") -> History:
    """The history of this number; with `scale` the same acts on so many times the entries."""
    chance = random.Random(seed)
    history = History(
        seed=seed,
        groups=chance.choice((1, 1, 1, 2, 3)),
        has_operator=chance.random() < 0.6,
        files=chance.choice((Files.NONE, Files.NONE, Files.WHOLE, Files.WHOLE, Files.REWRITTEN)),
        start=chance.choice(("0", "0", "0", "$", "middle")),
        acts=(),
        server=server,
    )
    return replace(history, acts=tuple(_acts(history, chance, scale)))


def make_long_history(
    entries: int, *, seed: int = 7, files: Files = Files.WHOLE, server: str = "8.6"
) -> History:
    """So many entries, and every kind of act on them, but for those that lose the stream or group.

    An audit follows each third of the kinds.
    """
    chance = random.Random(seed)
    apart = {Kind.ADD, Kind.READ, Kind.WORK, Kind.AUDIT, Kind.ARCHIVE, Kind.REWRITE}
    kinds = [one for one in Kind if one not in {*apart, *_DISASTERS, Kind.DESTROY, Kind.CREATE}]
    each = max(20, entries // len(kinds))
    acts = []
    for number, kind in enumerate(chance.sample(kinds, len(kinds)), 1):
        acts += [Act(Kind.ADD, each), Act(Kind.READ, each // 3, pick=chance.randrange(1000))]
        # Of a position, such a pick means the end.
        acts += [Act(kind, each // 4, pick=3 * chance.randrange(300)), Act(Kind.WORK, each // 2)]
        if number in {len(kinds) // 3, 2 * len(kinds) // 3, len(kinds)}:
            acts.append(Act(Kind.AUDIT))
    return History(
        seed=seed,
        groups=1,
        has_operator=True,
        files=files,
        start="0",
        acts=tuple(acts),
        server=server,
    )


def _draw_beside(history: History, scale: int) -> Iterator[list[Act]]:
    """Acts between the others, often none; drawn apart, so that the others stay what they were."""
    for_letters = random.Random(f"redrives {history.seed}")
    for_others = random.Random(f"other ways {history.seed}")
    share_of_letters = for_letters.choice((0.0, 0.4, 0.8)) if history.has_operator else 0.0
    drawn = [
        (for_letters, ON_DEAD_LETTERS, share_of_letters),
        (for_others, _OTHER_WAYS, for_others.choice((0.0, 0.2))),
    ]
    while True:
        acts = []
        for chance, weights, share in drawn:
            if chance.random() < share:
                (kind,) = chance.choices(list(weights), list(weights.values()))
                number = chance.choice((1, 2, 5, 20)) * scale
                group = chance.randrange(history.groups)
                acts.append(Act(kind, number, group, chance.randrange(1000)))
        yield acts


def _acts(history: History, chance: random.Random, scale: int) -> Iterator[Act]:
    weights = dict(_ANYWHERE) | (BY_OPERATOR if history.has_operator else {})
    if history.files is Files.NONE:
        weights[Kind.RESTART_EMPTY] = 1
    if history.files is Files.REWRITTEN:
        weights[Kind.REWRITE] = 3
    if chance.random() < 0.7:
        weights = {kind: weight for kind, weight in weights.items() if kind not in _DISASTERS}
    if chance.random() < 0.5:
        weights = {kind: weight for kind, weight in weights.items() if kind not in _MISHAPS}
    kinds, chances = list(weights), list(weights.values())
    unwatched = random.Random(history.seed)  # of its own: the acts stay what they were
    share = unwatched.choice((0.0, 0.3, 0.7))
    beside = _draw_beside(history, scale)
    for _ in range(chance.choice((1, 2, 2, 3))):
        yield Act(Kind.ADD, chance.randrange(20, 80) * scale)
        for kind in chance.choices(kinds, chances, k=chance.randrange(3, 22)):
            yield Act(
                kind,
                chance.choice((2, 5, 10, 20, 40)) * scale,
                chance.randrange(history.groups),
                chance.randrange(1000),
                unwatched.random() < share,
            )
            yield from next(beside)
        yield Act(Kind.AUDIT)
