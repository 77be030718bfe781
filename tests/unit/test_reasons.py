"""Every reason and condition type that people may meet is in docs/reference."""

import re
from pathlib import Path

import pytest

from pelops.policy.status.reasons import ConditionType, Reason, fit_reason

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
