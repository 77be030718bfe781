"""Which dead letters a redrive takes: the selection of its spec, applied to each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import re2

from pelops.domain.entry_id import EntryId
from pelops.domain.records.dead_letter import DeadLetter
from pelops.domain.records.redrive import PlannedLetterAction, parse_plan
from pelops.errors import InvalidSpec
from pelops.policy.redrive.payload_shape import describe_shape
from pelops.policy.redrive.triage import build_signature

LONGEST_PATTERN: Final = 1000  # characters
# The search takes time in proportion to the text and to the compiled program: both are bounded.
_PATTERN_MEMORY: Final = 64 * 1024  # bytes: the program, and the states that the search caches
SEARCHED: Final = 4096  # characters of an error
_TOO_LARGE: Final = "too large"  # part of RE2's error for a program that exceeds its memory


class Pattern(Protocol):
    """A compiled regular expression."""

    def search(self, text: str) -> Any:
        """A match anywhere in the text, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Criteria for dead letters: all must match, and an empty one matches any."""

    reasons: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()  # see `find_cluster`
    error_contains: str = ""
    error_matches: Pattern | None = None  # from `compile_pattern`
    fields: tuple[tuple[bytes, bytes], ...] = ()  # field and value, all of which it has
    after: datetime | None = None  # dead-lettered at this moment or later
    before: datetime | None = None  # dead-lettered earlier
    ids: frozenset[EntryId] | None = None  # of dead letters; None: any
    planned: frozenset[EntryId] | None = None  # from `read_planned`; None: any
    max_returned: int | None = None  # most redrives that it had before; None: any

    def selects(self, letter: DeadLetter) -> bool:
        """Whether a dead letter is selected. The expensive criteria come last."""
        return (
            (self.ids is None or letter.entry_id in self.ids)
            and (self.planned is None or letter.entry_id in self.planned)
            and (not self.reasons or letter.reason in self.reasons)
            and (self.after is None or letter.dead_lettered >= self.after)
            and (self.before is None or letter.dead_lettered < self.before)
            and (self.max_returned is None or letter.returned <= self.max_returned)
            and self.error_contains in letter.error
            and all(pair in letter.pairs for pair in self.fields)
            and self._matches(letter)
            and (not self.clusters or find_cluster(letter) in self.clusters)
        )

    def _matches(self, letter: DeadLetter) -> bool:
        pattern = self.error_matches
        return pattern is None or pattern.search(letter.error[:SEARCHED]) is not None


def find_cluster(letter: DeadLetter) -> str:
    """Return the cluster of a dead letter, as the triage of an audit does."""
    shape = describe_shape(letter.pairs)
    return build_signature(reason=letter.reason, error=letter.error, shape=shape).cluster


def compile_pattern(text: str) -> Pattern:
    """Compile a regular expression in the syntax of RE2, whose search takes linear time.

    Raises InvalidSpec for a text that is invalid, too long, or too large once compiled.
    """
    if len(text) > LONGEST_PATTERN:
        raise InvalidSpec(
            f"spec.selection.errorMatches has {len(text)} characters: use at most {LONGEST_PATTERN}"
        )
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(text, options)  # type: ignore[no-any-return]
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        shown = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else detail
        if _TOO_LARGE in shown:
            raise InvalidSpec(
                "spec.selection.errorMatches is too large once it is compiled. Use shorter "
                "repetitions, such as .* in place of .{0,500}, and narrower classes, such as [a-z] "
                "in place of \\pL"
            ) from error
        raise InvalidSpec(
            f"spec.selection.errorMatches is not a regular expression of RE2: {shown}. Look-around "
            "and back-references are not supported: see https://github.com/google/re2/wiki/Syntax"
        ) from error


def read_planned(lines: Iterable[str], *, stream: str, group: str) -> frozenset[EntryId]:
    """Read the IDs of the dead letters that a redrive plan marks for redrive.

    Raises InvalidSpec if it is not a plan, or the plan of another group.
    """
    header, letters = parse_plan(lines)
    if (header.stream, header.group) != (stream, group):
        raise InvalidSpec(
            f"the redrive plan is for group {header.group} of stream {header.stream}, not for "
            f"group {group} of stream {stream}"
        )
    return frozenset(one.entry_id for one in letters if one.action is PlannedLetterAction.REDRIVE)
