"""Where dead letters are that somebody moved: redriven, discarded or restored.

The ledger names a letter by its ID in the stream that it was moved from, and by its new ID. A
letter can be moved several times in one window: discarded, restored and discarded again. Its place
is then that after the last move. IDs of the dead-letter stream and of the stream of discarded
letters may be equal, so a letter is known by its ID and by which of the two streams holds it.
"""

from __future__ import annotations

from typing import Final

from pelops.domain.ledger import LedgerKind
from pelops.domain.naming import derive_keys
from pelops.pipeline.engine.sql import DataFrame
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.reconcile.ledger_history import LETTER_MOVES, GroupHistory
from pelops.pipeline.stages import WindowWork, remove_part, write_sorted

_PART: Final = "moves"
_LETTER: Final = ("is_discarded", "letter_ms", "letter_seq")
_PLACE: Final = ("move", "moved_ms", "moved_seq", "in_retry", "moved_at_ms", "moved_at_seq")
_NEXT: Final = dict(zip(_LETTER, ("next_is_discarded", "next_ms", "next_seq"), strict=True))
_THEN: Final = {name: f"then_{name}" for name in _PLACE}


def find_letter_moves(
    work: WindowWork, history: GroupHistory, acts: str, group: str, directory: str
) -> int:
    """Write the place of each letter that was moved; answers how many. `acts` is a part."""
    if not history.moves:
        return 0
    path = f"{directory}/{_PART}"
    moves = _last_moves(work, work.read(acts), group)
    steps: list[str] = []
    is_done = not history.restores  # only a letter that was restored is moved again
    while not is_done:
        steps.append(f"{path}.{len(steps)}")
        write_sorted(work, moves, steps[-1], *_LETTER)
        moves, is_done = _step(work.load(steps[-1]).select(*_LETTER, *_PLACE))
    rows = write_sorted(work, moves, path, *_LETTER)
    for written in steps:
        remove_part(work, written)
    return rows


def read_letter_moves(work: WindowWork, directory: str) -> DataFrame:
    """What `find_letter_moves` has written."""
    return work.load(f"{directory}/{_PART}").select(*_LETTER, *_PLACE)


def follow_letters(frame: DataFrame, moves: DataFrame) -> DataFrame:
    """Rows of dead-lettered entries, with the place of their letters by now.

    Reads and replaces `act`, `new_ms`, `new_seq` and `act_at_ms`; adds `move`, null for a letter
    that was not moved, and `in_retry`: whether the copy of a redriven one is in the group's retry
    stream. An entry whose body was gone stays `payload-gone`, whatever happens to its letter.
    """
    is_discarded = F.col("act") == str(LedgerKind.DISCARDED)
    is_letter = is_discarded | (F.col("act") == str(LedgerKind.DEAD_LETTERED))
    asked = frame.withColumns(
        {
            "is_discarded": is_discarded,
            "letter_ms": F.when(is_letter, F.col("new_ms")),
            "letter_seq": F.when(is_letter, F.col("new_seq")),
        }
    )
    found = asked.join(moves, list(_LETTER), "left")
    is_moved = F.col("move").isNotNull()
    is_restored = F.col("move") == str(LedgerKind.RESTORED)
    act = F.when(is_restored, F.lit(str(LedgerKind.DEAD_LETTERED))).otherwise(F.col("move"))
    replaced = {
        "act": F.when(is_moved, act).otherwise(F.col("act")),
        "new_ms": F.when(is_moved, F.col("moved_ms")).otherwise(F.col("new_ms")),
        "new_seq": F.when(is_moved, F.col("moved_seq")).otherwise(F.col("new_seq")),
        "act_at_ms": F.when(is_moved, F.col("moved_at_ms")).otherwise(F.col("act_at_ms")),
    }
    used = ("moved_ms", "moved_seq", "moved_at_ms", "moved_at_seq")
    return found.withColumns(replaced).drop(*_LETTER, *used)


def _last_moves(work: WindowWork, acts: DataFrame, group: str) -> DataFrame:
    """The last move of each letter from where it was."""
    retry = derive_keys(work.plan.stream, group).retry
    moves = acts.where(F.col("kind").isin([str(kind) for kind in LETTER_MOVES])).select(
        (F.col("kind") == str(LedgerKind.RESTORED)).alias("is_discarded"),
        F.col("ms").alias("letter_ms"),
        F.col("seq").alias("letter_seq"),
        F.col("kind").alias("move"),
        F.col("new_ms").alias("moved_ms"),
        F.col("new_seq").alias("moved_seq"),
        F.coalesce(F.col("target") == retry, F.lit(False)).alias("in_retry"),
        F.col("event_ms").alias("moved_at_ms"),
        F.col("event_seq").alias("moved_at_seq"),
    )
    last = F.max_by(F.struct(*_PLACE), F.struct("moved_at_ms", "moved_at_seq"))
    found = moves.groupBy(*_LETTER).agg(last.alias("last"))
    return found.select(*_LETTER, *(F.col(f"last.{name}").alias(name) for name in _PLACE))


def _step(moves: DataFrame) -> tuple[DataFrame, bool]:
    """Each letter twice as many moves further; whether none of them was moved any further.

    A move counts only after the one before it, so that no ledger leads in a circle.
    """
    may_go_on = F.col("move") != str(LedgerKind.REDRIVEN)
    target = {
        "next_is_discarded": F.col("move") == str(LedgerKind.DISCARDED),
        "next_ms": F.when(may_go_on, F.col("moved_ms")),
        "next_seq": F.when(may_go_on, F.col("moved_seq")),
    }
    then = moves.withColumnsRenamed(_NEXT | _THEN)
    joined = moves.withColumns(target).join(then, list(_NEXT.values()), "left")
    later = F.struct("then_moved_at_ms", "then_moved_at_seq")
    goes_on = F.coalesce(later > F.struct("moved_at_ms", "moved_at_seq"), F.lit(False))
    further = {name: F.when(goes_on, F.col(_THEN[name])).otherwise(F.col(name)) for name in _PLACE}
    is_done = not joined.where(goes_on).count()
    return joined.withColumns(further).select(*_LETTER, *_PLACE), is_done
