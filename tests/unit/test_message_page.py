"""The page of all messages: complete, up to date, and each problem says what to do."""

from __future__ import annotations

import re
from typing import Final

from pelops.domain.condition import MESSAGE_LIMIT
from pelops.kube.event_recorder import NOTE_LIMIT
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, ConditionType, Reason
from tests.message_samples import EVENT, Example, list_examples

EXAMPLES: Final = list_examples()
# What the reader is asked to do, or that Pelops continues without it.
ACTION: Final = re.compile(
    r"\b([Aa]cknowledge|[Aa]dd|[Cc]heck|[Cc]hoose|[Cc]orrect|[Cc]reate|[Dd]elete|[Dd]estroy"
    r"|[Dd]o not|[Ff]ind out|[Gg]rant|[Ii]nstall|[Ll]et|[Mm]ount|[Nn]ame|[Pp]ut|[Rr]aise|[Rr]emove"
    r"|[Rr]ename|[Rr]un|[Ss]ee|[Ss]et|[Ss]top|[Uu]se|continues? "
    r"|retries automatically|writes it again)\b"
)
GOOD_WHEN_FALSE: Final = {
    # The number of workers is left to others, or held for a reason that another condition gives.
    *(Reason.SCALING_DISABLED, Reason.BACKLOG_UNKNOWN),
    Reason.CREATING,
    # A redrive continues by itself.
    *(Reason.RUNNING, Reason.TRIAL_RUNNING, Reason.BACKLOG_TOO_LARGE, Reason.AWAITING_OUTCOMES),
}


def is_problem(example: Example) -> bool:
    if example.shown_in == EVENT:
        return example.status == "Warning"
    if example.shown_in in (*ALARMS, *AUDIT_ALARMS):
        return True
    return example.status == "False" and example.reason not in GOOD_WHEN_FALSE


def test_every_type_of_condition_has_an_example() -> None:
    assert {example.shown_in for example in EXAMPLES} == {*ConditionType, EVENT}


def test_every_problem_says_what_to_do() -> None:
    problems = [example for example in EXAMPLES if is_problem(example)]
    assert len(problems) > 100
    assert [one for one in problems if not ACTION.search(one.message)] == []


def test_every_message_is_a_sentence_that_is_shown_in_full() -> None:
    assert [one for one in EXAMPLES if not _is_sentence(one)] == []


def _is_sentence(example: Example) -> bool:
    message = example.message
    begins = message[0].isupper() or message[0].isdigit() or message.startswith("spec.")
    limit = NOTE_LIMIT if example.shown_in == EVENT else MESSAGE_LIMIT
    is_tidy = "  " not in message and ".." not in message.replace("...", "")
    return begins and is_tidy and len(message.encode()) <= limit
