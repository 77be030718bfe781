"""What the page of an audit says: numbers, ticks and sentences, held against the books."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import EXPECTED_STATUSES, AuditVerdict
from pelops.pipeline.report.words import TITLES, VERDICTS
from tests.pipeline.oracle.findings import Judge, Untrue
from tests.pipeline.oracle.reported import WindowReport

_SPACES: Final = re.compile(r"[\s\u202f\u00a0]+")
_BLOCKS: Final = {
    *("p", "h1", "h2", "h3", "h4", "li", "tr", "td", "th", "caption", "dt", "dd", "pre", "summary"),
    *("section", "header", "footer", "div", "nav", "title", "article", "details"),
}
_REASSURING: Final = re.compile(
    r"no entry needs attention|as they should be|none found:.*entries to check", re.IGNORECASE
)
# Such as `3 of 5 entries that producers added (60 %) were acknowledged`.
_ADDED: Final = re.compile(r"^(?:All )?(\d[\d ]*)(?: of \d[\d ]*)? entries that producers added")
_HEAD: Final = 10  # blocks of the top of the page


class _Texts(HTMLParser):
    """The text of each block, and the cells of each table."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._parts: list[str] = []
        self._is_hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._end()
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")
        self._is_hidden = self._is_hidden or tag == "style"

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end()
        self._is_hidden = self._is_hidden and tag != "style"

    def handle_data(self, data: str) -> None:
        if not self._is_hidden:
            self._parts.append(data)
            if self.tables and self.tables[-1] and self.tables[-1][-1]:
                self.tables[-1][-1][-1] += data

    def _end(self) -> None:
        text = _SPACES.sub(" ", "".join(self._parts)).strip()
        if text:
            self.blocks.append(text)
        self._parts = []


def check_page(
    path: Path, judges: Sequence[Judge], reported: Mapping[str, Sequence[WindowReport]]
) -> list[Untrue]:
    """What the page says of the newest windows of all groups, and is untrue."""
    newest = [reported[judge.group][-1] for judge in judges if reported[judge.group]]
    if not newest:
        return []
    texts = _Texts()
    texts.feed(path.read_text())
    return list(_check(texts, judges, newest))


def _check(
    texts: _Texts, judges: Sequence[Judge], newest: Sequence[WindowReport]
) -> Iterator[Untrue]:
    def untrue(kind: str, what: str) -> Untrue:
        window = newest[0].summary.window.number
        return Untrue(kind=f"page:{kind}", group="*", window=window, what=what)

    needing = [_needing(one) for one in newest]
    ticks = [text for text in texts.blocks if "✓" in text]
    if ticks and all(one.summary.verdict is not AuditVerdict.BALANCED for one in newest):
        yield untrue("tick", f"{ticks[0]!r}, and no group is balanced")
    word = VERDICTS[AuditVerdict.BALANCED][1]
    heads = [text for text in texts.blocks[:_HEAD] if re.search(rf"\b{word}\b", text)]
    if heads and any(one.summary.verdict is not AuditVerdict.BALANCED for one in newest):
        yield untrue("verdict", f"{heads[0]!r}, and a group is not")
    for text in texts.blocks:
        if _REASSURING.search(text) and all(needing):
            yield untrue("reassures", f"{text!r} beside {needing}")
        if re.search(r"-\d[\d ]* ?%", text):
            yield untrue("share", repr(text))
        if re.search(r"^All .* were (acknowledged|delivered)", text) and all(
            map(_is_unfinished, newest)
        ):
            yield untrue("all", repr(text))
    yield from _check_amounts(texts, newest)
    yield from _check_done(texts, judges, newest)
    yield from _check_tables(texts, newest)


def _check_done(
    texts: _Texts, judges: Sequence[Judge], newest: Sequence[WindowReport]
) -> Iterator[Untrue]:
    """As many of what users added are said to be done as are, or look so to all who could look."""
    most = max(
        judge.count_done(reported.summary.window.from_id, reported.summary.window.to_id)
        for judge, reported in zip(judges, newest, strict=True)
    )
    for text in texts.blocks:
        found = _ADDED.search(text)
        if found and int(found[1].replace(" ", "")) > most:
            yield Untrue(
                kind="page:done", group="*", window=newest[0].summary.window.number,
                what=f"{text!r}: {most} are",
            )  # fmt: skip


def _check_amounts(texts: _Texts, newest: Sequence[WindowReport]) -> Iterator[Untrue]:
    """A stream that several groups share has its entries once."""
    most = max(one.summary.window.to_added - one.summary.window.from_added for one in newest)
    for text in texts.blocks:
        found = re.search(r"\d+ groups?, (\d[\d ]*) entries", text)
        if found and int(found[1].replace(" ", "")) > most:
            what = f"{text!r}: the window of the stream has {most}"
            yield Untrue(
                kind="page:shared", group="*", window=newest[0].summary.window.number, what=what
            )
            return


def _check_tables(texts: _Texts, newest: Sequence[WindowReport]) -> Iterator[Untrue]:
    """The tables of statuses hold the numbers of the summaries."""
    tables = [dict(_rows(table)) for table in texts.tables]
    for one in newest:
        wanted = {TITLES[status]: one.summary.counts[status] for status in EntryStatus}
        wanted["Produced"] = one.summary.produced
        shown = [table for table in tables if wanted.keys() <= table.keys()]
        if one.summary.produced and wanted not in shown:
            yield Untrue(
                kind="page:balance", group=one.summary.group, window=one.summary.window.number,
                what=f"no table shows {wanted}",
            )  # fmt: skip


def _rows(table: Sequence[Sequence[str]]) -> Iterator[tuple[str, int]]:
    """The status and the number of each row; a status has its meaning beside it."""
    names = sorted([*TITLES.values(), "Produced"], key=len, reverse=True)
    for cells in table:
        name = next((one for one in names if cells[0].strip().startswith(one)), None)
        number = _SPACES.sub("", cells[1]) if len(cells) > 1 else ""
        if name is not None and number.isdigit():
            yield name, int(number)


def _needing(reported: WindowReport) -> int:
    """Entries that are said, one by one, to need a look."""
    said = [*reported.exceptions.values(), *reported.open.values()]
    return sum(1 for status in said if status not in EXPECTED_STATUSES)


def _is_unfinished(reported: WindowReport) -> bool:
    done = (EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED)
    return any(n for status, n in reported.root_counts.items() if status not in done)
