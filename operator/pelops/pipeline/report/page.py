"""One HTML page that holds all it needs: it can be mailed, archived, printed, and read offline.

The markup is in `templates`. No script runs on the page and nothing is fetched; the page itself
forbids both to the browser, in case an escape is ever missing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pelops.domain.audit import AuditVerdict, Certainty, worst_certainty, worst_verdict
from pelops.pipeline.archive.layout import anchor_of, link_to
from pelops.pipeline.report import charts, parts, severity, words
from pelops.pipeline.report.model import GroupLine, GroupReport, Report, Severity
from pelops.pipeline.triage.clusters import ValueHead

MOST_DETAILED: Final = 20  # groups of a page of all streams: the others have theirs elsewhere
MOST_UNFOLDED: Final = 2  # groups of several that are open, if they need a look
_VALUE_SHOWN: Final = 160  # characters
_GRAVE: Final = frozenset({Severity.FAILING, Severity.LOST, Severity.PAYLOAD_GONE})
_PACKAGE: Final = "pelops.pipeline.report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The verdict of one or more groups in a word."""

    verdict: AuditVerdict
    name: str
    glyph: str  # empty: none is shown
    is_grave: bool  # something is lost


def render_page(report: Report) -> str:
    """Return the whole page. Equal reports give equal bytes."""
    groups = {anchor_of(one.summary.stream, one.summary.group): one for one in report.groups}
    lines = severity.sort_lines(
        [*(severity.line_of(one, anchor) for anchor, one in groups.items()), *report.others]
    )
    detailed = [one for one in lines if one.href in groups]
    if report.stream is None and len({one.stream for one in lines}) > 1:
        detailed = detailed[:MOST_DETAILED]
    kept = {one.href for one in detailed}
    style = _style()
    return load_templates().get_template("page.html").render(
        report=report,
        style=style,
        policy=_policy(style),
        verdict=severity.verdict_of_all(report),
        badge=_badge_of_all(report),
        headline=severity.headline_of(report),
        lines=[_linked(one, kept, groups) for one in lines],
        detailed=[(one, groups[one.href]) for one in detailed],
        is_alone=len(lines) == len(detailed) == 1,
        most_unfolded=MOST_UNFOLDED,
    )  # fmt: skip


def _linked(line: GroupLine, kept: set[str], groups: Mapping[str, GroupReport]) -> GroupLine:
    if line.href not in groups:
        return line
    if line.href in kept:
        return replace(line, href=f"#{line.href}")
    return replace(line, href=link_to(line.stream, line.group))


def _badge_of_all(report: Report) -> Badge:
    """Return the badge of the page: unknown at best while some reports cannot be read."""
    lines = severity.lines_of(report)
    if report.unread and severity.verdict_of_all(report) is AuditVerdict.UNKNOWN:
        lines = []
    return _badge(lines, is_whole=True)


def _badge(lines: Sequence[GroupLine], *, is_whole: bool = False) -> Badge:
    """Return the badge of groups. Only the badge of a whole page that is balanced has a tick."""
    verdict = worst_verdict([one.verdict for one in lines]) or AuditVerdict.UNKNOWN
    certainty = worst_certainty([one.certainty for one in lines if one.certainty])
    is_shown = is_whole or verdict is not AuditVerdict.BALANCED
    return Badge(
        verdict=verdict,
        name=words.name_verdict(verdict, certainty),
        glyph=words.VERDICTS[verdict][0] if is_shown else "",
        is_grave=verdict is AuditVerdict.FINDINGS
        and any(found.severity in _GRAVE for one in lines for found in one.findings),
    )


def _as_sentence(text: str) -> str:
    reported = text.strip()
    if not reported:
        return ""
    end = "" if reported[-1] in ".!?…" else "."
    return f"{reported[0].upper()}{reported[1:]}{end}"


def _basis(balanced: Sequence[GroupLine]) -> str:
    """Return how many of the groups are proven and how many inferred."""
    proven = sum(one.certainty is Certainty.PROVEN for one in balanced)
    counts = {Certainty.PROVEN: proven, Certainty.INFERRED: len(balanced) - proven}
    return ", ".join(f"{words.show_count(n)} {of}" for of, n in counts.items() if n)


def _found_text(line: GroupLine) -> str:
    """Return what was found in a group, for the copy of a table."""
    reported = ", ".join(severity.name_of(found) for found in line.findings)
    return (
        f"{line.verdict}: {reported}"
        if reported
        else f"{line.verdict} {line.certainty or ''}".strip()
    )


def _head_of(value: ValueHead) -> tuple[str, bool]:
    """Return the beginning of a value as text, and whether it was cut."""
    text = words.show_bytes(value.head, value.size)
    return text[:_VALUE_SHOWN], value.size > len(value.head) or len(text) > _VALUE_SHOWN


def _finalize(value: object) -> object:
    """Prepare a value of a template for output, before it is escaped."""
    if value is None:
        raise ValueError("a template shows a value that is absent")
    return value if isinstance(value, Markup) else words.make_visible(str(value))


@cache
def load_templates() -> Environment:
    """Return the templates, which escape every value and refuse names that are not defined."""
    made = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "attempts": parts.describe_attempts,
        "band": parts.describe_band,
        "check": parts.describe_check,
        "cluster": parts.describe_cluster,
        "copied": words.copied_cell,
        "count_of": words.count_of,
        "entries": words.count_entries,
        "moment": words.show_moment,
        "moment_of_ms": words.show_ms,
        "number": words.show_count,
        "name": severity.name_of,
        "one_line": words.one_line,
        "reason": parts.describe_reason,
        "seconds": words.show_seconds,
        "sentence": _as_sentence,
        "share": words.show_share,
        "size": words.show_size,
        "span": words.show_span,
    }
    made.globals |= {
        "badge_of": _badge,
        "basis_of": _basis,
        "charts": charts,
        "enumerate": enumerate,
        "found_text_of": _found_text,
        "head_of": _head_of,
        "parts": parts,
        "words": words,
    }
    return made


@cache
def _style() -> Markup:
    text = files(_PACKAGE).joinpath("templates", "page.css").read_text(encoding="utf-8")
    return Markup(" ".join(text.split()))  # a file of this package


def _policy(style: str) -> str:
    """Nothing may be fetched, nothing may run, and only this one style applies."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
