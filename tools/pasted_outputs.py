"""Check the outputs of Pelops that pages show: `python -m tools.pasted_outputs`.

Messages of conditions and Events, and the columns of `kubectl get`, change with the code. What a
`text` or `console` block of a page shows of them must still be what the code writes:

- A message matches an example of `tests.message_samples` with the same reason, whatever its names,
  numbers and times are. It stands after `Type=Status Reason:` or in a row of an Event. Any other
  paragraph counts as a message if it has `SHARED_WORDS` successive words of one.
- A line of columns of a kind of Pelops has the columns of that kind, in their order, unless it
  follows a command other than `kubectl get`. The last one, AGE, can be left out, and a line of
  `-o wide` can be cut at its end. Below REASON are reasons that exist.

A form of a message that no example has yet belongs into `tests.message_samples`.
Prints each fault with its place, and exits with 1 when there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from pelops.api.schema.base import PrinterColumn
from pelops.api.schema.kind_definitions import (
    STREAM_AUDIT,
    STREAM_CONSUMER_GROUP,
    STREAM_REDRIVE,
)
from pelops.policy.status.reasons import Reason
from tests.docs_pages import Block, list_blocks
from tests.message_samples import list_examples
from tools.messages import PAGE

SHARED_WORDS: Final = 6

_KINDS: Final = (STREAM_CONSUMER_GROUP, STREAM_AUDIT, STREAM_REDRIVE)
_REASONS: Final = frozenset(map(str, Reason))
# `GroupReady=False Conflict: ...`, also without the type.
_CONDITION: Final = re.compile(r"(?:(\w+)=)?(?:True|False|Unknown) ([A-Z]\w+): ")
# `3s   Warning   DeadLettered   StreamConsumerGroup/checks   ...`, also without the object.
_EVENT_ROW: Final = re.compile(
    r"(?:\S+ +)?(?:Normal|Warning) +([A-Z]\w+) +(?:(?i:stream)\w+/\S+ +)?(?=\S)"
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z(?: |$)")
_COLUMN: Final = re.compile(r"[A-Z][A-Z-]*")
# Names in the examples that look like ordinary words. Reasons are names too: see `DryRun`.
_NAMES: Final = frozenset({"orders", "nightly", "mailing", "mails", "older", "shop", "PodGone"})
_VARIABLE: Final = r"\S+"


@dataclass(frozen=True, slots=True)
class Shown:
    """A message on a page."""

    place: str  # page:line
    reason: str | None  # None: the page does not name it
    text: str


def main() -> int:
    """Print what is out of date on the pages; return 1 if anything is."""
    blocks = [one for one in list_blocks("text", "console") if one.page != PAGE]
    faults = [fault for block in blocks for fault in find_faults(block)]
    print("\n".join(faults) if faults else "The outputs on the pages are up to date")
    return 1 if faults else 0


def find_faults(block: Block) -> Iterator[str]:
    """Yield what a block shows that Pelops does not print, each with its place."""
    for shown in _find_messages(block):
        if shown.reason is not None and shown.reason not in _REASONS:
            yield f"{shown.place}: there is no reason {shown.reason}"
        elif not _is_written(shown):
            named = "no message" if shown.reason is None else f"no message of {shown.reason}"
            yield f"{shown.place}: {named} reads: {shown.text}"
    yield from _find_column_faults(block)


# Messages


def _find_messages(block: Block) -> Iterator[Shown]:
    for line, paragraph in _split(block):
        condition, row = _CONDITION.match(paragraph), _EVENT_ROW.match(paragraph)
        place = f"{block.page}:{line}"
        if condition is not None:
            yield Shown(place, condition[2], paragraph[condition.end() :])
        elif row is not None:
            yield Shown(place, row[1], paragraph[row.end() :])
        else:
            text = _TIME.sub("", paragraph, count=1) if _TIME.match(paragraph) else paragraph
            if _shares_words(text):
                yield Shown(place, None, text)


def _split(block: Block) -> Iterator[tuple[int, str]]:
    """Yield each paragraph as one line, with its place; what begins a message begins another."""
    parts: list[str] = []
    start = block.line
    for number, line in enumerate([*block.code.splitlines(), ""], block.line):
        words = " ".join(line.split())
        begins = _CONDITION.match(words) or _EVENT_ROW.match(words) or _TIME.match(words)
        if parts and (not words or begins or words.startswith("$ ")):
            yield start, " ".join(parts)
            parts = []
        # What follows a command is its output.
        if words and not words.startswith("$ "):
            start = start if parts else number
            parts.append(words)


def _is_written(shown: Shown) -> bool:
    by_reason = _patterns()
    chosen = by_reason.values() if shown.reason is None else (by_reason[shown.reason],)
    return any(pattern.fullmatch(shown.text) for some in chosen for pattern in some)


@cache
def _patterns() -> Mapping[str, frozenset[re.Pattern[str]]]:
    found: dict[str, set[re.Pattern[str]]] = {}
    for example in list_examples():
        found.setdefault(example.reason, set()).add(compile_message(example.message))
    return {reason: frozenset(patterns) for reason, patterns in found.items()}


def compile_message(message: str) -> re.Pattern[str]:
    """Return what a message looks like with other names, numbers and times."""
    words = " ".join(map(_generalize, message.split(" ")))
    listed = re.sub(r"\\S\+(?:, \\S\+)+", r"\\S+(?:, \\S+)*", words)
    return re.compile(listed)


def _generalize(word: str) -> str:
    bare = word.strip("(),.;:")
    if not bare:
        return re.escape(word)
    before, _, after = word.partition(bare)
    middle = _VARIABLE if _is_name(bare) else re.escape(bare)
    return f"{re.escape(before)}{middle}{re.escape(after)}"


def _is_name(word: str) -> bool:
    """Whether a word is a number, a time, or a name of the example."""
    return (
        word in _NAMES
        or any(character.isdigit() for character in word)
        or any(sign in word for sign in "/:{}")
        or ("-" in word and word.islower() and "order" in word)
    )


def _shares_words(text: str) -> bool:
    return not _runs(text).isdisjoint(_example_runs())


@cache
def _example_runs() -> frozenset[tuple[str, ...]]:
    return frozenset(run for one in list_examples() for run in _runs(one.message))


def _runs(text: str) -> frozenset[tuple[str, ...]]:
    """Return each run of successive words; names, numbers and quoted values do not count."""
    unquoted = re.sub(r'"[^"]*"', "", text.lower())
    stripped = (word.strip("(),.;:") for word in unquoted.split())
    words = [word for word in stripped if word.isalpha()]
    return frozenset(
        tuple(words[at : at + SHARED_WORDS]) for at in range(len(words) - SHARED_WORDS + 1)
    )


# Columns


def _find_column_faults(block: Block) -> Iterator[str]:
    for (number, header), *rows in _find_tables(block):
        if not _are_printed(header.split()):
            shown = " ".join(header.split())
            yield f"{block.page}:{number}: no kind has the columns {shown}"
        if "REASON" not in header.split():
            continue
        for line, row in rows:
            reason = row[header.find("REASON") :].split(" ", 1)[0]
            if reason and reason not in _REASONS:
                yield f"{block.page}:{line}: there is no reason {reason}"


def _find_tables(block: Block) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of each output of `kubectl get` of Pelops' kinds, with their numbers."""
    is_kubectl = True
    table: list[tuple[int, str]] = []
    for number, line in enumerate([*block.code.splitlines(), ""], block.line):
        if line.startswith("$ "):
            is_kubectl = line.startswith("$ kubectl get ")
        begins = is_kubectl and _names_our_columns(line.split())
        ends = not line.strip() or line.startswith("$ ") or bool(_CONDITION.match(line))
        if table and (begins or ends):
            yield table
            table = []
        if begins or (table and not ends):
            table.append((number, line))


def _names_our_columns(columns: list[str]) -> bool:
    """Whether this is the first line of `kubectl get` of one of Pelops' kinds."""
    if "NAME" not in columns[:2] or not all(map(_COLUMN.fullmatch, columns)):
        return False
    own = {name for kind in _KINDS for name in _columns(kind.columns)} - {"READY", "AGE"}
    return len(own.intersection(columns)) > 1


def _are_printed(columns: list[str]) -> bool:
    shown = columns[columns.index("NAME") + 1 :]
    for kind in _KINDS:
        usual = _columns(one for one in kind.columns if not one.is_wide)
        wide = _columns(kind.columns)
        if shown in (usual, usual[:-1]):
            return True
        if len(shown) >= len(usual) and shown == wide[: len(shown)]:
            return True
    return False


def _columns(columns: Iterable[PrinterColumn]) -> list[str]:
    return [column.name.upper() for column in columns]


if __name__ == "__main__":
    sys.exit(main())
