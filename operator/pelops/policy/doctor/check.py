"""A check of `pelops doctor`: a verdict about one thing, from facts that were observed before.

A fact that could not be observed is `Unanswered`. A check that needs it has no verdict, says
why, and keeps no other check from its own verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeAlias, TypeVar

from pelops.domain.condition import shorten

T = TypeVar("T")
FactsT = TypeVar("FactsT")

LISTED: Final = 5  # names in one message
LONGEST: Final = 300  # characters of one of them


class Result(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"  # works, with a risk or a limit that the message names
    ERROR = "error"  # something does not work, or will not
    UNKNOWN = "unknown"  # the check could not be made


class Category(StrEnum):
    """What checks are about, in the order in which they are shown."""

    REDIS = "redis"
    GROUP = "group"
    CLOCKS = "clocks"
    WORKERS = "workers"
    TARGET = "target"
    INSTALLATION = "installation"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A fact that could not be observed, and why."""

    why: str


Fact: TypeAlias = T | Unanswered


class NotAnswered(Exception):
    """A check needs a fact that could not be observed."""


def known(fact: Fact[T]) -> T:
    """Return the fact. Raises NotAnswered if it could not be observed."""
    if isinstance(fact, Unanswered):
        raise NotAnswered(fact.why)
    return fact


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What a check found, in a sentence, and what to do about it."""

    result: Result
    message: str
    hint: str = ""  # empty if there is nothing to do


@dataclass(frozen=True, slots=True)
class Check(Generic[FactsT]):
    """One check over the facts of its category."""

    id: str  # stable: for scripts, and the section of the page
    title: str  # what is checked, for the list of checks without an answer
    run: Callable[[FactsT], CheckVerdict | None]  # None: the check does not apply


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check with its verdict."""

    id: str
    category: Category
    title: str
    result: Result
    message: str
    hint: str = ""


def run_checks(
    category: Category, checks: Iterable[Check[FactsT]], facts: FactsT
) -> list[CheckResult]:
    """Return the verdict of each check that applies. Never raises: a failing check is `unknown`."""
    results = []
    for check in checks:
        verdict = _run(check, facts)
        if verdict is None:
            continue
        results.append(
            CheckResult(
                id=check.id,
                category=category,
                title=check.title,
                result=verdict.result,
                message=verdict.message,
                hint=verdict.hint,
            )
        )
    return results


def _run(check: Check[FactsT], facts: FactsT) -> CheckVerdict | None:
    try:
        return check.run(facts)
    except NotAnswered as error:
        return CheckVerdict(Result.UNKNOWN, str(error))
    except Exception as error:  # a fault of one check must not hide the others
        return CheckVerdict(
            Result.UNKNOWN,
            f"the check failed: {type(error).__name__}",
            "report this as a fault of Pelops",
        )


def ok(message: str) -> CheckVerdict:
    """A verdict with nothing to do."""
    return CheckVerdict(Result.OK, message)


def warning(message: str, hint: str) -> CheckVerdict:
    """A verdict about a risk."""
    return CheckVerdict(Result.WARNING, message, hint)


def error(message: str, hint: str) -> CheckVerdict:
    """A verdict about something that does not work."""
    return CheckVerdict(Result.ERROR, message, hint)


def unknown(message: str, hint: str = "") -> CheckVerdict:
    """A verdict that could not be reached."""
    return CheckVerdict(Result.UNKNOWN, message, hint)


def list_names(names: Iterable[str]) -> str:
    """Return the first names, and the number of the others."""
    found = list(names)
    shown = ", ".join(shorten(one, LONGEST) for one in found[:LISTED])
    more = len(found) - LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, for example `1 pod` or `2 pods`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
