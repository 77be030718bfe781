"""Groups that a pattern found in earlier runs, and that are not there any more.

A stream that was deleted or flushed fits no pattern. Without a look into the archive its audit
would just end, and what was open would never be told of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pelops.pipeline.archive.layout import records_path, slug, stream_path, window_numbers
from pelops.pipeline.archive.plan import Plan, parse_plan
from pelops.pipeline.settings import AuditTarget
from pelops.pipeline.stages import PipelineRun

_MISSING: Final = {"group-missing", "stream-missing"}  # findings
_TIMES: Final = 2  # that it is told: by the run that finds it, and once more


def find_gone(
    run: PipelineRun, found: Mapping[str, Sequence[AuditTarget]]
) -> Iterator[AuditTarget]:
    """Of the groups that the archive knows, those that are missing among `found`, for a while.

    Raises ArchiveUnusable.
    """
    fits = glob_expression(run.settings.pattern or "*")
    for plan in _newest_plans(run):
        if fits.fullmatch(plan.stream):
            there = {target.group for target in found.get(plan.stream, ())}
            yield from (
                target
                for target in plan.targets
                if target.group not in there and not _is_reported(run, plan, target.group)
            )


def glob_expression(pattern: str) -> re.Pattern[str]:
    """What Redis' glob-style patterns match, as a regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        part, at = _next_part(pattern, at)
        parts.append(part)
    return re.compile("".join(parts), re.DOTALL)


def _next_part(pattern: str, at: int) -> tuple[str, int]:
    """An expression for what begins here, and where the next part begins."""
    sign = pattern[at]
    if sign == "[":
        return _set_of_letters(pattern, at + 1)
    if sign == "\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1]), at + 2
    return {"*": ".*", "?": "."}.get(sign, re.escape(sign)), at + 1


def _set_of_letters(pattern: str, at: int) -> tuple[str, int]:
    """A set goes to its bracket, or else to the end."""
    is_negated = pattern.startswith("^", at)
    at += is_negated
    letters = ""
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\" and at + 1 < len(pattern):
            at += 1
        elif pattern[at + 1 : at + 2] == "-" and at + 2 < len(pattern):
            letters += "-".join(map(re.escape, sorted(pattern[at : at + 3 : 2])))
            at += 3
            continue
        letters += re.escape(pattern[at])
        at += 1
    if not letters:
        return "." if is_negated else "(?!)", at + 1
    return f"[{'^' * is_negated}{letters}]", at + 1


def _newest_plans(run: PipelineRun) -> Iterator[Plan]:
    """The newest plan of every stream of the archive."""
    storage, base = run.storage, records_path(run.settings.archive)
    for name in storage.list_names(base):
        for number in reversed(window_numbers(storage.list_names(f"{base}/{name}"))):
            path = f"{base}/{name}/window={number}/plan.json"
            found = storage.read_json(path)
            if found is not None:
                yield parse_plan(found, path)
                break


def _is_reported(run: PipelineRun, plan: Plan, group: str) -> bool:
    """Whether the newest windows say that it is missing."""
    base = stream_path(run.settings.archive, plan.stream)
    for number in range(plan.window.number, plan.window.number - _TIMES, -1):
        reported = run.storage.read_json(f"{base}/window={number}/group={slug(group)}.json") or {}
        findings = reported.get("audit", {}).get("summary", {}).get("findings", [])
        if not _MISSING & {one["kind"] for one in findings}:
            return False
    return True
