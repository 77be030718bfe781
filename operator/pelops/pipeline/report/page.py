"""One HTML page that holds all it needs: it can be mailed, archived, printed, and read offline.

The markup is in `templates`. The page has no scripts and fetches nothing; its policy forbids
both, in case an escape is ever missing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import EXPECTED_STATUSES, AuditVerdict, Certainty
from pelops.pipeline.report import charts, sentences, words
from pelops.pipeline.report.findings import ReportFinding, Severity
from pelops.pipeline.report.model import EntrySource, GroupReport, Report
from pelops.pipeline.report.overview import GroupLine, describe_basis, list_totals, sort_lines
from pelops.pipeline.report.places import anchor_of, link_to
from pelops.pipeline.report.words import count_entries, count_of, show_count, show_span

MOST_DETAILED: Final = 20  # groups with details on the page of all streams
MOST_UNFOLDED: Final = 2  # groups that are unfolded, if they need attention
_GRAVE: Final = frozenset({Severity.FAILING, Severity.LOST, Severity.PAYLOAD_GONE})
_PACKAGE: Final = "pelops.pipeline.report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A verdict in a word, with its style."""

    verdict: AuditVerdict
    name: str
    glyph: str  # empty: not shown
    is_grave: bool  # something is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """A part of a group's report; one with content is folded under its title."""

    name: str  # suffix of its anchor, and name of its template
    title: str
    gist: str  # a summary beside the title
    is_shown: bool = True
    is_checked: bool = True  # if not shown: whether it was checked
    nothing: str = ""  # what was checked, if nothing was found


def render_page(report: Report) -> str:
    """Return the whole page. Equal reports give equal bytes."""
    groups = {anchor_of(one.summary.stream, one.summary.group): one for one in report.groups}
    lines = sort_lines([*(one.line(anchor) for anchor, one in groups.items()), *report.others])
    detailed = [one for one in lines if one.href in groups]
    if report.stream is None and len({one.stream for one in lines}) > 1:
        detailed = detailed[:MOST_DETAILED]
    kept = {one.href for one in detailed}
    style = _style()
    is_unread = report.unread and report.verdict is AuditVerdict.UNKNOWN
    return load_templates().get_template("page.html").render(
        report=report,
        style=style,
        policy=_policy(style),
        badge=_badge(report.verdict, report.certainty, [] if is_unread else lines, is_whole=True),
        headline=_headline(report, lines),
        lines=[_linked(one, kept, groups) for one in lines],
        detailed=[(one, groups[one.href]) for one in detailed],
        is_alone=len(lines) == len(detailed) == 1,
        most_unfolded=MOST_UNFOLDED,
    )  # fmt: skip


def list_parts(group: GroupReport) -> list[PagePart]:
    """Return the parts of a group's report, in their order on the page."""
    return list(_parts(group))


def find_worst_part(shown: Sequence[PagePart], findings: Sequence[ReportFinding]) -> str:
    """Return the name of the part that shows the worst finding; empty without any."""
    names = {part.name for part in shown}
    return next((one.part for one in findings if one.part in names), "")


def count_unlisted(group: GroupReport) -> int:
    """Return the number of entries of the window that need attention and are not listed."""
    if group.exceptions is None:
        return 0
    counts = group.summary.counts
    known = sum(counts.get(status, 0) for status in EntryStatus if status not in EXPECTED_STATUSES)
    return max(0, known - sum(group.exceptions.counts.get(EntrySource.WINDOW, {}).values()))


def _parts(group: GroupReport) -> Iterator[PagePart]:
    summary, exceptions, letters = group.summary, group.exceptions, group.dead_letters
    unlisted = count_unlisted(group)
    listed, count = (0, 0) if exceptions is None else (len(exceptions.first), exceptions.count)
    worst = f", the worst {show_count(listed)} listed" if 0 < listed < count else ""
    yield PagePart(
        name="entries", title="Entries to check", gist=count_entries(count + unlisted) + worst,
        nothing="entries to check", is_shown=bool(unlisted or count),
        is_checked=exceptions is not None,
    )  # fmt: skip
    clusters = count_of(0 if letters is None else len(letters.clusters), "cluster")
    count = 0 if letters is None else letters.count
    yield PagePart(
        name="letters", title="Dead letters", gist=f"{show_count(count)} in {clusters}",
        nothing="dead letters", is_shown=bool(count), is_checked=letters is not None,
    )  # fmt: skip
    oldest = summary.oldest_stuck
    held = (summary.stuck_earlier, *(band.entries for band in group.stuck_ages or ()))
    yield PagePart(
        name="stuck", title="Ages of stuck entries",
        gist=f"the oldest for {show_span(oldest)}" if oldest is not None else "",
        nothing="stuck entries", is_shown=any((summary.counts.get(EntryStatus.STUCK, 0), *held)),
        is_checked=group.stuck_ages is not None,
    )  # fmt: skip
    if group.comparisons:
        differences = count_of(sum(one.count for one in group.comparisons), "difference")
        yield PagePart(name="compared", title="Compared with your table", gist=differences)
    count = 0 if group.duplicates is None else group.duplicates.entries
    yield PagePart(
        name="duplicates", title="Duplicates", nothing="duplicates",
        gist=f"{count_entries(count)} beyond the first of each",
        is_shown=bool(count), is_checked=group.duplicates is not None,
    )  # fmt: skip
    outcome = f"outcome of {count_entries(summary.produced)}"
    yield PagePart(name="balance", title="Balance", gist=outcome)
    inferred = summary.counts.get(EntryStatus.ACKNOWLEDGED_INFERRED, 0)
    limits = count_of(len(group.unproven), "limit")
    yield PagePart(
        name="unproven", title="What could not be proven",
        gist=f"{count_entries(inferred)} inferred" if inferred else limits,
        nothing="statements without proof", is_shown=bool(inferred or group.unproven),
    )  # fmt: skip
    is_timed = group.timeline is not None or any(one.entries for one in group.times)
    recovery = summary.recovery
    yield PagePart(
        name="time", title="Over time",
        gist="" if recovery is None else f"recovered within {show_span(recovery.p99)} (99 %)",
        nothing="times", is_shown=is_timed or any(group.deliveries or ()), is_checked=False,
    )  # fmt: skip
    if group.earlier:
        before = f"{count_of(len(group.earlier), 'window')} before this one"
        yield PagePart(name="windows", title="Windows", gist=before)


def _linked(line: GroupLine, kept: set[str], groups: Mapping[str, GroupReport]) -> GroupLine:
    if line.href not in groups:
        return line
    href = f"#{line.href}" if line.href in kept else link_to(line.stream, line.group)
    return line.model_copy(update={"href": href})


def _headline(report: Report, lines: Sequence[GroupLine]) -> str:
    """Return the verdict as a headline."""
    if len(lines) != 1 or not report.groups or lines[0].verdict is not AuditVerdict.FINDINGS:
        return report.sentence
    (line,) = lines
    shown = list_totals(lines) or [one.title for one in line.findings]
    of = f" among {count_entries(line.produced)}" if line.produced else ""
    return f"{words.join_words(shown or ['findings'])}{of}."


def _badge(
    verdict: AuditVerdict,
    certainty: Certainty | None,
    lines: Sequence[GroupLine],
    *,
    is_whole: bool = False,
) -> Badge:
    """Return the badge of groups. A balanced one has a tick only for a whole page."""
    is_shown = is_whole or verdict is not AuditVerdict.BALANCED
    return Badge(
        verdict=verdict,
        name=words.name_verdict(verdict, certainty),
        glyph=words.VERDICTS[verdict][0] if is_shown else "",
        is_grave=verdict is AuditVerdict.FINDINGS
        and any(found.severity in _GRAVE for one in lines for found in one.findings),
    )


def _badge_of(line: GroupLine) -> Badge:
    return _badge(line.verdict, line.certainty, [line])


def _finalize(value: object) -> object:
    """Prepare a value of a template for output, before it is escaped."""
    if value is None:
        raise ValueError("a template shows a value that is absent")
    return value if isinstance(value, Markup) else words.make_visible(str(value))


@cache
def load_templates() -> Environment:
    """Return the templates, which escape every value and raise for undefined names."""
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
        "count_of": count_of,
        "entries": count_entries,
        "moment": words.show_moment,
        "moment_of_ms": words.show_ms,
        "number": show_count,
        "one_line": words.one_line,
        "sentence": words.as_sentence,
        "share": words.show_share,
        "size": words.show_size,
        "span": show_span,
    }
    made.globals |= {
        "badge_of": _badge_of,
        "charts": charts,
        "count_unlisted": count_unlisted,
        "enumerate": enumerate,
        "find_worst_part": find_worst_part,
        "list_parts": list_parts,
        "describe_basis": describe_basis,
        "sentences": sentences,
        "words": words,
    }
    return made


@cache
def _style() -> Markup:
    text = files(_PACKAGE).joinpath("templates", "page.css").read_text(encoding="utf-8")
    return Markup(" ".join(text.split()))  # a file of this package


def _policy(style: str) -> str:
    """A Content-Security-Policy that forbids requests, scripts and other styles."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
