"""The output of `pelops doctor`: text for people, JSON for scripts and for merging two runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from pelops.cli.console import Console
from pelops.cli.display.tables import Style, Styled
from pelops.cli.doctor.examination import worst_of
from pelops.cli.errors import CommandFailed
from pelops.domain.site import page_url
from pelops.policy.doctor.check import Category, CheckResult, Result, count

API_VERSION: Final = "cli.pelops.dev/v1alpha1"
KIND: Final = "DoctorReport"
MOST_CHECKS: Final = 200  # that a report of another process may have
LONGEST: Final = 4_000  # characters of a text in it
_MARKS: Final = {
    Result.OK: Styled("√", Style.GOOD),
    Result.WARNING: Styled("‼", Style.WARNING),
    Result.ERROR: Styled("\N{MULTIPLICATION SIGN}", Style.BAD),
    Result.UNKNOWN: Styled("?", Style.FAINT),
}


def page_of(check: str) -> str:
    """Return the address of the section about a check."""
    return page_url("runbook/doctor", section=check)


def render_document(results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the report as JSON has it."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "result": worst_of(results).value,
        "checks": [
            {
                "id": check.id,
                "category": check.category.value,
                "title": check.title,
                "result": check.result.value,
                "message": check.message,
                "hint": check.hint,
                "page": page_of(check.id),
            }
            for check in results
        ],
    }


def parse_document(text: str) -> list[CheckResult]:
    """Return the checks of a report. Raises CommandFailed if it is none."""
    try:
        document = json.loads(text)
        if document["kind"] != KIND:
            raise ValueError("another kind")
        return [_parse_check(one) for one in document["checks"][:MOST_CHECKS]]
    except (ValueError, TypeError, KeyError) as error:
        raise CommandFailed(
            "the operator did not answer with a report: it may be of another version"
        ) from error


def _parse_check(check: Mapping[str, Any]) -> CheckResult:
    texts = {name: str(check[name])[:LONGEST] for name in ("id", "title", "message", "hint")}
    return CheckResult(
        **texts, category=Category(check["category"]), result=Result(check["result"])
    )


def print_text(results: Sequence[CheckResult], console: Console, *, is_short: bool) -> None:
    """Print each check under its category; with `is_short` only those that did not pass."""
    shown = [one for one in results if not (is_short and one.result is Result.OK)]
    for category, checks in groupby(shown, key=lambda one: one.category):
        console.line(Styled(category.value, Style.STRONG))
        console.line("-" * len(category.value))
        for one in _join_unanswered(checks):
            _print_check(one, console)
        console.line()
    console.line(*_summarize(results))


def _print_check(check: CheckResult, console: Console) -> None:
    console.line(_MARKS[check.result], " ", check.message, indent=2)
    if check.hint:
        console.line("    ", check.hint, indent=4)
    if check.result in {Result.WARNING, Result.ERROR}:
        console.line("    ", Styled(page_of(check.id), Style.FAINT))


def _join_unanswered(checks: Iterable[CheckResult]) -> list[CheckResult]:
    """The checks; those without an answer for the same reason become one line."""
    joined: dict[str, CheckResult] = {}
    for check in checks:
        key = check.id if check.result is not Result.UNKNOWN or check.hint else f"? {check.message}"
        known = joined.get(key)
        titles = check.title if known is None else f"{known.title}, {check.title}"
        joined[key] = _with_title(check, titles)
    return [_explain(one) for one in joined.values()]


def _with_title(check: CheckResult, title: str) -> CheckResult:
    return CheckResult(
        id=check.id,
        category=check.category,
        title=title,
        result=check.result,
        message=check.message,
        hint=check.hint,
    )


def _explain(check: CheckResult) -> CheckResult:
    if check.result is not Result.UNKNOWN:
        return check
    return CheckResult(
        id=check.id,
        category=check.category,
        title=check.title,
        result=check.result,
        message=f"not checked: {check.title}: {check.message}",
        hint=check.hint,
    )


def _summarize(results: Sequence[CheckResult]) -> tuple[str | Styled, ...]:
    mark = _MARKS[worst_of(results)]
    counts = {result: sum(one.result is result for one in results) for result in Result}
    if counts[Result.UNKNOWN] == len(results):
        unanswered = count(len(results), "check has", "checks have")
        return mark, f" nothing could be checked: {unanswered} no answer"
    words = [
        count(counts[Result.ERROR], "error"),
        count(counts[Result.WARNING], "warning"),
        f"{counts[Result.OK]} passed",
    ]
    if counts[Result.UNKNOWN]:
        words.append(f"{counts[Result.UNKNOWN]} not checked")
    return mark, " ", ", ".join(words)
