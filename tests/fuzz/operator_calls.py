"""Every call of the operator to Redis, each ready to be made of a server that answers anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.state import Loss, LossCause, StickyCondition
from pelops.domain.recovery import Action, StreamInScan
from pelops.policy.group.losses import DroppedEntries
from pelops.policy.group.position import PositionChange
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_core.server import Server
from pelops.redis_streams.audit import records
from pelops.redis_streams.group import group_observation, lifecycle, maintenance
from pelops.redis_streams.recovery import (
    consumers,
    lock_lifetimes,
    scan_calls,
    stuck_entries,
    suspects,
)
from tests.audits import a_summary
from tests.integration.recovering import DEAD, LETTER, a_context, a_plan, an_order, settlement
from tests.integration.redis_adapter import an_owner

Call: TypeAlias = Callable[[Server], Awaitable[Any]]

KEYS: Final = derive_keys("orders:events", "processing")
_S: Final = timedelta(seconds=1)
_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FUTURE: Final = datetime(2100, 1, 1, tzinfo=UTC)
_OWNER: Final = an_owner()
_ACT: Final = a_context(KEYS)
_SOME: Final = EntryId(1, 1)
_LOSS: Final = Loss(at_least=1, at_most=2, position=_SOME, seen=_AT)
_GONE: Final = Loss(at_least=1, at_most=2, position=_SOME, seen=_AT, cause=LossCause.STREAM_GONE)


def _look(first: EntryId | None = None, pending: int = 1) -> StreamInScan:
    return StreamInScan(
        name=KEYS.stream, seen=_AT, groups=1, pending=pending, consumers=1, last_delivered_id=_SOME,
        last_generated_id=EntryId.MAX, first_id=first, lowest_pending=EntryId.MIN,
    )  # fmt: skip


async def _drain(pages: Any) -> None:
    async for _ in pages:
        pass


async def _add(server: Server) -> None:
    """Something to observe: entries that a dead consumer holds."""
    name = KEYS.stream
    await server.execute("XADD", name, "MAXLEN", 50, "*", "f", "v", key=name, writes=True)
    read = ("XREADGROUP", "GROUP", KEYS.group, DEAD, "COUNT", 2, "STREAMS", name, ">")
    await server.execute(*read, key=name, writes=True)


async def _settle(server: Server) -> None:
    plan, owner = a_plan(settlement(_SOME), settlement(EntryId(2), Action.DEAD), cutoff=_FUTURE)
    await suspects.settle_suspects(server, _ACT, plan, owner, **LETTER)


async def _offer(server: Server) -> None:
    plan, owner = a_plan(settlement(_SOME), cutoff=_FUTURE)
    await suspects.offer_entries(server, _ACT, plan, owner, reason="it died")


async def _observe_many(server: Server) -> None:
    plain = group_observation.ObservationRequest(KEYS)
    full = group_observation.ObservationRequest(
        KEYS, with_retry=True, with_offers=True, is_deep=True, with_consumers=True
    )
    found = await group_observation.observe_groups(server, [plain, full])
    for one in found.values():
        str(one)


async def _read_audits(server: Server) -> None:
    for one in (await records.read_audits(server, [KEYS], "audit")).values():
        str(one)


async def _open(server: Server) -> None:
    for due in (timedelta(), _S):
        scan = await scan_calls.open_scan(server, KEYS, uid="uid-1", due=due, with_retry=True)
        str(scan)


_state = maintenance
CALLS: Final[Mapping[str, Call]] = {
    "add": _add,
    "provision": lambda s: lifecycle.provision_group(
        s, KEYS, start=EntryId.MIN, owner=_OWNER, with_retry=True, with_offers=True
    ),
    "observe": _observe_many,
    "open_scan": _open,
    "find_idle": lambda s: _drain(
        scan_calls.find_idle(s, _look(), KEYS.group, idle=timedelta(), cursor="")
    ),
    "find_little_idle": lambda s: _drain(
        scan_calls.find_idle(s, _look(pending=30_000), KEYS.group, idle=_S, cursor="1-1")
    ),
    "count_dangling": lambda s: scan_calls.count_dangling(s, _look(), KEYS.group),
    "finish_scan": lambda s: scan_calls.finish_scan(
        s, KEYS, uid="uid-1", target=KEYS.stream, report="{}", cursor=""
    ),
    "read_fields": lambda s: scan_calls.read_fields(s, KEYS, ["a", "b"]),
    "list_consumers": lambda s: consumers.list_consumers(s, KEYS.stream, KEYS.group),
    "list_pending_of": lambda s: _drain(
        consumers.list_pending_of(s, KEYS.stream, KEYS.group, DEAD)
    ),
    "list_owners": lambda s: consumers.list_lowest_owners(s, KEYS.stream, KEYS.group, count=10),
    "count_consumers": lambda s: consumers.count_consumers(s, KEYS.stream, KEYS.group),
    "observe_progress": lambda s: consumers.observe_progress(s, KEYS.stream, KEYS.group, DEAD),
    "remove_consumer": lambda s: consumers.remove_consumer(s, _ACT, "nobody"),
    "recover_owner": lambda s: _drain(
        stuck_entries.recover_owner(s, _ACT, an_order(recovers=False), cutoff=_FUTURE)
    ),
    "recover_entries": lambda s: stuck_entries.recover_entries(
        s, _ACT, an_order(), [(_SOME, timedelta())], locks=("lock",)
    ),
    "settle": _settle,
    "offer": _offer,
    "are_delivered": lambda s: suspects.are_delivered(s, _ACT, [_SOME]),
    "review_offers": lambda s: suspects.review_offers(s, _ACT, withdraws=False),
    "remember": lambda s: _state.remember_position(s, KEYS, _OWNER),
    "delay": lambda s: _state.delay_recovery(
        s,
        KEYS,
        _OWNER,
        PositionChange(before=EntryId(2), after=_SOME, seen=_AT, message="it went back"),
        hold=_S,
    ),
    "record_loss": lambda s: _state.record_loss(s, KEYS, _OWNER, _LOSS, first_id=EntryId(5)),
    "record_flush": lambda s: _state.record_loss(s, KEYS, _OWNER, _GONE, first_id=None),
    "record_dropped": lambda s: _state.record_dropped(
        s, KEYS, _OWNER, DroppedEntries(consumers={"a": 1}, at_most=1, is_quiet=True, observed=_AT)
    ),
    "clear_sticky": lambda s: _state.clear_sticky(s, KEYS, _OWNER, list(StickyCondition)),
    "trim": lambda s: _state.trim_stream(
        s, KEYS, _OWNER, RetentionPlan(max_length=40, max_age=None, message="")
    ),
    "trim_retry": lambda s: _state.trim_retry_stream(s, KEYS, _OWNER),
    "expire": lambda s: _state.expire_dead_letters(s, KEYS, _OWNER, kept=_S),
    "has_retry": lambda s: _state.has_retry_stream(s, KEYS),
    "note_wait": lambda s: _state.note_retry_wait(s, KEYS, _OWNER, forget=False),
    "return_copies": lambda s: _state.return_copies(
        s, KEYS, _OWNER, field_prefix="_", actor="a", reason="r"
    ),
    "repair_lag": lambda s: _state.repair_lag(s, KEYS, "uid-1"),
    "record_audit": lambda s: records.record_audit(s, KEYS, "audit", a_summary(), archived=_SOME),
    "read_audits": _read_audits,
    "acknowledge_audit": lambda s: records.acknowledge_audit(s, KEYS, "audit", 1),
    "record_groups": lambda s: records.record_groups(s, "audit", [("a", "b")]),
    "read_groups": lambda s: records.read_groups(s, "audit"),
    "find_first": lambda s: records.find_first_after(s, KEYS.stream, EntryId.MIN),
    "forget_audit": lambda s: records.forget_audit(s, KEYS, "audit"),
    "forget_groups": lambda s: records.forget_groups(s, "audit"),
    "lifetimes": lambda s: lock_lifetimes.read_lifetimes(s, ["lock", "other"]),
    "existing": lambda s: lock_lifetimes.find_existing(s, ["lock", "other"]),
}
ENDS: Final[Mapping[str, Call]] = {  # after which a group is there no more
    "release": lambda s: lifecycle.release_group(s, KEYS, _OWNER),
    "destroy": lambda s: lifecycle.destroy_group(s, KEYS, _OWNER),
}
