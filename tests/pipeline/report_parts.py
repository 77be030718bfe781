"""What reports of tests are made of: clusters of dead letters, entries, a timeline."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import sin

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.pipeline.report.model import DeadLetterCluster, ExceptionalEntry, Timeline
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
