"""The records of audits beside each group, which the pipeline writes and the operator reads.

An audit of a stream pattern also keeps an index of the groups that it found, because the operator
cannot list them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from pelops.clock import to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, audit_index_key
from pelops.domain.records.audit import (
    ACKNOWLEDGED_PREFIX,
    MOST_AUDITS,
    MOST_GROUPS,
    SUMMARY_LIMIT,
    TOTALS_PREFIX,
    AuditRecord,
    AuditSummary,
    check_audit_name,
    parse_summary,
    render_summary_text,
)
from pelops.domain.records.json_codec import Codec
from pelops.errors import InvalidSpec, PelopsError
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.group.group_observation import wrong_type
from pelops.redis_streams.recovery.scan_calls import refused
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import Flag, Number, Raw


class _Recorded(NamedTuple):
    verdict: Literal["recorded"]
    lost: Number  # entries, in all windows


class _Older(NamedTuple):
    verdict: Literal["older"]
    at_ms: Raw


class _Forgotten(NamedTuple):
    verdict: Literal["forgotten"]
    existed: Flag


_RECORD: Final = load_script("record_audit", _Recorded | _Older | Refusal)
_FORGET: Final = load_script("forget_audit", _Forgotten | Refusal)
_READ: Final = load_script("read_audit", list[Raw | None])
_GROUPS: Final = Codec(tuple[tuple[str, str], ...], "the list of groups", limit=4 * 1024 * 1024)


async def record_audit(
    server: Server,
    keys: GroupKeys,
    name: str,
    summary: AuditSummary,
    *,
    archived: EntryId | None = None,
) -> int | None:
    """Record an audit's summary; returns the number of entries lost in all windows.

    None if the record is of a newer window. Lost entries of earlier windows that this run found
    are counted too. `archived` is the last ledger entry that the audit has archived; the operator
    keeps later ones. Repeats safely: a window is counted once.

    Raises InvalidSpec for a name or a summary that cannot be recorded, WrongType, PermissionDenied.
    """
    text = render_summary_text(summary)
    at_ms = to_ms(summary.window.at)
    call = _RECORD.call(
        keys,
        name=check_audit_name(name),
        at_ms=at_ms,
        lost=summary.lost + summary.lost_earlier,
        archived="-" if archived is None else str(archived),
        summary=text,
        limit=SUMMARY_LIMIT,
        most=MOST_AUDITS,
    )
    answer = _RECORD.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise _refused(keys, answer)
    return answer.lost if isinstance(answer, _Recorded) else None


def _refused(keys: GroupKeys, refusal: Refusal) -> PelopsError:
    if refusal.verdict == "too-large":
        return InvalidSpec(
            f"the summary has more than {SUMMARY_LIMIT} bytes: shorten its sentences"
        )
    if refusal.verdict == "too-many":
        return InvalidSpec(
            f"{MOST_AUDITS} audits already record their results in {keys.audit}: delete one that "
            f"is not used anymore with HDEL {keys.audit} NAME totals:NAME"
        )
    return refused(keys, refusal)


async def forget_audit(server: Server, keys: GroupKeys, name: str) -> bool:
    """Remove the record of an audit; False when there was none. Repeats safely."""
    answer = _FORGET.read(await server.run(_FORGET.call(keys, name=check_audit_name(name))))
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer.existed


async def acknowledge_audit(server: Server, keys: GroupKeys, name: str, lost: int) -> None:
    """Record that a person has acknowledged `lost` lost entries, but none found later.

    Repeats safely. Raises what every call of the adapter raises.
    """
    field = f"{ACKNOWLEDGED_PREFIX}{check_audit_name(name)}"
    await server.execute("HSET", keys.audit, field, lost, key=keys.audit)


async def read_audits(
    server: Server, groups: Iterable[GroupKeys], name: str
) -> dict[GroupKeys, AuditRecord | PelopsError | None]:
    """The record of an audit for each group, in a few round trips, or the error of that group.

    None means that there is no record yet; InvalidSpec, that it is not of this version or damaged.
    """
    asked = list(dict.fromkeys(groups))
    fields = (name, f"{TOTALS_PREFIX}{name}", f"{ACKNOWLEDGED_PREFIX}{name}")
    calls = [_READ.call(keys, fields=fields) for keys in asked]
    answers = await server.run_many(calls)
    return {keys: _read(keys, answer) for keys, answer in zip(asked, answers, strict=True)}


async def record_groups(server: Server, name: str, groups: Iterable[tuple[str, str]]) -> None:
    """Record the groups that an audit of a pattern found, as pairs of stream and group.

    Raises InvalidSpec for more than `MOST_GROUPS`, and what every call of the adapter raises.
    """
    pairs = sorted(set(groups))
    if len(pairs) > MOST_GROUPS:
        raise InvalidSpec(
            f"spec.streamPattern matches {len(pairs)} groups, more than the {MOST_GROUPS} of one "
            "audit: narrow it"
        )
    key = audit_index_key(check_audit_name(name))
    text = _GROUPS.render(tuple(pairs), ensure_ascii=False)
    await server.execute("HSET", key, "groups", text, key=key)


async def read_groups(server: Server, name: str) -> tuple[tuple[str, str], ...]:
    """The groups that `record_groups` recorded; none if it never did.

    Raises InvalidSpec when the field is malformed, WrongType, and what the adapter raises.
    """
    key = audit_index_key(check_audit_name(name))
    (text,) = await server.execute("HMGET", key, "groups", key=key)
    try:
        return _GROUPS.parse(text or b"[]")[:MOST_GROUPS]
    except InvalidSpec as error:
        raise InvalidSpec(f"the key {key} is damaged: {error}; delete it") from error


async def forget_groups(server: Server, name: str) -> None:
    """Remove the groups that `record_groups` recorded. Repeats safely."""
    key = audit_index_key(check_audit_name(name))
    await server.execute("HDEL", key, "groups", key=key)


async def find_first_after(server: Server, stream: str, entry_id: EntryId) -> EntryId | None:
    """The ID of the first entry of a stream after `entry_id`; None when there is none."""
    found = await server.execute("XRANGE", stream, f"({entry_id}", "+", "COUNT", 1, key=stream)
    return parse_entry_id(found[0][0]) if found else None


def _read(keys: GroupKeys, answer: Reply) -> AuditRecord | PelopsError | None:
    if isinstance(answer, PelopsError):
        return answer
    if isinstance(answer, bytes):
        return wrong_type(keys.audit, answer.decode("utf-8", "replace"), "hash")
    try:
        with reading("read_audit.lua"):
            return _parse(_READ.read(answer))
    except PelopsError as error:
        return error


def _parse(values: Sequence[bytes | None]) -> AuditRecord | None:
    if not values or values[0] is None:
        return None
    words = (values[1] or b"").split(b" ")
    return AuditRecord(
        summary=parse_summary(values[0]),
        lost=_number(words[-1]),
        acknowledged=_number(values[2] or b""),
    )


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) <= 19 else 0
