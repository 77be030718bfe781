"""Outputs of Pelops on the pages are those of the code: an outdated one is found."""

from __future__ import annotations

import pytest

from tests.docs_pages import Block
from tools.pasted_outputs import find_faults

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
