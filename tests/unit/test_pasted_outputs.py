"""Outputs of Pelops on the pages are those of the code: an outdated one is found."""

from __future__ import annotations

import pytest

from tests.docs_pages import Block
from tests.message_samples import list_examples
from tools.pasted_outputs import compile_message, find_faults

LIMITED = (
    "Backlog 200: 200 undelivered + 0 pending with live workers; 40 workers wanted by backlog; "
    "limited to 3 by maxReplicas"
)
DEAD_LETTERED = (
    "Moved 1 entry of consumer checks-85b4-5pc9r:dcf2 to the dead-letter stream, because "
    "processing failed more often than spec.recovery.maxRetries allows. See the last fields of "
    "each dead letter for the reason"
)
COLUMNS = "NAME     READY   REASON   LAG   PENDING   STUCK   OLDEST   DLQ   REPLICAS"


def faults(code: str) -> list[str]:
    block = Block(page="p.md", line=5, language="text", code=code)
    return [fault.removeprefix("p.md:") for fault in find_faults(block)]


@pytest.mark.parametrize(
    "code",
    [
        LIMITED,
        f"ScalingActive=True Limited: {LIMITED}",
        f"True Limited: {LIMITED}",
        f"2026-11-23T08:09:22Z {LIMITED}",
        LIMITED.replace("; 40", ";\n40"),
        f"3s   Warning   DeadLettered   StreamConsumerGroup/checks   {DEAD_LETTERED}",
        f"event  Warning  DeadLettered  {DEAD_LETTERED}",
        f"{COLUMNS}\nchecks   True    Ready    0     0         0                3     1/1",
        f"{COLUMNS}   AGE",
        f"{COLUMNS}   STREAM",
        "NAME   READY   STATUS   RESTARTS   AGE\nw-1    0/1     Error    3          2m",
        "$ pelops status\nNAME  READY  REASON  LAG  PENDING  DEAD  WORKERS  AGE",
        "XACK orders:events order-processing 1760000000000-0",
        'kind requeued  reason "pod w-1 was deleted after its containers had ended"  trigger scan',
    ],
)
def test_what_pelops_prints_now_passes(code: str) -> None:
    assert faults(code) == []


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (f"a\n\nTrue Limited: {LIMITED.replace(' workers wanted', ' wanted')}", "7: no message of"),
        (f"True Scaled: {LIMITED}", "5: no message of Scaled"),
        (f"True MaxReplicas: {LIMITED}", "5: there is no reason MaxReplicas"),
        (LIMITED.replace("Backlog", "backlog"), "5: no message reads"),
        (f"1s   Normal   Requeued   StreamConsumerGroup/a   {DEAD_LETTERED}", "5: no message of"),
        (DEAD_LETTERED.partition(". See")[0], "5: no message reads"),
        (COLUMNS.replace("DLQ", "DEAD"), "5: no kind has the columns"),
        (
            "$ kubectl get saudit\nNAME   WINDOW   VERDICT   LOST   AGE",
            "6: no kind has the columns",
        ),
        (f"{COLUMNS}\nchecks   False   Taken    0", "6: there is no reason Taken"),
    ],
)
def test_an_outdated_line_is_found_with_its_place(code: str, fault: str) -> None:
    (found,) = faults(code)
    assert found.startswith(fault)


def test_every_example_matches_its_own_pattern() -> None:
    examples = {example.message for example in list_examples()}
    assert all(compile_message(message).fullmatch(message) for message in examples)
