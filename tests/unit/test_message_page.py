"""The page of all messages: complete, up to date, and each problem says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from pelops.domain.condition import MESSAGE_LIMIT
from pelops.kube.event_recorder import NOTE_LIMIT
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, ConditionType, Reason
from tests.message_samples import EVENT, Example, list_examples
from tools.messages import PAGE, main, read_meanings, render_page

ROOT: Final = Path(__file__).parents[2]
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


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text("utf-8") == render_page(EXAMPLES)


def test_a_page_that_differs_is_shown_and_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    page = tmp_path / PAGE
    page.write_text(page.read_text().replace("Redis does not answer.", "Redis is silent."))
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "Redis does not answer." in capsys.readouterr().out


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_without_an_example_is_refused(reason: Reason) -> None:
    others = [example for example in EXAMPLES if example.reason != reason]
    assert len(others) < len(EXAMPLES)
    with pytest.raises(ValueError, match=reason.value):
        render_page(others)


def test_every_type_of_condition_has_an_example() -> None:
    assert {example.shown_in for example in EXAMPLES} == {*ConditionType, EVENT}


def test_a_reason_without_a_meaning_is_refused() -> None:
    source = 'class Words(E):\n    # --- a section\n    # What it means.\n    A = "One"\n'
    assert list(read_meanings(source, "Words")) == [("a section", "One", "What it means.")]
    with pytest.raises(ValueError, match="line 5"):
        list(read_meanings(f'{source}    B = "Two"\n', "Words"))


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
