"""What the demo claims, each claim checked. Pure: facts in, verdicts out."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from demo.counting import FileCounts, add_up

Counts = Mapping[str, FileCounts]  # by path


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim, and whether it holds."""

    claim: str
    holds: bool
    found: str  # the numbers that decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found when the work was done."""

    expected: Counts  # computed directly
    results: Counts  # stored by the workers
    entries: int  # in the stream
    copies: int  # that the operator made, by its ledger
    redriven: int = 0  # entries that were dead letters and were moved back
    pending: int  # of the group, by Redis
    lag: int | None  # of the group, by Redis; None: unknown
    status: Mapping[str, Any]  # of the resource


def check_all(outcome: Outcome) -> list[Check]:
    """Every claim, in the order in which they are printed."""
    return [
        check_entries(outcome),
        check_completeness(outcome),
        check_digests(outcome),
        check_totals(outcome),
        check_redis(outcome),
        check_status(outcome),
        check_ready(outcome.status),
    ]


def check_entries(outcome: Outcome) -> Check:
    """One entry per file, and one for each time that it was tried again."""
    files, copies, redriven = len(outcome.expected), outcome.copies, outcome.redriven
    return Check(
        claim="the stream holds one entry per file, the operator's copies, and redriven ones",
        holds=outcome.entries == files + copies + redriven,
        found=f"{outcome.entries:,} entries, {files:,} files, {copies:,} copies,"
        f" {redriven:,} redriven",
    )


def check_completeness(outcome: Outcome) -> Check:
    """The files with a result are those that were added."""
    missing = outcome.expected.keys() - outcome.results.keys()
    surplus = outcome.results.keys() - outcome.expected.keys()
    return Check(
        claim="every file has a result, and no other file has",
        holds=not missing and not surplus,
        found=f"{len(outcome.results):,} results, {len(missing)} missing, {len(surplus)} surplus"
        + show_example(missing | surplus),
    )


def check_digests(outcome: Outcome) -> Check:
    """The workers read the bytes that are on the disk."""
    wrong = {
        path
        for path, counts in outcome.expected.items()
        if path in outcome.results and outcome.results[path].digest != counts.digest
    }
    return Check(
        claim="the workers read the files on the disk (SHA-256 of each)",
        holds=not wrong and bool(outcome.results),
        found=f"{len(wrong)} files differ{show_example(wrong)}",
    )


def check_totals(outcome: Outcome) -> Check:
    """The sums are those of a direct computation."""
    ours, direct = (
        asdict(add_up(outcome.results.values())),
        asdict(add_up(outcome.expected.values())),
    )
    wrong = [
        f"{key} {ours[key]:,} instead of {direct[key]:,}"
        for key in ours
        if ours[key] != direct[key]
    ]
    agreed = (
        f"{ours['lines']:,} lines, {ours['functions']:,} functions, {ours['classes']:,} classes"
    )
    return Check(
        claim="the totals equal a direct computation",
        holds=not wrong,
        found=", ".join(wrong) or agreed,
    )


def check_redis(outcome: Outcome) -> Check:
    """Redis itself says that the backlog is empty."""
    return Check(
        claim="the backlog in Redis is empty",
        holds=outcome.pending == 0 and outcome.lag == 0,
        found=f"pending {outcome.pending}, lag {_shown(outcome.lag)}",
    )


def check_status(outcome: Outcome) -> Check:
    """The resource's status shows an empty backlog."""
    group = outcome.status.get("group") or {}
    pending, lag = group.get("pending"), group.get("lag")
    return Check(
        claim="the status of the resource shows an empty backlog",
        holds=is_settled(outcome.status),
        found=f"pending {_shown(pending)}, lag {_shown(lag)}",
    )


def check_ready(status: Mapping[str, Any]) -> Check:
    """The resource is Ready."""
    ready = find_condition(status, "Ready")
    return Check(
        claim="the resource is Ready",
        holds=is_ready(status),
        found=f"{ready.get('status', 'Unknown')}, {ready.get('reason', 'no condition')}",
    )


def is_ready(status: Mapping[str, Any]) -> bool:
    """Whether the condition Ready is True."""
    return find_condition(status, "Ready").get("status") == "True"


def is_settled(status: Mapping[str, Any]) -> bool:
    """Whether the status shows an empty backlog, with a lag that is known."""
    group = status.get("group") or {}
    return group.get("pending") == 0 and group.get("lag") == 0 and bool(group.get("lagKnown"))


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty without one."""
    conditions: list[Mapping[str, Any]] = status.get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind), {})


def render_checks(checks: list[Check]) -> str:
    """A line for each, with its verdict first."""
    width = max(len(check.claim) for check in checks)
    return "\n".join(
        f"  {'ok    ' if check.holds else 'FAILED'}  {check.claim:<{width}}  {check.found}"
        for check in checks
    )


def _shown(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def show_example(paths: set[str]) -> str:
    """Words that name the first of them; none without any."""
    return f", such as {min(paths)}" if paths else ""
