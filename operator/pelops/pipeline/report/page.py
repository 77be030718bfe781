"""One HTML page that holds all it needs: it can be mailed, archived, printed, and read offline.

No script runs on it and nothing is fetched; the page itself forbids both to the browser, should an
escape ever be missing.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from pelops.domain.audit import AuditFinding, AuditSummary, EntryStatus, Verdict
from pelops.pipeline.report.findings import (
    build_comparisons_part,
    build_duplicates_part,
    build_letters_part,
)
from pelops.pipeline.report.markup import Html, join, one_line, tag
from pelops.pipeline.report.model import GroupReport, Report
from pelops.pipeline.report.numbers import show_count, show_moment, show_ms, show_share, show_span
from pelops.pipeline.report.sections import (
    build_balance_part,
    build_exceptions_part,
    build_stuck_part,
    build_unproven_part,
)
from pelops.pipeline.report.tables import Cell, Table, build_table, number_cell
from pelops.pipeline.report.time_sections import build_history_part, build_timeline_part
from pelops.pipeline.report.words import EVIDENCE, TITLES, VERDICTS

_ACKNOWLEDGED = (EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED)
_TILES = (
    EntryStatus.STUCK,
    EntryStatus.DEAD_LETTERED,
    EntryStatus.LOST,
    EntryStatus.INDETERMINATE,
)


def render_page(report: Report) -> str:
    """The whole page. Equal reports give equal bytes."""
    style = _style()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{VERDICTS[report.verdict][1]}: {report.audit}"),
        Html(f"<style>{style}</style>"),
    )
    body = tag("body", _skip(), _head(report), _main(report), _foot(report))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _main(report: Report) -> Html:
    anchors = [f"group-{place}" for place in range(1, len(report.groups) + 1)]
    alone = len(report.groups) == 1
    parts = [
        _group(anchor, group, alone=alone)
        for anchor, group in zip(anchors, report.groups, strict=True)
    ]
    overview = _overview(report, anchors) if len(report.groups) > 1 else None
    return tag(
        "div",
        _navigation(report, anchors),
        tag("main", overview, parts, id="content"),
        class_="columns",
    )


def _skip() -> Html:
    return tag("a", "Skip to the content", href="#content", class_="skip")


def _head(report: Report) -> Html:
    return tag(
        "header",
        tag("p", "Pelops audit ", tag("bdi", report.audit), class_="eyebrow"),
        tag("h1", _badge(report.verdict), " ", tag("bdi", report.sentence)),
        tag("p", show_moment(report.at), class_="meta"),
        class_=f"top {report.verdict}",
    )


def _foot(report: Report) -> Html:
    kept = [" The evidence is in ", tag("code", report.archive), "."] if report.archive else None
    return tag("footer", tag("p", f"Pelops {report.pelops}.", kept))


def _navigation(report: Report, anchors: list[str]) -> Html:
    links = [
        tag("li", tag("a", _name(group.summary), href=f"#{anchor}"), _parts_of(anchor, group))
        for anchor, group in zip(anchors, report.groups, strict=True)
    ]
    return tag("nav", tag("ul", links), aria_label="Contents", class_="contents")


def _parts_of(anchor: str, group: GroupReport) -> Html:
    named = [
        ("balance", "Balance"),
        ("time", "Over time"),
        ("stuck", "Stuck"),
        ("letters", "Dead letters"),
        ("duplicates", "Duplicates"),
        ("unproven", "Not proven"),
        ("entries", "Entries to look at"),
        *([("compared", "Your own table")] if group.comparisons else []),
        *([("windows", "Windows")] if group.earlier else []),
    ]
    return tag("ul", [tag("li", tag("a", text, href=f"#{anchor}-{part}")) for part, text in named])


def _overview(report: Report, anchors: list[str]) -> Html:
    shown = (EntryStatus.STUCK, EntryStatus.DEAD_LETTERED, EntryStatus.LOST)
    rows = [
        [
            Cell(shown=tag("a", _name(one), href=f"#{anchor}"), copied=f"{one.group} {one.stream}"),
            Cell(shown=_badge(one.verdict), copied=one.verdict),
            number_cell(show_count(one.produced), one.produced),
            *(number_cell(show_count(one.counts.get(s, 0)), one.counts.get(s, 0)) for s in shown),
            number_cell(show_count(one.open), one.open),
        ]
        for anchor, one in zip(anchors, (group.summary for group in report.groups), strict=True)
    ]
    table = Table(
        caption="All groups",
        headings=("Group", "Verdict", "Produced", *(TITLES[s] for s in shown), "Open"),
        rows=rows,
        kinds=(None, None, *["number"] * 5),
    )
    return tag("section", tag("h2", "Groups"), build_table(table), class_="group", id="groups")


def _group(anchor: str, group: GroupReport, *, alone: bool) -> Html:
    """`alone`: verdict and sentence stand at the top of the page already."""
    summary = group.summary
    head = tag(
        "h2", tag("bdi", summary.group), tag("small", " reads ", tag("bdi", summary.stream)), " ",
        None if alone else _badge(summary.verdict),
    )  # fmt: skip
    return tag(
        "section",
        head,
        None if alone else tag("p", tag("bdi", summary.sentence), class_="sentence"),
        _tiles(summary),
        _findings(summary),
        _facts(summary),
        build_balance_part(f"{anchor}-balance", group),
        build_timeline_part(f"{anchor}-time", group),
        build_stuck_part(f"{anchor}-stuck", group),
        build_letters_part(f"{anchor}-letters", group),
        build_duplicates_part(f"{anchor}-duplicates", group.duplicates),
        build_unproven_part(f"{anchor}-unproven", group),
        build_exceptions_part(f"{anchor}-entries", group),
        build_comparisons_part(f"{anchor}-compared", group.comparisons),
        build_history_part(f"{anchor}-windows", group),
        class_="group",
        id=anchor,
        aria_label=f"Group {summary.group} of stream {summary.stream}",
    )


def _tiles(summary: AuditSummary) -> Html:
    acknowledged = sum(summary.counts.get(status, 0) for status in _ACKNOWLEDGED)
    tiles = [
        _tile("Produced", show_count(summary.produced), "in this window", "plain"),
        _tile(
            "Acknowledged",
            show_share(acknowledged, summary.produced),
            show_count(acknowledged),
            EntryStatus.ACKNOWLEDGED_PROVEN,
        ),
    ]
    for status in _TILES:
        count = summary.counts.get(status, 0)
        kind = status.value if count else "none"
        tiles.append(
            _tile(TITLES[status], show_count(count), show_share(count, summary.produced), kind)
        )
    return tag("dl", tiles, class_="tiles")


def _tile(title: str, number: str, note: str, kind: str) -> Html:
    return tag(
        "div", tag("dt", title), tag("dd", number, tag("small", note)), class_=f"tile {kind}"
    )


def _findings(summary: AuditSummary) -> Html | None:
    if not summary.findings:
        return None
    return tag("ul", map(_finding, summary.findings), class_="told", aria_label="Findings")


def _finding(one: AuditFinding) -> Html:
    # The status that it is about gives its colour; any other word gives none.
    word = one.kind.replace("-", "_")
    status = word if word in set(EntryStatus) else None
    head = tag("b", f"{show_count(one.count)} {one_line(one.kind, 60)}")
    return tag("li", head, tag("bdi", one.sentence), class_=status)


def _facts(summary: AuditSummary) -> Html:
    window = summary.window
    span = f"{window.from_id} → {window.to_id}"
    facts: list[tuple[str, Html]] = [
        ("Window", join([f"{show_count(window.number)}, closed {show_moment(window.at)}"])),
        ("Entries", tag("code", span)),
        ("Last entry", join(show_ms(window.to_id.ms))),
        ("Archived", join(f"{show_count(summary.archived)} of {show_count(summary.produced)}")),
        ("Still open", join(f"{show_count(summary.open)}, of this and earlier windows")),
        ("Evidence", join(EVIDENCE[summary.evidence])),
    ]
    if summary.recovery is not None:
        times = summary.recovery
        told = f"{show_span(times.p50)} for half of them, {show_span(times.p99)} for 99 %"
        facts.append(("Recovered after", join(told)))
    if summary.retention_margin is not None:
        percent = f"{round(100 * summary.retention_margin)}\u202f%"
        facts.append(("Ahead of trimming", join(f"{percent} of what the stream retains")))
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    return tag("dl", rows, class_="facts wide")


def _name(summary: AuditSummary) -> Html:
    return join([tag("bdi", summary.group), " ", tag("small", tag("bdi", summary.stream))])


def _badge(verdict: Verdict) -> Html:
    glyph, word = VERDICTS[verdict]
    mark = tag("span", glyph, aria_hidden="true")
    return tag("span", mark, " ", word, class_=f"badge {verdict}")


@cache
def _style() -> str:
    text = files("pelops.pipeline.report").joinpath("page.css").read_text(encoding="utf-8")
    return " ".join(text.split())


def _policy(style: str) -> str:
    """Nothing may be fetched, nothing may run, and only this one style applies."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
