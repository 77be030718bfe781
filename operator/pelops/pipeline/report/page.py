"""One HTML page that holds all it needs: it can be mailed, archived, printed, and read offline.

No script runs on it and nothing is fetched; the page itself forbids both to the browser, should an
escape ever be missing. What is long is folded: the verdict, what needs a look and the groups by
severity come first, and the rest is a click away.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from pelops.domain.audit import AuditSummary, EntryStatus, Verdict
from pelops.pipeline.report.charts import build_balance, build_swatch, is_widened
from pelops.pipeline.report.findings import (
    build_comparisons_part,
    build_duplicates_part,
    build_letters_part,
)
from pelops.pipeline.report.links import anchor_of, link_to
from pelops.pipeline.report.markup import Child, Html, join, tag
from pelops.pipeline.report.model import GroupLine, GroupReport, Report
from pelops.pipeline.report.overview import build_badge, build_finding_list, build_overview
from pelops.pipeline.report.sections import (
    Part,
    build_balance_part,
    build_exceptions_part,
    build_stuck_part,
    build_unproven_part,
)
from pelops.pipeline.report.severity import (
    ACKNOWLEDGED,
    certainty_of_all,
    headline_of,
    line_of,
    lines_of,
    sort_lines,
    verdict_of_all,
)
from pelops.pipeline.report.time_sections import build_history_part, build_timeline_part
from pelops.pipeline.report.words import (
    EVIDENCE,
    TITLES,
    count_entries,
    count_of,
    name_verdict,
    show_count,
    show_moment,
    show_period,
    show_rate,
    show_share,
    show_span,
)

MOST_DETAILED: Final = 20  # groups of a page of all streams: the others have theirs elsewhere
MOST_UNFOLDED: Final = 2  # groups of several that are open, if they need a look
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ON_THEIR_WAY: Final = {
    EntryStatus.IN_FLIGHT: "in flight",
    EntryStatus.UNDELIVERED: "not delivered yet",
    EntryStatus.REQUEUED: "requeued as copies",
}


def render_page(report: Report) -> str:
    """The whole page. Equal reports give equal bytes."""
    style = _style()
    verdict = verdict_of_all(report)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{name_verdict(verdict, certainty_of_all(report))}: {report.audit}"),
        Html(f"<style>{style}</style>"),
    )
    body = tag("body", _skip(), _head(report, verdict), _main(report), _foot(report))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _main(report: Report) -> Html:
    groups = {anchor_of(one.summary.stream, one.summary.group): one for one in report.groups}
    lines = sort_lines([*(line_of(one, anchor) for anchor, one in groups.items()), *report.others])
    detailed = [one for one in lines if one.href in groups]
    if report.stream is None and len({one.stream for one in lines}) > 1:
        detailed = detailed[:MOST_DETAILED]
    kept = {one.href for one in detailed}
    alone = len(lines) == len(detailed) == 1
    overview = None if alone else build_overview([_linked(one, kept, groups) for one in lines])
    shown = [
        _group(one, groups[one.href], alone=alone, is_open=place < MOST_UNFOLDED)
        for place, one in enumerate(detailed)
    ]
    return tag("main", overview, shown, id="content")


def _linked(line: GroupLine, kept: set[str], groups: Mapping[str, GroupReport]) -> GroupLine:
    if line.href not in groups:
        return line
    if line.href in kept:
        return replace(line, href=f"#{line.href}")
    return replace(line, href=link_to(line.stream, line.group))


def _skip() -> Html:
    return tag("a", "Skip to the content", href="#content", class_="skip")


def _head(report: Report, verdict: Verdict) -> Html:
    whose = None if report.stream is None else join([" of stream ", tag("bdi", report.stream)])
    back = (
        None
        if report.stream is None
        else [" · ", tag("a", "All streams of this archive", href="../audit.html")]
    )
    unread = [
        tag("p", "This report of the archive cannot be read: ", tag("code", path), class_="broken")
        for path in report.unread
    ]
    return tag(
        "header",
        tag(
            "p", "Pelops audit ", tag("bdi", report.audit), whose, " · ", show_moment(report.at),
            back, class_="eyebrow",
        ),
        tag(
            "h1",
            _badge(report),
            " ",
            tag("bdi", headline_of(report)),
        ),
        unread,
        class_=f"top {verdict}",
    )  # fmt: skip


def _badge(report: Report) -> Html:
    """Of a report that cannot tell of all, the verdict is unknown at best."""
    lines = lines_of(report)
    if report.unread and verdict_of_all(report) is Verdict.UNKNOWN:
        lines = []
    return build_badge(lines, is_whole=True)


def _foot(report: Report) -> Html:
    kept = [" The evidence is in ", tag("code", report.archive), "."] if report.archive else None
    return tag("footer", tag("p", f"Pelops {report.pelops}.", kept))


def _group(line: GroupLine, group: GroupReport, *, alone: bool, is_open: bool) -> Html:
    """A group that is `alone` has its verdict at the top of the page, and its worst part open."""
    anchor = line.href
    parts = list(_parts(anchor, group))
    shown = [part for part in parts if part.body is not None]
    names = {part.name for part in shown}
    opened = next((one.part for one in line.findings if one.part in names), "") if alone else ""
    body = [
        build_finding_list(line.findings, anchor, names),
        _when(group),
        _outcomes(group),
        [_fold(anchor, part, is_open=part.name == opened) for part in shown],
        _rest(parts),
        _facts(group.summary),
    ]
    name = join([tag("bdi", line.group), " ", tag("small", "reads ", tag("bdi", line.stream))])
    if alone:
        label = f"Group {line.group} of stream {line.stream}"
        return tag("section", tag("h2", name), body, class_="group", id=anchor, aria_label=label)
    head = tag("summary", tag("h2", name), " ", build_badge([line], is_whole=False))
    is_open = is_open and line.verdict is not Verdict.BALANCED
    return tag("details", head, body, class_="group", id=anchor, open="" if is_open else None)


def _parts(anchor: str, group: GroupReport) -> Iterator[Part]:
    made = (
        build_exceptions_part(group),
        build_letters_part(anchor, group),
        build_stuck_part(group),
        build_comparisons_part(group.comparisons),
        build_duplicates_part(group.duplicates),
        build_balance_part(group),
        build_unproven_part(group),
        build_timeline_part(group),
        build_history_part(group),
    )
    return (part for part in made if part is not None)


def _fold(anchor: str, part: Part, *, is_open: bool) -> Html:
    gist = tag("span", part.gist, class_="gist") if part.gist else None
    head = tag("summary", tag("h3", part.title), gist)
    return tag(
        "details", head, tag("div", part.body, class_="within"),
        class_="part", id=f"{anchor}-{part.name}", open="" if is_open else None,
    )  # fmt: skip


def _rest(parts: Sequence[Part]) -> Child:
    """Parts that have nothing to show, in a line each for what was looked at and what was not."""
    empty = [part for part in parts if part.body is None]
    told = {
        "Looked for, and none found: ": [one.nothing for one in empty if not one.is_unseen],
        "Not looked for: ": [one.nothing for one in empty if one.is_unseen],
    }
    return [
        tag("p", lead, ", ".join(names), ".", class_="rest")
        for lead, names in told.items()
        if names
    ]


def _when(group: GroupReport) -> Html:
    """The window in one line."""
    summary = group.summary
    window, begin = summary.window, _begin(group)
    told = [f"Window {show_count(window.number)}: {show_period(begin, window.at)}"]
    told.append(count_entries(summary.produced))
    if begin is not None and summary.produced and window.at > begin:
        told.append(f"{show_rate(summary.produced, window.at - begin)} on average")
    return tag("p", " · ".join(told), class_="window")


def _begin(group: GroupReport) -> datetime | None:
    """When the window before was closed; of the first one, when its first entry was added."""
    window = group.summary.window
    if group.earlier and group.earlier[-1].window.number == window.number - 1:
        return group.earlier[-1].window.at
    if group.timeline is not None and group.timeline.start <= window.at:
        return group.timeline.start
    return None


def _outcomes(group: GroupReport) -> Child:
    """What became of what was added, as a sentence, a bar and its legend: all of it, together."""
    summary = group.summary
    roots = {status: n for status, n in (group.roots or {}).items() if n}
    counts = roots or {status: n for status, n in summary.counts.items() if n}
    whole = sum(counts.values())
    if not whole:
        return tag("p", "Nothing was added in this window.", class_="lead")
    copies = summary.produced - whole if roots else 0
    legend = [
        tag(
            "li", build_swatch(status), tag("b", show_count(counts[status])), " ",
            TITLES[status].lower(), tag("small", show_share(counts[status], whole)),
        )
        for status in TITLES if counts.get(status)
    ]  # fmt: skip
    label = f"Outcomes of {count_entries(whole)}; the list below has the numbers"
    note = "Shares too small to be seen are drawn wider than they are."
    return [
        tag("p", _progress(counts, whole, is_roots=bool(roots)), _copies(copies), class_="lead"),
        build_balance(counts, label),
        tag("ul", legend, class_="legend", aria_label="Outcomes"),
        tag("p", note, class_="note") if is_widened(counts) else None,
    ]


def _progress(counts: Mapping[EntryStatus, int], whole: int, *, is_roots: bool) -> str:
    """How much is done, what the rest is, and what of it needs a look: they add up."""
    done = sum(counts.get(status, 0) for status in ACKNOWLEDGED)
    what = count_of(whole, "entry", "entries")
    users = " that users added" if is_roots else ""
    if done == whole:
        were = "The one entry" if whole == 1 else f"All {what}"
        return f"{were}{users} {'was' if whole == 1 else 'were'} acknowledged."
    on_way = {word: counts.get(status, 0) for status, word in _ON_THEIR_WAY.items()}
    moving = sum(on_way.values())
    unknown = counts.get(EntryStatus.INDETERMINATE, 0)
    look = whole - done - moving - unknown
    were = "was" if done == 1 else "were"
    told = [f"{show_count(done)} of {what}{users} ({show_share(done, whole)}) {were} acknowledged"]
    if moving:
        names = ", ".join(f"{show_count(n)} {word}" for word, n in on_way.items() if n)
        told.append(f"{count_of(moving, 'is', 'are')} on the way ({names})")
    if unknown:
        told.append(f"{count_of(unknown, 'is', 'are')} indeterminate")
    if look:
        told.append(f"{count_of(look, 'needs', 'need')} a look")
    return f"{'; '.join(told)}."


def _copies(copies: int) -> str | None:
    if copies <= 0:
        return None
    return (
        f" The stream holds {count_of(copies, 'copy', 'copies')} of requeued entries beside them."
    )


def _facts(summary: AuditSummary) -> Html:
    window = summary.window
    facts: list[tuple[str, Child]] = [
        ("Evidence", EVIDENCE[summary.evidence]),
        ("IDs", [tag("code", str(window.from_id)), " to ", tag("code", str(window.to_id))]),
        ("Archive", _show_margin(summary)),
        ("Still open", f"{count_entries(summary.open)} of this and earlier windows"),
    ]
    if summary.recovery is not None:
        times = summary.recovery
        told = f"{show_span(times.p50)} for half of them, {show_span(times.p99)} for 99 %"
        facts.append(("Recovered after", told))
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    return tag("dl", rows, class_="facts")


def _show_margin(summary: AuditSummary) -> str:
    """How far the archive is ahead of trimming, in words."""
    missing, margin = summary.produced - summary.archived, summary.retention_margin
    if missing > 0:
        were = "was" if missing == 1 else "were"
        return (
            f"behind trimming: {count_entries(missing)} of this window {were} removed before they "
            "could be archived; audit more often, or retain more"
        )
    if margin is None or margin >= 1:
        return "complete: nothing of this window was removed before it was archived"
    if margin < 0:
        return (
            "behind trimming when this run began: entries were removed before they could be "
            "archived; audit more often, or retain more"
        )
    room = show_share(round(1000 * margin), 1000)
    return f"complete; when this run began, {room} of what the stream held was archived already"


@cache
def _style() -> str:
    text = files("pelops.pipeline.report").joinpath("page.css").read_text(encoding="utf-8")
    return " ".join(text.split())


def _policy(style: str) -> str:
    """Nothing may be fetched, nothing may run, and only this one style applies."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
