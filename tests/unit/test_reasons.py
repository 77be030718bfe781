"""Reasons, condition types and messages are in docs/reference, and problems say what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from pelops.domain.condition import MESSAGE_LIMIT
from pelops.kube.event_recorder import NOTE_LIMIT
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, ConditionType, Reason, fit_reason
from tests.message_samples import EVENT, Example, list_examples

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "reference" / name for name in ("conditions.md", "events.md")]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SOURCES = [ROOT / "operator" / "pelops" / part for part in ("policy", "controller")]


@pytest.mark.parametrize("word", [*ConditionType, *Reason])
def test_the_page_about_conditions_explains(word: str) -> None:
    assert f"`{word}`" in TEXT


def test_the_page_names_no_reason_that_the_code_cannot_give() -> None:
    first_cells = re.findall(r"^\| (`.*?) \|", TEXT, flags=re.MULTILINE)
    named = {word for cell in first_cells for word in re.findall(r"`(\w+)`", cell)}
    assert named <= {*ConditionType, *Reason}


def test_reasons_are_words_that_kubernetes_accepts() -> None:
    for reason in Reason:
        assert fit_reason(reason) == reason


@pytest.mark.parametrize("found", ["", "no word", "x" * 200, "-", "Déjà", "a-b", "Ends:"])
def test_a_reason_that_cannot_be_shown_becomes_waiting(found: str) -> None:
    assert fit_reason(found) == Reason.CONTAINER_WAITING


# A reason in the code: a word in quotes, also behind `else`. A ledger or a dead letter holds a
# sentence instead, which no program matches; new["reason"] reads a reason.
LITERAL = re.compile(r"""\breason=(?:[^,()\[\n]* else )?["']\w*["']""")


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('Finding(reason="Other")', True),
        ("Finding(reason=Reason.A if it else 'Other')", True),
        ('Finding(reason="a sentence of a ledger")', False),
        ('Finding(reason=new["reason"])', False),
        ("Finding(reason=Reason.OTHER)", False),
    ],
)
def test_a_reason_of_its_own_is_found(code: str, is_found: bool) -> None:
    assert bool(LITERAL.search(code)) is is_found


def test_no_module_has_a_reason_of_its_own() -> None:
    own = [
        f"{path.name}: {found}"
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
        for found in LITERAL.findall(path.read_text(encoding="utf-8"))
    ]
    assert own == []


# --- The page of all messages: complete, up to date, and each problem says what to do


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
