"""What the ledger says was done to entries, one row for each act on each entry.

Also the events that concern a group as a whole: losses, trims, changes of its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerEvent, LedgerKind, parse_ledger_event
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive import LAST_HELD
from pelops.pipeline.engine import DataFrame
from pelops.pipeline.engine import functions as F  # noqa: N812
from pelops.pipeline.layout import slug
from pelops.pipeline.snapshot import bounded
from pelops.pipeline.work import Content, Work, run_stage, write_sorted

_ACT: Final = (
    "kind STRING, in_stream STRING, ms BIGINT, seq BIGINT, new_ms BIGINT, new_seq BIGINT,"
    " root_ms BIGINT, root_seq BIGINT, retry_count INT, deliveries BIGINT, idle_ms BIGINT,"
    " reason STRING, consumer STRING, event_ms BIGINT, event_seq BIGINT"
)
_TEXT: Final = 512  # characters kept of a reason
_PAGE: Final = 100  # an event holds up to a batch of entries
# Of the group as a whole: kept in the marker, since there are few.
_TOLD: Final = {
    LedgerKind.DATA_LOSS,
    LedgerKind.TRIMMED,
    LedgerKind.POSITION_CHANGED,
    LedgerKind.GROUP_CREATED,
    LedgerKind.GROUP_ADOPTED,
    LedgerKind.CONSUMER_REMOVED,
}
_MOST_TOLD: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """What a group's ledger says of the group as a whole, since the window began."""

    exists: bool  # there is a ledger
    archived: EntryId  # the last event that was read
    rows: int  # acts on entries
    events: tuple[tuple[str, Mapping[str, str]], ...]  # kind and details, in order
    bookmarks: int

    def of(self, kind: LedgerKind) -> list[Mapping[str, str]]:
        return [details for told, details in self.events if told == kind]


def read_acts(work: Work) -> Content:
    """Archive the acts of every group. Answers what `read_history` reads."""
    plan, watch = work.plan, work.run.watch

    def make(directory: str) -> Content:
        content: Content = {"rows": {}, "groups": {}}
        for target in plan.targets:
            ledger = derive_keys(plan.stream, target.group).ledger
            look = watch.stream(ledger)
            after = plan.ledger_from.get(target.group, EntryId.MIN)
            path = f"{directory}/group={slug(target.group)}"
            events = _read_events(work, ledger, after, look.last_generated)
            events = events.persist()  # Redis is read once
            try:
                rows = write_sorted(
                    work, _acts_of(events), path, "ms", "seq", "event_ms", "event_seq"
                )
                told = _tell(events)
            finally:
                events.unpersist()
            content["rows"][target.group] = rows
            content["groups"][target.group] = {
                "exists": look.exists,
                "archived": str(look.last_generated),
                **told,
            }
        return content

    return run_stage(work, "acts", make)


def read_history(content: Mapping[str, Any], group: str) -> GroupHistory:
    """One group's part of what `read_acts` answered."""
    told = content["groups"][group]
    return GroupHistory(
        exists=told["exists"],
        archived=parse_entry_id(told["archived"]),
        rows=content["rows"][group],
        events=tuple((kind, details) for kind, details in told["events"]),
        bookmarks=told["bookmarks"],
    )


def _read_events(work: Work, ledger: str, after: EntryId, last: EntryId) -> DataFrame:
    given = {
        "stream": ledger,
        "startingId": f"({after}",
        "endingId": str(min(last, LAST_HELD)),
        "duplicateFields": "first",
        "failOnDataLoss": "false",
        "missingStream": "empty",
        "pageSize": str(_PAGE),
        **work.run.watch.place.options,
    }
    reader = work.session.read.format("redis_streams").options(**given)
    events = reader.schema("ms BIGINT, seq BIGINT, fields MAP<BINARY, BINARY>").load()
    return events.where(F.col("seq").isNotNull())


def _acts_of(events: DataFrame) -> DataFrame:
    # Without Arrow, whose way here needs pandas.
    parse = F.udf(_rows, f"ARRAY<STRUCT<{_typed()}>>", useArrow=False)
    acts = events.select(F.explode(parse("ms", "seq", "fields")).alias("act"))
    return acts.select("act.*")


def _typed() -> str:
    return ", ".join(part.strip().replace(" ", ": ", 1) for part in _ACT.split(","))


def _rows(ms: int, seq: int, fields: Mapping[bytes, bytes]) -> list[tuple[Any, ...]]:
    event = _event(ms, seq, fields)
    details = event.details
    return [
        (
            event.kind, details.get("stream"), *bounded(one.entry_id),
            *(bounded(one.new_id) if one.new_id else (None, None)), *bounded(one.root_id),
            one.retry_count, one.deliveries, round(one.idle.total_seconds() * 1000),
            details.get("reason", "")[:_TEXT], details.get("consumer", ""), ms, seq,
        )
        for one in event.entries
    ]  # fmt: skip


def _event(ms: int, seq: int, fields: Mapping[bytes, bytes]) -> LedgerEvent:
    pairs = {bytes(name): bytes(value) for name, value in fields.items()}
    return parse_ledger_event(EntryId(ms, seq), pairs)


def _tell(events: DataFrame) -> Content:
    kind = F.col("fields")[F.lit(b"kind")].cast("string")
    of_group = events.where(kind.isin([str(one) for one in _TOLD]))
    rows = of_group.coalesce(1).sort("ms", "seq").limit(_MOST_TOLD).collect()
    told = [_event(*row) for row in rows]
    return {
        "events": [[one.kind, {**one.details, "event_id": str(one.entry_id)}] for one in told],
        "bookmarks": events.where(kind == str(LedgerKind.BOOKMARK)).coalesce(1).count(),
    }
