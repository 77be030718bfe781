"""The parts of a group that tell of causes: dead letters, duplicates, the user's own table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pelops.pipeline.report.charts import build_meter
from pelops.pipeline.report.markup import Child, Html, one_line, show_bytes, tag
from pelops.pipeline.report.model import Comparison, Duplicates, GroupReport, Letters
from pelops.pipeline.report.sections import Part
from pelops.pipeline.report.tables import (
    Cell,
    Table,
    build_table,
    code_cell,
    number_cell,
    text_cell,
)
from pelops.pipeline.report.words import (
    count_entries,
    count_of,
    show_count,
    show_ms,
    show_share,
    show_size,
)
from pelops.pipeline.triage.clusters import MOST_RETRIES, Cluster, LetterExample, ValueHead

MOST_CLUSTERS: Final = 10  # that are told in full; the table has MOST_LISTED
MOST_LISTED: Final = 50
MOST_OPEN: Final = 1
_NUMBERS: Final = "number"
_VALUE_SHOWN: Final = 160  # characters
_GLYPHS: Final = {"redrive": "↻", "inspect": "?", "discard": "∅"}


def build_letters_part(anchor: str, group: GroupReport) -> Part:
    """Dead letters in clusters, the largest with examples."""
    letters, title, name = group.letters, "Dead letters", "letters"
    if letters is None or not letters.count:
        return Part(name=name, title=title, nothing="dead letters", is_unseen=letters is None)
    told = [
        _cluster(f"{anchor}-{name}-{place}", place, cluster, letters.count)
        for place, cluster in enumerate(letters.clusters[:MOST_CLUSTERS], 1)
    ]
    of = count_of(len(letters.clusters), "cluster")
    plan = (
        tag("p", "The redrive plan is ", tag("code", letters.plan), ".") if letters.plan else None
    )
    body = [plan, _overview(f"{anchor}-{name}", letters), told]
    return Part(name=name, title=title, gist=f"{show_count(letters.count)} in {of}", body=body)


def build_duplicates_part(duplicates: Duplicates | None) -> Part:
    """Entries that came more than once."""
    title, name = "Duplicates", "duplicates"
    if duplicates is None or not duplicates.entries:
        return Part(name=name, title=title, nothing="duplicates", is_unseen=duplicates is None)
    rows = [
        [
            code_cell(one_line(one.key, 120)),
            text_cell(one_line(one.by, 60)),
            number_cell(show_count(one.copies), one.copies),
            Cell(
                shown=[[tag("code", str(entry), class_="id"), " "] for entry in one.examples],
                copied=" ".join(map(str, one.examples)),
            ),
        ]
        for one in duplicates.first
    ]
    table = Table(
        caption="Entries that came more than once",
        headings=("Key", "Found by", "Copies", "Entries"),
        rows=rows,
        kinds=(None, None, _NUMBERS, None),
    )
    gist = f"{count_entries(duplicates.entries)} beyond the first of each"
    return Part(name=name, title=title, gist=gist, body=build_table(table))


def build_comparisons_part(comparisons: Sequence[Comparison]) -> Part | None:
    """What the user's own table says; None when there was none."""
    if not comparisons:
        return None
    rows = [
        [
            text_cell(one_line(one.kind, 60)),
            number_cell(show_count(one.count), one.count),
            text_cell(one_line(one.sentence, 400)),
            Cell(
                shown=[[tag("code", one_line(key, 60)), " "] for key in one.examples],
                copied=" ".join(one.examples),
            ),
        ]
        for one in comparisons
    ]
    table = Table(
        caption="Compared with your own table",
        headings=("Kind", "Count", "What that means", "Examples"),
        rows=rows,
        kinds=(None, _NUMBERS, None, None),
    )
    found = sum(one.count for one in comparisons)
    return Part(
        name="compared",
        title="Compared with your own table",
        gist=count_of(found, "difference"),
        body=build_table(table),
    )


def _overview(anchor: str, letters: Letters) -> Html:
    listed = letters.clusters[:MOST_LISTED]
    most = listed[0].letters if listed else 0
    rows = [_overview_row(anchor, place, one, most) for place, one in enumerate(listed, 1)]
    table = Table(
        caption="Clusters of dead letters, the largest first",
        headings=("Cluster", "Letters", "", "Last seen", "Suggested"),
        rows=rows,
        kinds=(None, _NUMBERS, "bar", None, None),
    )
    return build_table(table)


def _overview_row(anchor: str, place: int, one: Cluster, most: int) -> list[Cell]:
    name = one_line(_headline(one), 90)
    link = tag("a", name, href=f"#{anchor}-{place}") if place <= MOST_CLUSTERS else name
    return [
        Cell(shown=link, copied=f"{one.signature.cluster} {name}", kind="clip"),
        number_cell(show_count(one.letters), one.letters),
        Cell(shown=build_meter(one.letters, most, "dead_lettered"), copied="", kind="bar"),
        Cell(shown=show_ms(one.last_seen_ms), copied=show_ms(one.last_seen_ms), kind="when"),
        Cell(shown=_action(one), copied=one.advice.action),
    ]


def _cluster(anchor: str, place: int, cluster: Cluster, whole: int) -> Html:
    facts: list[tuple[str, Child]] = [
        ("Letters", f"{show_count(cluster.letters)}, {show_share(cluster.letters, whole)} of all"),
        ("First seen", show_ms(cluster.first_seen_ms)),
        ("Last seen", show_ms(cluster.last_seen_ms)),
        (
            "Consumers",
            f"about {show_count(cluster.consumers)}"
            if cluster.consumers > 2
            else str(cluster.consumers),
        ),
        ("Failed attempts", _retries(cluster.retries)),
        ("Reason", tag("code", cluster.signature.reason)),
        ("Payload", tag("code", cluster.signature.shape or "no fields")),
        ("Cluster", tag("code", cluster.signature.cluster)),
    ]
    listed = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    title = tag("h4", tag("span", f"{place}", class_="place"), " ", tag("bdi", _headline(cluster)))
    head = tag("summary", title, tag("span", show_count(cluster.letters), class_="gist"))
    advice = tag("p", _action(cluster), " ", cluster.advice.reason, class_="advice")
    # The first one of the largest clusters is worth its space.
    examples = [
        _example(one, is_open=place <= MOST_OPEN and number == 0)
        for number, one in enumerate(cluster.examples)
    ]
    return tag(
        "details", head, advice, tag("dl", listed, class_="facts"), examples or None,
        class_="cluster", id=anchor, open="" if place <= MOST_OPEN else None,
    )  # fmt: skip


def _headline(cluster: Cluster) -> str:
    signature = cluster.signature
    return signature.error or signature.exception or signature.reason or "nothing was told"


def _action(cluster: Cluster) -> Html:
    action = str(cluster.advice.action)
    return tag("span", f"{_GLYPHS[action]} {action}", class_=f"action {action}")


def _retries(counts: Sequence[int]) -> str:
    named = [f"{_times(n)}: {show_count(count)}" for n, count in enumerate(counts) if count]
    return ", ".join(named) or "-"


def _times(number: int) -> str:
    if number == MOST_RETRIES:
        return f"{number} times or more"
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _example(one: LetterExample, *, is_open: bool) -> Html:
    pairs = [
        tag("div", tag("dt", _value(name)), tag("dd", _value(value))) for name, value in one.fields
    ]
    more = one.field_count - len(one.fields)
    return tag(
        "details",
        tag("summary", "Example ", tag("code", str(one.entry_id))),
        tag(
            "p",
            "Entry ",
            tag("code", str(one.root_id)),
            ", last with ",
            tag("code", one_line(one.consumer, 100) or "nobody"),
        ),
        tag("pre", one.error, class_="error") if one.error else None,
        tag("dl", pairs, class_="payload")
        if pairs
        else tag("p", "It has no fields, or they were not archived."),
        tag("p", f"and {count_of(more, 'more field')}") if more > 0 and pairs else None,
        class_="example",
        open="" if is_open else None,
    )


def _value(value: ValueHead) -> Child:
    text = show_bytes(value.head, value.size)
    shown = text[:_VALUE_SHOWN]
    is_cut = value.size > len(value.head) or len(text) > _VALUE_SHOWN
    if not value.size:
        return tag("em", "empty")
    return [tag("code", shown), tag("small", f" … {show_size(value.size)}") if is_cut else None]
