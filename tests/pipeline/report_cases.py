"""Reports for tests: one with something of everything, one without findings, a hostile one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import sin
from typing import TypeVar

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    EXPECTED_STATUSES,
    AuditEvidence,
    AuditFinding,
    AuditSummary,
    AuditVerdict,
    RecoveryTimes,
    Window,
    build_summary,
    decide_verdict,
)
from pelops.pipeline.report.model import (
    AgeBand,
    Comparison,
    CountCheck,
    DeadLetterCluster,
    DeadLetters,
    Duplicate,
    Duplicates,
    Engine,
    EntrySource,
    ExceptionalEntry,
    Exceptions,
    GroupReport,
    Report,
    Spread,
    Timeline,
    Unproven,
)
from pelops.pipeline.report.parts import ReportPart
from pelops.pipeline.triage.clusters import Cluster, LetterExample, ValueHead
from pelops.policy.redrive.payload_shape import describe_shape
from pelops.policy.redrive.triage import build_signature

FIRST_MS = 1_760_000_000_000


def cluster(reason: str, error: str, letters: int, **payload: bytes) -> DeadLetterCluster:
    fields = [(name.encode(), value) for name, value in payload.items()]
    shown = tuple(
        (ValueHead(head=n[:256], size=len(n)), ValueHead(head=v[:256], size=len(v)))
        for n, v in fields[:12]
    )
    example = LetterExample(
        entry_id=EntryId(FIRST_MS + 5, 1),
        root_id=EntryId(FIRST_MS),
        consumer="web-6d5f7c9b8-x2x9z",
        error=error[:1024],
        fields=shown,
        field_count=len(fields),
    )
    made = Cluster(
        signature=build_signature(reason=reason, error=error, shape=describe_shape(fields)),
        letters=letters,
        first_seen_ms=FIRST_MS + 100_000,
        last_seen_ms=FIRST_MS + 700_000,
        consumers=5,
        retries=(0, 0, 3, letters - 3, 0, 0, 0, 0, 0, 0, 0)
        if letters > 3
        else (letters, *[0] * 10),
        returned=0,
        examples=(example, replace(example, entry_id=EntryId(FIRST_MS + 9))),
    )
    return DeadLetterCluster.model_validate(made)


def timeline() -> Timeline:
    arrivals = [round(4_000 + 1_900 * sin(n / 7) + 37 * (n % 5)) for n in range(60)]
    recoveries = [0] * 22 + [310, 402, 160, 51, 18, 7] + [0] * 32
    letters = [2 if n % 9 else 0 for n in range(60)]
    letters[24] = 80
    return Timeline(
        start=datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC),
        step=timedelta(seconds=15),
        arrivals=tuple(arrivals),
        recoveries=tuple(recoveries),
        dead_letters=tuple(letters),
    )


def entries() -> tuple[ExceptionalEntry, ...]:
    lost = [
        ExceptionalEntry(
            entry_id=EntryId(FIRST_MS + 4_211, n),
            status=EntryStatus.LOST,
            why="trimmed before it was delivered",
        )
        for n in range(2)
    ]
    stuck = [
        ExceptionalEntry(
            entry_id=EntryId(FIRST_MS + 77 * n, n),
            status=EntryStatus.STUCK,
            why="pending for longer than 5 min",
            consumer="web-6d5f7c9b8-x2x9z:3f2b8c11-77aa-4c3e-9b0e-1c2d3e4f5a6b",
            idle=timedelta(minutes=133 - 9 * n),
            deliveries=4,
            root_id=EntryId(FIRST_MS - 9) if n == 1 else None,
        )
        for n in range(6)
    ]
    return (*lost, *stuck)


def clusters() -> tuple[DeadLetterCluster, ...]:
    return (
        cluster(
            "HandlerFailed",
            "ConnectTimeout: 10.0.3.7:5432 did not answer within 30 s",
            161,
            order=b"4711",
            body=b'{"id": 4711, "lines": [{"sku": "A-1", "count": 2}], "total": 12.5}',
        ),
        cluster(
            "Undecodable",
            "ValueError: field 'amount' holds '12,50', which is no number",
            41,
            order=b"4712",
            amount=b"12,50",
            note="für Zoë - שלום".encode(),
        ),
        cluster(
            "MaxRetriesExceeded",
            "pod web-6d5f7c9b8-x2x9z ended while it was alone with it, 4 times",
            9,
            order=b"4713",
            image=bytes(range(200)),
        ),
        cluster("PayloadGone", "the body was deleted or trimmed while it was pending", 3),
    )


PartType = TypeVar("PartType", bound=ReportPart)
AT = datetime(2025, 10, 9, 9, 8, 20, tzinfo=UTC)
HOSTILE = (
    '</script><script>alert(1)</script><img src="http://evil/x" onerror=alert(1)>'
    "\u202e\u2066\0\ud800\x1b[31m"
)

COUNTS = {
    EntryStatus.ACKNOWLEDGED_PROVEN: 181_204,
    EntryStatus.ACKNOWLEDGED_INFERRED: 64_310,
    EntryStatus.IN_FLIGHT: 412,
    EntryStatus.UNDELIVERED: 2_871,
    EntryStatus.REQUEUED: 948,
    EntryStatus.STUCK: 37,
    EntryStatus.DEAD_LETTERED: 214,
    EntryStatus.PAYLOAD_GONE: 3,
    EntryStatus.INDETERMINATE: 66,
    EntryStatus.LOST: 2,
}


def window(number: int = 412, produced: int = 250_067) -> Window:
    return Window(
        number=number,
        from_id=EntryId(FIRST_MS + 900_000 * (number - 412)),
        to_id=EntryId(FIRST_MS + 900_000 * (number - 411), 7),
        from_added=0,
        to_added=produced,
        at=AT + timedelta(seconds=900 * (number - 412)),
    )


def summary(counts: dict[EntryStatus, int], **changes: object) -> AuditSummary:
    """A summary that balances."""
    produced = sum(counts.values())
    made = AuditSummary(
        stream="orders:events",
        group="order-processing",
        window=window(produced=produced),
        produced=produced,
        archived=produced,
        counts=counts,
        verdict=AuditVerdict.BALANCED,
        sentence="Every entry is accounted for.",
    )
    return build_summary(replace(made, **changes))  # type: ignore[arg-type]


def full_group() -> GroupReport:
    reported = summary(
        COUNTS,
        open=3_326,
        stuck_earlier=6,
        archived=250_065,
        verdict=AuditVerdict.FINDINGS,
        sentence="181204 of 250067 entries were acknowledged (proven), 64310 were delivered or "
        "passed, and are no longer pending (inferred), 412 are in flight, 37 are stuck, 2871 are "
        "not delivered yet, 214 are dead-lettered, 948 are requeued, 3 are without their body, 2 "
        "are lost, 66 are indeterminate.",
        findings=(
            AuditFinding(
                kind="lost",
                count=2,
                sentence="Two entries were trimmed before they were delivered.",
            ),
            AuditFinding(
                kind="stuck",
                count=37,
                sentence="Pending for longer than 5 min; the oldest is with web-6d5f7c9b8-x2x9z.",
            ),
        ),
        oldest_stuck=timedelta(hours=2, minutes=13),
        recovery=RecoveryTimes(p50=timedelta(milliseconds=40), p99=timedelta(seconds=2)),
        retention_margin=0.93,
        evidence=AuditEvidence.LEDGER,
    )
    return GroupReport(
        summary=reported,
        earlier=tuple(_earlier(number) for number in range(406, 412)),
        checks=(
            CountCheck(name="produced", expected=250_067, found=250_067),
            CountCheck(name="pending", expected=412, found=410),
        ),
        roots={
            **COUNTS,
            EntryStatus.ACKNOWLEDGED_INFERRED: COUNTS[EntryStatus.ACKNOWLEDGED_INFERRED] - 120,
            EntryStatus.REQUEUED: 0,
        },
        timeline=timeline(),
        stuck_ages=(
            AgeBand(at_least=timedelta(minutes=5), below=timedelta(minutes=15), entries=21),
            AgeBand(at_least=timedelta(minutes=15), below=timedelta(hours=1), entries=11),
            AgeBand(at_least=timedelta(hours=1), below=timedelta(hours=6), entries=5),
            AgeBand(at_least=timedelta(hours=6), below=None, entries=0),
        ),
        exceptions=Exceptions(
            count=329,
            counts={
                EntrySource.WINDOW: {
                    EntryStatus.STUCK: 37,
                    EntryStatus.DEAD_LETTERED: 214,
                    EntryStatus.PAYLOAD_GONE: 3,
                    EntryStatus.INDETERMINATE: 66,
                    EntryStatus.LOST: 2,
                },
                EntrySource.EARLIER: {EntryStatus.STUCK: 6},
                EntrySource.COPY: {EntryStatus.DEAD_LETTERED: 1},
            },
            first=entries(),
            path="s3a://audits/statuses",
        ),
        dead_letters=DeadLetters(
            count=214, clusters=clusters(), plan="s3a://audits/plans/order-processing.jsonl"
        ),
        duplicates=Duplicates(
            entries=5,
            first=(
                Duplicate(
                    by="payload",
                    key="9f3c2a7712de0045",
                    copies=4,
                    examples=(EntryId(FIRST_MS, 3), EntryId(FIRST_MS + 40)),
                ),
                Duplicate(by="order_id", key="A-4711", copies=3, examples=(EntryId(FIRST_MS, 9),)),
            ),
        ),
        unproven=(
            Unproven(
                why="no-aof",
                entries=64_310,
                sentence="Redis does not say who acknowledged. Append-only files would prove it.",
            ),
            Unproven(
                why="trimmed-between-looks",
                entries=66,
                sentence="Trimmed and passed between two looks: delivered or lost.",
            ),
        ),
        deliveries=(248_100, 1_410, 380, 120, 57),
        times=(
            Spread(
                name="From arrival to the end",
                entries=245_514,
                p50=timedelta(milliseconds=12),
                p90=timedelta(milliseconds=80),
                p99=timedelta(seconds=1.9),
                most=timedelta(minutes=11),
            ),
            Spread(
                name="From stuck to recovered",
                entries=948,
                p50=timedelta(milliseconds=40),
                p90=timedelta(milliseconds=310),
                p99=timedelta(seconds=2),
                most=timedelta(seconds=74),
            ),
        ),
        comparisons=(
            Comparison(
                kind="never-arrived",
                count=3,
                sentence="Rows of your table that no entry names.",
                examples=("A-17", "A-99", "B-3"),
            ),
        ),
    )


def quiet_group() -> GroupReport:
    """All looked at, nothing found."""
    return GroupReport(
        summary=summary(
            {EntryStatus.ACKNOWLEDGED_PROVEN: 10}, group="mailing", evidence=AuditEvidence.AOF
        ),
        timeline=Timeline(
            start=AT,
            step=timedelta(seconds=15),
            arrivals=(0,) * 60,
            recoveries=(0,) * 60,
            dead_letters=(0,) * 60,
        ),
        stuck_ages=(),
        exceptions=Exceptions(count=0, first=()),
        dead_letters=DeadLetters(count=0, clusters=()),
        duplicates=Duplicates(entries=0, first=()),
    )


def hostile_group(text: str = HOSTILE) -> GroupReport:
    """Every text that other users may have written is an attack, or is this text."""
    evil = cluster(
        text,
        f"Error: {text}",
        7,
        evil=text.encode("utf-8", "replace"),
        big=b"x" * 1_000_000,
        blob=bytes(range(256)),
    )
    wicked = EntryId(2**64 - 1, 2**64 - 1)
    return GroupReport(
        summary=replace(
            full_group().summary,
            stream=text,
            group=text,
            sentence=text,
            findings=(AuditFinding(kind=text[:64], count=1, sentence=text),),
        ),
        exceptions=Exceptions(
            count=1,
            path=text,
            first=(
                ExceptionalEntry(
                    entry_id=wicked,
                    status=EntryStatus.LOST,
                    why=text,
                    consumer=text,
                    idle=timedelta(days=99_999),
                    root_id=EntryId(1),
                ),
            ),
        ),
        checks=(CountCheck(name=text, expected=1, found=2),),
        dead_letters=DeadLetters(count=7, clusters=(evil,), plan=text),
        duplicates=Duplicates(
            entries=1, first=(Duplicate(by=text, key=text, copies=2, examples=(wicked,)),)
        ),
        unproven=(Unproven(why=text, entries=1, sentence=text),),
        times=(
            Spread(
                name=text,
                entries=1,
                p50=timedelta(),
                p90=timedelta(),
                p99=timedelta(),
                most=timedelta(seconds=-3),
            ),
        ),
        comparisons=(Comparison(kind=text, count=1, sentence=text, examples=(text, "=1+1")),),
    )


def report(*groups: GroupReport) -> Report:
    return Report(
        audit="shop/orders",
        at=AT + timedelta(seconds=31),
        pelops="0.1.0",
        archive="s3a://audits",
        engine=Engine(spark="4.1.1", master="local[2]", jobs=6, tasks=80),
        groups=groups,
    )


def changed(part: PartType, **changes: object) -> PartType:
    """The same part of a report with other fields."""
    return part.model_copy(update=changes)


def _earlier(number: int) -> AuditSummary:
    counts = {**COUNTS, EntryStatus.LOST: 0, EntryStatus.STUCK: 412 - number}
    reported = summary(counts, verdict=AuditVerdict.FINDINGS, sentence="Some are stuck.")
    return replace(reported, window=window(number, reported.produced))


def many_groups(number: int = 200) -> tuple[GroupReport, ...]:
    """So many groups of forty streams: most are balanced, some are of every other kind."""
    return tuple(_one_of_many(n) for n in range(number))


def _one_of_many(n: int) -> GroupReport:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 900 + n, EntryStatus.IN_FLIGHT: n % 5}
    if n % 3:
        counts[EntryStatus.ACKNOWLEDGED_INFERRED] = 40
    for every, status in (
        (31, EntryStatus.LOST), (23, EntryStatus.PAYLOAD_GONE), (11, EntryStatus.STUCK),
        (13, EntryStatus.DEAD_LETTERED), (17, EntryStatus.INDETERMINATE),
    ):  # fmt: skip
        if n % every == every - 1:
            counts[status] = 1 + n % 7
    bad = {status: count for status, count in counts.items() if status in _BAD and count}
    verdict = decide_verdict(
        [AuditFinding(kind=s.replace("_", "-"), count=c, sentence="") for s, c in bad.items()]
    )
    reported = summary(
        counts,
        stream=f"shop:{n % 40:02d}:events",
        group=f"team-{n // 40}-consumers",
        verdict=verdict,
        sentence=f"{900 + n} of {sum(counts.values())} entries were acknowledged.",
        evidence=AuditEvidence.LEDGER,
    )
    total = sum(bad.values())
    return GroupReport(
        summary=reported,
        timeline=timeline(),
        stuck_ages=(),
        exceptions=Exceptions(count=total, counts={EntrySource.WINDOW: bad}, first=()),
        dead_letters=DeadLetters(count=0, clusters=()),
        duplicates=Duplicates(entries=0, first=()),
    )


_BAD = set(EntryStatus) - EXPECTED_STATUSES
