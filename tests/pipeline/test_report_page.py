"""The HTML page: complete, offline, harmless whatever it shows, and with numbers that add up."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from pelops.domain.outcome import EntryStatus
from pelops.pipeline.report.charts import split_bar
from pelops.pipeline.report.model import GroupReport, LetterField, Report
from pelops.pipeline.report.page import load_templates, render_page
from pelops.pipeline.report.sentences import show_head
from pelops.pipeline.report.words import MEANINGS, THIN, TITLES, make_visible, one_line
from pelops.pipeline.triage.clusters import ValueHead
from tests.pipeline.report_cases import (
    COUNTS,
    HOSTILE,
    changed,
    full_group,
    hostile_group,
    many_groups,
    quiet_group,
    report,
    summary,
    timeline,
)

# As long as the hostile text, so that nothing is cut at another place.
PLAIN = "x" * len(HOSTILE)
VOID = {"meta", "br", "col"}
CELLS = {"td", "th"}


class Page(HTMLParser):
    """What a browser would find: elements, their texts, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in CELLS:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if CELLS & set(self.open) and "title" not in self.open:
            self.tables[-1][-1][-1] += data

    def attributes(self, name: str) -> list[str]:
        return [found[name] or "" for _, found in self.elements if name in found]

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.elements)


def _page(*groups: GroupReport) -> Page:
    return Page(render_page(report(*groups)))


EVERYTHING: list[Any] = [
    [full_group()],
    [quiet_group()],
    [hostile_group()],
    [GroupReport(summary=summary({}))],
    [],
    [full_group(), quiet_group(), hostile_group()],
]


@pytest.mark.parametrize("groups", EVERYTHING)
def test_the_page_needs_nothing_from_outside(groups: list[GroupReport]) -> None:
    text = render_page(report(*groups))
    page = Page(text)
    for element, attributes in page.elements:
        assert element not in {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "srcset", "action", "data", "poster", "xlink:href"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert all(
        re.match(r"#|\.\./audit\.html$|[^:/]+/audit\.html#", h) for h in page.attributes("href")
    )
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)
    assert style is not None
    for reference in ("url(", "@import", "http:", "https:", "//", "expression("):
        assert reference not in style[1].lower()
    markup_alone = re.sub(r">[^<]*<", "><", text)
    assert not re.search(r"https?://|url\(|@import|javascript:", _without_labels(markup_alone))


def _without_labels(markup: str) -> str:
    """Labels for screen readers are texts."""
    return re.sub(r' aria-label="[^"]*"', "", markup)


@pytest.mark.parametrize("groups", EVERYTHING)
def test_every_link_has_its_anchor_and_no_anchor_is_there_twice(groups: list[GroupReport]) -> None:
    page = _page(*groups)
    anchors = page.attributes("id")
    assert len(anchors) == len(set(anchors))
    inside = {href[1:] for href in page.attributes("href") if href.startswith("#")}
    assert inside <= set(anchors)


@pytest.mark.parametrize("groups", EVERYTHING)
def test_the_page_can_be_read_aloud(groups: list[GroupReport]) -> None:
    page = _page(*groups)
    assert page.open == []
    assert (page.count("h1"), page.count("main"), page.count("title") >= 1) == (1, 1, True)
    assert dict(page.elements)["html"] == {"lang": "en"}
    assert page.count("caption") == page.count("table")
    for name, attributes in page.elements:
        if name == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
        if name == "th":
            assert attributes.get("scope") in {"row", "col"}
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h[1-6]", name)]
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_the_page_forbids_scripts_and_requests_to_the_browser() -> None:
    policies = [
        attributes["content"]
        for name, attributes in _page(full_group()).elements
        if name == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1 and policies[0] is not None
    assert policies[0].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policies[0]


def test_the_verdict_stands_at_the_top_in_one_sentence() -> None:
    text = render_page(report(full_group()))
    head = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)
    assert head is not None and "2 lost" in head[1] and "Findings" in head[1]
    assert text.index("<h1>") < text.index('aria-label="Findings"') < text.index("<details")


def test_the_balance_adds_up_as_it_is_shown() -> None:
    page = _page(full_group())
    table = next(one for one in page.tables if one[0][:2] == ["Status", "Entries"])
    *rows, total = [int(row[1].replace(THIN, "")) for row in table[1:]]
    assert sum(rows) == total == sum(COUNTS.values())
    assert len(rows) == len(EntryStatus)


def test_what_is_empty_is_said_to_be_empty() -> None:
    text = "".join(_page(quiet_group()).text)
    assert (
        "Checked, and none found: entries to check, dead letters, stuck entries, "
        "duplicates, statements without proof." in text
    )


def test_what_was_not_looked_at_is_not_said_to_be_well() -> None:
    text = "".join(_page(GroupReport(summary=summary({EntryStatus.LOST: 1}))).text)
    assert "Not checked: entries to check, dead letters, stuck entries, duplicates, times." in text
    assert "none found: statements without proof." in text


def test_hostile_texts_stay_texts() -> None:
    text = render_page(report(hostile_group()))
    page = Page(text)
    assert "script" not in {name for name, _ in page.elements}
    assert "<script>alert(1)" in "".join(page.text)  # shown, as text
    assert not set("\u202e\u2066\0\x1b\ud800") & set(text)
    text.encode("utf-8")  # half of a surrogate pair could not be written


def test_a_large_value_shows_its_beginning_and_its_size() -> None:
    text = render_page(report(hostile_group()))
    assert len(text) < 200_000
    assert f"976.6{THIN}KiB" in text


def test_every_status_has_its_words_and_its_colour() -> None:
    assert set(TITLES) == set(MEANINGS) == set(EntryStatus)
    text = render_page(report(full_group()))
    for status in EntryStatus:
        assert f".fill.{status.value} {{" in text


def test_colours_of_text_have_contrast_in_light_and_dark() -> None:
    style = re.search(r"<style>(.*)</style>", render_page(report(quiet_group())), re.DOTALL)
    assert style is not None
    light, dark, *_ = re.findall(r":root \{(.*?)\}", style[1])
    for theme in (light, dark):
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", theme))
        for ink in ("ink", "muted", "link", "good", "bad", "warn"):
            for ground in ("page", "surface"):
                assert _contrast(colours[ink], colours[ground]) >= 4.5
        for tint in ("good", "warn", "bad", "cold"):
            assert _contrast(colours[tint], colours[f"{tint}-tint"]) >= 4.5
            assert _contrast(colours["ink"], colours[f"{tint}-tint"]) >= 4.5
        assert _contrast(colours["muted"], colours["faint"]) >= 4.5


def test_what_is_small_is_still_seen_and_the_bar_is_full() -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 10**9, EntryStatus.LOST: 1}
    page = render_page(report(GroupReport(summary=summary(counts))))
    drawn = page.partition('<svg class="balance"')[2].partition("</svg>")[0]
    widths = [float(found) for found in re.findall(r'<rect [^>]*?width="([0-9.]+)%"', drawn)]
    assert min(widths) >= 1 and sum(widths) == pytest.approx(100, abs=0.01)
    assert widths == pytest.approx([one.width for one in split_bar(counts)], abs=0.001)


def test_a_timeline_loses_no_count() -> None:
    page = render_page(report(changed(full_group(), timeline=timeline())))
    drawn = page.partition('<div class="timeline">')[2].partition('class="times"')[0]
    counts = re.findall(r"UTC: ([0-9\u202f]+)</title>", drawn)
    shown = timeline()
    whole = sum(map(sum, (shown.arrivals, shown.recoveries, shown.dead_letters)))
    assert sum(int(count.replace(THIN, "")) for count in counts) == whole


@pytest.mark.parametrize(
    ("head", "size", "shown"),
    [
        (b"plain", 5, "plain"),
        ("für".encode()[:2], 4, "f"),  # cut within a character
        (b"f\xc3", 2, "f\\xc3"),  # whole, and no text
        (b"\x00\xff", 2, "\\x00\\xff"),
        (b"a\tb\nc", 5, "a\u21e5b\u23cec"),
        (b"", 0, ""),
    ],
)
def test_bytes_are_shown_as_text_where_they_are_text(head: bytes, size: int, shown: str) -> None:
    value = ValueHead(head=head, size=size)
    field = LetterField.model_validate({"name": value, "value": value})
    assert show_head(field.name) == shown


def test_invisible_characters_are_written_as_escapes() -> None:
    assert make_visible("a\u202eb\u200bc\x00") == "a\\u{202e}b\\u{200b}c\\u{0}"
    assert make_visible("Zoë שלום 日本 \U0001f600") == "Zoë שלום 日本 \U0001f600"
    assert len(make_visible("a" + "\u0301" * 5000)) == 3
    assert one_line(HOSTILE, 30).endswith("…")


def test_texts_and_attributes_are_escaped() -> None:
    group = changed(quiet_group(), summary=replace(quiet_group().summary, group="\"'<&>"))
    text = render_page(report(group))
    shown = "&#34;&#39;&lt;&amp;&gt;"
    assert f"<bdi>{shown}</bdi>" in text
    assert f'aria-label="Group {shown} of stream orders:events"' in text


def _reports(text: str) -> list[Report]:
    """Reports of every layout, in which all that others can name or write says this."""
    evil, plain = hostile_group(text), quiet_group()
    line = evil.line("page.html#group")
    return [
        changed(message, audit=text, archive=text, pelops=text, stream=stream, unread=(text,))
        for message in (report(evil), report(evil, plain), changed(report(plain), others=(line,)))
        for stream in (None, text)
    ]


@pytest.mark.parametrize("number", range(6))
def test_no_text_changes_the_elements_of_the_page(number: int) -> None:
    hostile, harmless = (Page(render_page(_reports(text)[number])) for text in (HOSTILE, PLAIN))
    assert _skeleton(hostile) == _skeleton(harmless)


def _skeleton(page: Page) -> list[tuple[str, set[str]]]:
    return [(name, set(attributes) - {"class"}) for name, attributes in page.elements]


def test_no_template_switches_escaping_off() -> None:
    templates = [
        path.read_text() for path in Path(render_page.__code__.co_filename).parent.rglob("*.html")
    ]
    assert len(templates) > 10
    for text in templates:
        assert not re.search(r"\|\s*safe|autoescape|Markup|https?:", text)


def test_a_name_that_a_template_misspells_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        load_templates().from_string("{{ group.nothing }}").render(group=quiet_group())
    with pytest.raises(ValueError, match="absent"):
        load_templates().from_string("{{ group.dead_letters }}").render(
            group=GroupReport(summary=summary({}))
        )


def _contrast(one: str, other: str) -> float:
    """As WCAG defines it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("archived", "margin", "message"),
    [
        (30, None, "complete: nothing of this window was removed"),
        (30, 1.0, "complete: nothing of this window was removed"),
        (30, 0.93, f"complete; when this run began, 93.00{THIN}% of what the stream held"),
        (30, -12.57, "behind trimming when this run began"),
        (29, -12.57, "behind trimming: 1 entry of this window was removed before"),
        (3, 0.5, "behind trimming: 27 entries of this window were removed before"),
    ],
)
def test_how_far_the_archive_is_ahead_of_trimming_is_reported_in_words(
    archived: int, margin: float | None, message: str
) -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 30}
    text = render_page(
        report(GroupReport(summary=summary(counts, archived=archived, retention_margin=margin)))
    )
    assert message in text
    assert "-1257" not in text


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({EntryStatus.ACKNOWLEDGED_PROVEN: 1}, "The one entry was acknowledged."),
        (
            {EntryStatus.ACKNOWLEDGED_INFERRED: 2},
            "All 2 entries were delivered or passed, and none is pending.",
        ),
        (
            {EntryStatus.ACKNOWLEDGED_PROVEN: 905, EntryStatus.REQUEUED: 95},
            f"905 of 1{THIN}000 entries (90.50{THIN}%) were acknowledged; 95 are in progress "
            "(95 requeued as copies).",
        ),
        (
            {EntryStatus.ACKNOWLEDGED_PROVEN: 1, EntryStatus.IN_FLIGHT: 1, EntryStatus.LOST: 1},
            f"1 of 3 entries (33.33{THIN}%) was acknowledged; 1 is in progress (1 in flight); "
            "1 needs attention.",
        ),
    ],
)
def test_what_is_not_acknowledged_is_said_to_be_what_it_is(
    counts: dict[EntryStatus, int], message: str
) -> None:
    assert message in render_page(report(GroupReport(summary=summary(counts))))


def test_what_users_added_is_followed_to_its_last_copy() -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 1_009, EntryStatus.REQUEUED: 100}
    roots = {EntryStatus.ACKNOWLEDGED_PROVEN: 1_009}
    text = render_page(report(GroupReport(summary=summary(counts), roots=roots)))
    assert f"All 1{THIN}009 entries that producers added were acknowledged." in text
    assert "The stream holds 100 copies of requeued or redriven entries beside them." in text


def test_a_window_is_reported_in_one_line() -> None:
    page = _page(full_group())
    assert (
        f"Window 412: 2025-10-09 08:53:20 to 09:08:20 UTC (15{THIN}min) · "
        f"250{THIN}067 entries · 278 a second on average"
    ) in page.text


def test_two_hundred_groups_are_an_overview_with_a_link_to_each() -> None:
    text = render_page(report(*many_groups()))
    page = Page(text)
    assert len(text) < 700_000
    (groups,) = [
        one
        for one, attributes in page.elements
        if one == "nav" and attributes["aria-label"] == "Groups"
    ]
    assert groups == "nav"
    links = [href for href in page.attributes("href") if "group-" in href and href[0] != "#"]
    inside = {
        attributes["id"] or ""
        for name, attributes in page.elements
        if name == "details" and (attributes.get("class") or "") == "group"
    }
    assert (len(links), len(inside)) == (180, 20)
    opened = [
        attributes["class"]
        for name, attributes in page.elements
        if name == "details" and "open" in attributes and attributes["class"] != "example"
    ]
    assert opened == ["group", "part", "group", "part"]
    found = [
        text for text in page.text if re.fullmatch(r"[0-9]+ (lost|without payload|stuck)", text)
    ]
    order = [word.split(maxsplit=1)[1] for word in found]
    assert order.index("lost") < order.index("without payload") < order.index("stuck")
