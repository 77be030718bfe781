"""Plain technical English as patterns: a word or a phrase, and what to write instead.

`GLOSSARY` are words that `docs/glossary.md` replaces. They are checked everywhere: in what users
read and in comments and docstrings. `PROSE` is checked in what users read alone.

A rule belongs here when nearly every hit is a fault. What is right in some sentences and wrong in
others (the passive voice, "will", "should") is a matter for review.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

MAXIMUM_WORDS: Final = 30

GLOSSARY: Final = {
    r"sweep(s|er|ing)?|swept": "scan",
    r"doors?": "adapter",
    r"latch(es|ed)?": "sticky condition",
    r"(is|are|was|were|be|been) robbed|robs": "premature recovery",
    r"hand-over": "offer",
    r"(is|are|was|were|be|been) charged": "counted as failed",
    r"what (the|a) group (still )?owes|(nothing|what) (is|was) owed": "backlog",
    r"idle limit": "processing timeout",
    r"(?<!lost )sight": "observation",
    r"bookmarks?": "checkpoint",
}

_PROGRAM: Final = (
    r"(audit|client|cluster|command|controller|data source|group|handler|job|operator|pelops"
    r"|pipeline|pod|program|redis|replica|resource|scaler|scan|script|server|spark|stream|worker)s?"
)
# Letters of an alphabet are no dead letters.
_ALPHABET: Final = r"(?! and (digits|numbers)|, digits| or digits)"

PROSE: Final = {
    # Words of our own for what has a name.
    r"(?<!dead )(?<!dead-)(?<!case )(?<!capital )(?<!small )letters?" + _ALPHABET: "dead letters",
    r"owe[sd]?|owing": "backlog; unprocessed entries",
    r"rob|robbed|robbing": "recover from a live worker",
    r"(look|looks|looked|looking) after": "manage; reconcile",
    r"tell|tells|told|telling": "report; show; log; return",
    rf"({_PROGRAM}|condition|event|field|ledger|metric|status) (says|said)":
        "reports; shows; returns; records",
    r"hands? off": "does not change",
    r"hand(s|ed|ing)? over|handover": "offer; transfer",
    r"mend(s|ed|ing)?": "fix",
    r"namesakes?": "pod (group, resource) with the same name",
    r"blam(e|ed|es|ing)": "count as a failed attempt",
    r"on trial": "retried in isolation",
    r"crowd(s|ed)?": "co-failed entries",
    r"signs? of life": "heartbeat",
    r"(its|their|whose|a|one|each|every|next|this|that) turn|(their|of) turns": "pass; the event",
    r"goes? on|going on|went on": "continues",
    r"stands? (at|in|there|beside|still|on|between|open)": "is",
    r"stood (at|in|there|beside|still|on|between|open)": "was",
    r"(is|are|was|were|be) gone": "no longer exists; is deleted; is trimmed",
    r"lacks?|lacking|lacked": "does not have; is missing",
    # Who is meant.
    r"nobody|somebody|anybody|whoever|whomever": "name the actor",
    r"whom": "use `who`, or name the actor",
    r"we|our|ours|(?-i:us)": "name the actor; address the reader as `you`",
    r"of (yours|theirs|ours)": "your; their",
    # Objects do not feel, hope or know.
    _PROGRAM + r" (believes?|forgets?|hopes?|likes?|minds?|remembers?|sees?|thinks?|wants?)":
        "say what it does: detects, records, requires, has no information about",
    r"gives? way|giving way|gave way": "yields; conflicts with",
    # Riddles, litotes and old words.
    r"(?<!there )(is|are) no (?!longer|more|less)\w+": "is not a ...",
    r"not without|nothing but": "say it directly",
    r"at last|by which|unless said|what lacks|now and then|once for all|all the same":
        "say it directly: finally, periodically, nevertheless",
    r"anew": "again",
    r"for good": "permanently",
    r"in vain": "without success",
    r"(is|are|was|were|be) found out": "is detected",
    r"bears?|borne|bearing": "tolerate",
    r"ought|shall|thus|hence|thereby|whereby|whereof|thereof|hitherto|albeit|whilst|amidst?|lest":
        "an ordinary word: must, so, which, although, while",
    r"as ever|ever so|so to speak|as it were|that is to say": "leave it out",
    r"want(s|ed)? to know": "requires",
    r"comes? to nothing": "has no effect",
    r"a good deal|a great many": "much; many",
    # Latin, and words that carry nothing.
    r"e\.g\.|eg\.": "for example",
    r"i\.e\.|ie\.": "that is",
    r"viz\.|cf\.|vs\.": "namely; see; compared with",
    r"please|simply|easily|obviously|of course|naturally|basically|actually|clearly":
        "leave it out",
    r"just": "leave it out; only",
    r"currently|at present|nowadays|for now": "leave it out, or name the version",
    # Promises.
    r"in the near future|in a (later|future|coming) (release|version)|coming soon"
    r"|will (soon )?be (supported|added|implemented)|not supported yet|not yet supported":
        "say what holds in this version",
}  # fmt: skip

_METRIC_HELP: Final = re.compile(
    r"(Total number|Number|Seconds|Bytes|Unix time|Ratio|Share|Rate|Size|Age|Duration|Distribution"
    r"|Longest|Largest|Highest|Lowest|Version|Entries per second|1) |Always 1"
)
_QUESTION: Final = re.compile(
    r"(Whether|By|What|How|If|Who|Whose|Where|Why|Is|Are|Does|Do|It|This|That|There)\b"
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])[)\"'*_]*\s+(?=[^a-z])|;\s")
_WORD: Final = re.compile(r"[^\s|]*\w[^\s|]*|\N{WHITE BULLET}")
_SPELLED: Final = re.compile(r"(?<![\w/@.-])[A-Za-z][A-Za-z']+(?![\w/@]|\.\w)")
# Redis and asyncio spell so, and `NotIn` is an operator of Kubernetes.
_SPELLED_RIGHT: Final = {"acknowledgement", "acknowledgements", "cancelled", "notin"}


@dataclass(frozen=True)
class Finding:
    """A fault: the line within the text, the word, and what to write instead."""

    line: int
    word: str
    instead: str
    glossary: bool = False  # it holds in every file; no exception is made


def _compile(words: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(rf"(?<![\w./#:-])(?:{word})(?![\w/:*-]|\.\w)", re.IGNORECASE), instead)
        for word, instead in words.items()
    ]


_GLOSSARY: Final = _compile(GLOSSARY)
_PROSE: Final = _compile(PROSE)
# One pattern that finds whether any does: most texts are clean.
_ANY_PROSE: Final = re.compile(rf"\b(?:{'|'.join(PROSE)})", re.IGNORECASE)
# Each match of a rule of the glossary holds one of these. Whole files are searched for them first.
_STEMS: Final = (
    *("sweep", "swept", "door", "latch", "robbed", "robs", "hand-over", "charged", "owes"),
    *("owed", "idle limit", "sight", "bookmark"),
)
_ANY_STEM: Final = re.compile(rf"\b(?:{'|'.join(_STEMS)})")


def may_break_glossary(text: str) -> bool:
    """Whether a closer look is worth its time."""
    lowered = text.lower()
    return any(stem in lowered for stem in _STEMS) and _ANY_STEM.search(lowered) is not None


def find_glossary_words(text: str) -> Iterator[Finding]:
    """Yield the words that the glossary replaces."""
    for pattern, instead in _GLOSSARY:
        for found in pattern.finditer(text):
            yield Finding(text.count("\n", 0, found.start()), found.group(), instead, True)


def find_prose_faults(text: str) -> Iterator[Finding]:
    """Yield what a text for users does not say plainly: words, spelling, long sentences."""
    if _ANY_PROSE.search(text):
        for pattern, instead in _PROSE:
            for found in pattern.finditer(text):
                word = " ".join(found.group().split())
                yield Finding(text.count("\n", 0, found.start()), word, instead)
    yield from find_misspellings(text)
    yield from find_long_sentences(text)


def find_long_sentences(text: str) -> Iterator[Finding]:
    """Yield each sentence, or clause between semicolons, of more than `MAXIMUM_WORDS` words."""
    start = 0
    for end in [*_SENTENCE_END.finditer(text), None]:
        sentence = text[start : end.start() if end else len(text)]
        words = _WORD.findall(sentence)
        if len(words) > MAXIMUM_WORDS:
            line = text.count("\n", 0, start + len(sentence) - len(sentence.lstrip()))
            first = " ".join(words[:5])
            yield Finding(
                line, f"{first} ...", f"{MAXIMUM_WORDS} words at most; these are {len(words)}"
            )
        start = end.end() if end else start


def find_misspellings(text: str) -> Iterator[Finding]:
    """Yield words that codespell's dictionaries correct, British spelling among them."""
    known = _misspellings()
    for found in _SPELLED.finditer(text):
        better = known.get(found.group().lower())
        if better is not None:
            yield Finding(text.count("\n", 0, found.start()), found.group(), better)


def find_metric_help_faults(text: str) -> Iterator[Finding]:
    """Yield what is wrong with the help of a metric, beside its prose."""
    if not _METRIC_HELP.match(text):
        begin = "begin with what is counted and its unit: `Number of ...`, `Seconds since ...`"
        yield Finding(0, _first_words(text), begin)


def find_description_faults(text: str) -> Iterator[Finding]:
    """Yield what is wrong with the description of a field, beside its prose."""
    if _QUESTION.match(text):
        yield Finding(0, _first_words(text), "begin with a noun or a verb: what the field controls")


def _first_words(text: str) -> str:
    return " ".join(text.split()[:4])


@cache
def _misspellings() -> dict[str, str]:
    """Each misspelling, in small letters, with its correction."""
    corrections: dict[str, str] = {}
    for name in ("dictionary.txt", "dictionary_rare.txt", "dictionary_en-GB_to_en-US.txt"):
        read = (files("codespell_lib") / "data" / name).read_text(encoding="utf-8")
        for line in read.splitlines():
            wrong, _, better = line.partition("->")
            corrections.setdefault(wrong, better.strip(", "))
    return {wrong: better for wrong, better in corrections.items() if wrong not in _SPELLED_RIGHT}
