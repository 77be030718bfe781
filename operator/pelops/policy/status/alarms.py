"""Alarms: conditions for a user to check that have no effect on Ready, present while they hold.

Sticky conditions such as `DataLoss` and `PositionWentBack` are kept in Redis until a user
acknowledges them. While Redis is not observed, alarms stay as they were reported: an outage neither
ends nor starts one.
"""

from __future__ import annotations

from typing import Final

from pelops.api.group.group_status_model import ConditionStatus
from pelops.domain.condition import Condition, render_time
from pelops.domain.quantities import render_bytes, render_seconds
from pelops.domain.records.state import Loss, LossCause, PossibleLoss
from pelops.policy.audit.notices import decide_audit_alarms
from pelops.policy.recovery.retry_stream import UNREAD_AFTER, find_left, is_unread, may_return
from pelops.policy.recovery.scan_interval import NOT_TAKEN_AFTER
from pelops.policy.status.facts import Facts, printable
from pelops.policy.status.reasons import ALARMS, ConditionType, Reason

ACKNOWLEDGE: Final = "pelops.dev/acknowledge"  # annotation: types of alarms, separated by commas


def decide_alarms(facts: Facts) -> list[Condition]:
    """Return the alarms that hold, in the order of `ALARMS`, then those that audits raise."""
    audits = decide_audit_alarms(facts.audits)
    return [*(_reported_before(facts) if facts.stream is None else _seen(facts)), *audits]


def _seen(facts: Facts) -> list[Condition]:
    messages = {
        ConditionType.DATA_LOSS: _loss(facts),
        ConditionType.POSITION_WENT_BACK: _went_back(facts),
        ConditionType.PENDING_ENTRIES_DROPPED: _dropped(facts),
        ConditionType.UNMOVABLE_ENTRIES: _unmovable(facts),
        ConditionType.EVICTION_POSSIBLE: _eviction(facts),
        ConditionType.DEAD_LETTER_STREAM_IN_USE: _letters_in_use(facts),
        ConditionType.UNMATCHED_CONSUMERS: _unmatched(facts),
        ConditionType.RETRY_STREAM_NOT_READ: _unread(facts),
        ConditionType.RETRY_STREAM_NOT_EMPTY: _left(facts),
        ConditionType.OFFERS_NOT_TAKEN: _not_taken(facts),
    }
    return [
        # An alarm has one cause, so its reason is its type.
        Condition(type=kind, status="True", reason=Reason(kind), message=messages[kind])
        for kind in ALARMS
        if messages[kind]
    ]


def _reported_before(facts: Facts) -> list[Condition]:
    status = facts.resource.status
    conditions = {c.type: c for c in (status.conditions or () if status else ())}
    return [
        Condition(
            type=kind,
            status="True",
            reason=conditions[kind].reason,
            message=conditions[kind].message,
        )
        for kind in ALARMS
        if kind in conditions and conditions[kind].status is ConditionStatus.TRUE
    ]


def _loss(facts: Facts) -> str:
    loss = facts.state.loss
    if loss is None:
        return ""
    if loss.cause is not LossCause.TRIMMED:
        return f"{_vanished(facts, loss)} {_how_to_acknowledge(facts, ConditionType.DATA_LOSS)}"
    return (
        f"Entries were trimmed before Redis delivered them to the group: {_bounds(loss)}, after ID "
        f"{loss.position}. They are deleted from Redis: add them again from their source, and find "
        "out what trims the stream (XADD MAXLEN, XTRIM) before the workers have read it. "
        f"{_how_to_acknowledge(facts, ConditionType.DATA_LOSS)}"
    )


def _vanished(facts: Facts, loss: Loss) -> str:
    stream = facts.resource.spec.stream
    when = "from the last status" if loss.observed is None else render_time(loss.observed)
    numbers = f"{loss.undelivered} undelivered, {loss.pending} pending"
    later = (
        f"These numbers are from the last observation ({when}): entries that were added later are "
        "lost too and are not counted, and entries that workers acknowledged later are counted. "
        "Add them again from their source, and find out"
    )
    if loss.cause is LossCause.TAIL_LOST:
        return (
            f"The stream {stream} lost its newest entries, because the server restarted with an "
            "older state (a truncated append-only file, a backup, a replica that lagged): at least "
            f"{loss.undelivered:,} undelivered and at most {loss.pending:,} pending entries are "
            f"lost. {later} why the server lost them (appendfsync, replication)."
        )
    name = stream
    if loss.cause is LossCause.RETRY_STREAM_GONE and facts.keys is not None:
        name = facts.keys.retry
    return (
        f"The stream {name} was deleted with entries that the group had not finished: {numbers}. "
        f"{later} what deleted it (DEL, EXPIRE, FLUSHALL, eviction under maxmemory-policy "
        "allkeys-*)."
    )


def _bounds(loss: Loss) -> str:
    if loss.at_most is None:
        return f"at least {loss.at_least:,}"
    return f"at least {loss.at_least:,}, at most {loss.at_most:,}"


def report_possible_loss(stream: str, loss: PossibleLoss) -> str:
    """Return a message about entries that were trimmed between two observations."""
    at_most = "unknown" if loss.at_most is None else f"at most {loss.at_most:,}"
    return (
        f"Entries of the stream {stream} after ID {loss.after} and before {loss.before} were "
        "trimmed between two observations of the operator, and the position of the group is after "
        "them now. Redis does not record whether they were delivered before. Number of entries "
        f"that may be lost: {at_most}. Compare the results of their processing, and use "
        "spec.retention instead of XADD MAXLEN or XTRIM: it keeps what a group has not acknowledged"
    )


def _went_back(facts: Facts) -> str:
    back = facts.state.back
    if back is None:
        return ""
    since, until = render_time(back.since), render_time(back.delay_until)
    if back.after < back.before:
        change = (
            f"At {since} the position of the group was {back.after}, although it had been "
            f"{back.before}: a failover or a restored backup. Redis delivers the entries between "
            "the two again"
        )
    else:
        change = (
            f"At {since} the stream was that of an earlier time: a failover or a restored backup. "
            f"The group, which had been at {back.before}, has continued to {back.after} since. "
            "Redis can deliver entries again that it had delivered shortly before, and the "
            "entries that were added last can be missing"
        )
    return (
        f"{change}. Entries that were pending before are not recovered before {until}, because "
        "their worker may have finished them. Handlers must be idempotent. "
        f"{_how_to_acknowledge(facts, ConditionType.POSITION_WENT_BACK)}, which also ends that wait"
    )


def _dropped(facts: Facts) -> str:
    dropped = facts.state.dropped
    if dropped is None:
        return ""
    sentence = report_dropped(
        dropped.at_most, dropped.consumer, dropped.consumers, render_time(dropped.observed)
    )
    how = _how_to_acknowledge(facts, ConditionType.PENDING_ENTRIES_DROPPED)
    return f"{sentence}. {how}"


def report_dropped(at_most: int, consumer: str, consumers: int, observed: str) -> str:
    """Return a message about consumers that were deleted with pending entries."""
    name = printable(consumer, 256)
    who = (
        f"Consumer {name} was" if consumers == 1 else f"{consumers:,} consumers ({name}, ...) were"
    )
    return (
        f"{who} deleted with up to {at_most:,} pending entries (last observed at {observed}): "
        "XGROUP DELCONSUMER drops them, so entries that were not acknowledged before are never "
        "delivered again. Find them by the results that their processing did not produce, and "
        "add them again. Do not delete a consumer that has pending entries (XINFO CONSUMERS): "
        "Pelops recovers its entries, and removes the consumers of pods that are gone"
    )


def _unmovable(facts: Facts) -> str:
    report, keys = facts.state.report, facts.keys
    if not facts.recovers or not report.unmovable or keys is None:
        return ""
    example = printable(report.unmovable_example, 41)
    named = f" (for example {example})" if example else ""
    entry = example or "ID"
    limit = render_bytes(facts.resource.spec.recovery.max_entry_bytes)
    return (
        f"Some stuck entries{named} cannot be recovered and stay pending: they are larger than "
        f"spec.recovery.maxEntryBytes ({limit}), have more than 3,900 field-value pairs, or "
        "the stream has reached the highest possible ID. Raise maxEntryBytes if the server has the "
        "memory and time for a copy, or process the entry by hand: read it with "
        f"XRANGE {keys.stream} {entry} {entry}, then XACK {keys.stream} {keys.group} {entry}"
    )


def _eviction(facts: Facts) -> str:
    if not facts.evicts_any_key:
        return ""
    return (
        "The maxmemory-policy of this Redis is allkeys-*: when memory runs out, Redis may delete "
        "the stream, its groups and the dead letters without an error. Set maxmemory-policy to "
        "noeviction or to one of volatile-*"
    )


def _letters_in_use(facts: Facts) -> str:
    stream, keys = facts.stream, facts.keys
    if stream is None or keys is None or facts.is_foreign:
        return ""
    if not (stream.owns_dead_letters and stream.dead_letter_groups):
        return ""
    return (
        f"A consumer group reads the dead-letter stream {keys.dead_letter}, so Pelops does not "
        "delete dead letters after their retention: that group may not have finished them. Destroy "
        f"the group when it is done (XINFO GROUPS {keys.dead_letter}), or name another key in "
        "spec.deadLetter.stream"
    )


def _not_taken(facts: Facts) -> str:
    keys = facts.keys
    if not facts.offers_fail or keys is None:
        return ""
    wait = render_seconds(NOT_TAKEN_AFTER.total_seconds())
    return (
        "Stuck entries were offered to workers that claim entries, and no worker has taken one for "
        f"{wait}: they stay pending. Either no worker is free (add workers), or the workers "
        f"do not claim: they must read the offer stream {keys.offer_stream} "
        "(PELOPS_HANDOVER_STREAM) in the same XREADGROUP as the stream, or claim with XREADGROUP "
        "... CLAIM or XAUTOCLAIM. For other workers set spec.recovery.strategy: Requeue"
    )


def _unmatched(facts: Facts) -> str:
    names = facts.unmatched_consumers
    if not names:
        return ""
    recovery = facts.resource.spec.recovery
    limit = recovery.unmatched_consumer_timeout_seconds or recovery.processing_timeout_seconds
    report = facts.state.report
    which = ", ".join(names)
    if report.is_partial:
        which = (
            f"at least {len(names)}, such as {which} (the group has too many consumers to check "
            "all of them: these own the lowest pending entries)"
        )
    return (
        f"Consumers with pending entries match no pod: {which}. Pelops recovers their entries only "
        f"{render_seconds(limit)} after the last delivery or heartbeat, not immediately when a "
        "worker dies. Put the name of the pod into the consumer name, as in "
        "$(POD_NAME):$(POD_UID); for workers that are not pods, "
        "spec.recovery.unmatchedConsumerTimeoutSeconds shortens the wait"
    )


def _unread(facts: Facts) -> str:
    stream, keys = facts.stream, facts.keys
    if stream is None or keys is None:
        return ""
    may_read, is_ready = facts.may_read, facts.has_ready_worker
    if not is_unread(stream, may_read=may_read, has_ready_worker=is_ready):
        return ""
    return (
        f"Copies of stuck entries have been waiting in the retry stream {keys.retry} for more than "
        f"{UNREAD_AFTER.seconds} s, while workers read {keys.stream} or wait for it: no worker "
        "reads the retry stream. Name both streams in the same XREADGROUP of the workers "
        f"({keys.retry} is PELOPS_RETRY_STREAM) and acknowledge each entry on its own stream, or "
        "set spec.recovery.strategy: Requeue, which moves the copies to the stream"
    )


def _left(facts: Facts) -> str:
    stream, keys, spec = facts.stream, facts.keys, facts.resource.spec
    left = None if stream is None else find_left(stream)
    if stream is None or keys is None or left is None:
        return ""
    problem = (
        f"The retry stream {keys.retry} still contains copies of stuck entries, although "
        "spec.recovery no longer uses it"
    )
    read = f"Let the workers read {keys.retry} as well as {keys.stream} until it is empty"
    if not facts.recovers:
        return (
            f"{problem}. They are not moved while spec.recovery.strategy is Disabled. {read}, or "
            "set strategy: Requeue, which moves them back to the stream"
        )
    if not may_return(spec.recovery, stream):
        return (
            f"{problem}. They are not moved back to {keys.stream}, because its other groups would "
            f"receive them as well. {read}, or set strategy: RetryStream again"
        )
    if spec.suspend or facts.is_dry:
        field = "spec.suspend" if spec.suspend else "spec.recovery.dryRun"
        return f"{problem}. They are moved back to {keys.stream} when {field} is false"
    # Pending copies belong to a worker or a scan. Undelivered ones are moved back soon.
    if left.lag == 0:
        return ""
    return (
        f"{problem}. Pelops moves them back to {keys.stream}. If this condition stays, see the "
        f"log of the operator. {read}"
    )


def _how_to_acknowledge(facts: Facts, kind: ConditionType) -> str:
    metadata = facts.resource.metadata
    return (
        f"Acknowledge this condition with kubectl annotate --overwrite scg -n {metadata.namespace} "
        f"{metadata.name} {ACKNOWLEDGE}={kind.value}"
    )
