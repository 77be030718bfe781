"""Identifiers by their parts (`open_sweep`, `SweepReport`), as the glossary has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import Final

from tools.prose.rules import Finding

# A part of an identifier of this project -> what to write instead.
NAMES: Final = {
    "bookmark": "checkpoint",
    "crowd": "co_failed",
    "door": "adapter",
    "doze": "idle",
    "dozing": "idle",
    "latch": "sticky",
    "robbed": "premature_recovery",
    "sight": "observation",
    "sweep": "scan",
    "sweeper": "scanner",
    "swept": "scanned",
    "sweeping": "scanning",
    "told": "reported",
    "tell": "report",
    "tells": "reports",
}

# What stays, by file: what is stored in Redis or printed as JSON, and other projects' words.
ALLOWED: Final = {
    "*": {
        "benchmarks.sweep",  # a benchmark's name
        "all_told",
        "lost_sight",
    },
    # Keys of a result that others read.
    "benchmarks/*": {"sweep", "robbed"},
    "tests/faults/*": {"robbed"},
    "tests/unit/test_history*": {"robbed"},
    "tests/unit/test_benchmark_*": {"sweep", "robbed"},
    "demo/*": {"robbed"},
    # Kubernetes' watch bookmarks.
    "operator/pelops/controller/runtime/*": {"bookmark", "bookmarks"},
    "operator/pelops/metrics.py": {"bookmark"},
    "tests/*": {"bookmark", "bookmarks", "allow_bookmarks"},
    "docs/architecture*": {"bookmark", "bookmarks"},
    "docs/reference/metrics.md": {"bookmark", "bookmarks"},
    "local_cluster/*": {"bookmark", "bookmarks"},
}
# Parts that are allowed in the names of tests.
_SAID_OF_PEOPLE: Final = {"told", "tell", "tells"}
# A name and what follows it where it is defined. A file without any need not be parsed.
_DEFINED: Final = re.compile(rf"(?:{'|'.join(NAMES)})\w*\s*(?:[-=:,(\[)\]|+*/&^%@<>]|in\b)")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def is_allowed(file: str, word: str) -> bool:
    """Whether this file may use the word."""
    return any(word.lower() in words for glob, words in ALLOWED.items() if fnmatch(file, glob))


def find_names(file: str, source: str) -> Iterator[Finding]:
    """Yield the identifiers that a Python file defines and that should be named otherwise."""
    lowered = source.lower()
    if not any(word in lowered for word in NAMES) or not _DEFINED.search(lowered):
        return
    for node in ast.walk(ast.parse(source)):
        for line, name in _definitions(node):
            instead = _check_name(file, name)
            if instead is not None:
                yield Finding(line, name, instead, True)


def _check_name(file: str, name: str) -> str | None:
    parts = [part.lower() for part in _PART.findall(name)]
    for part in parts:
        if part in _SAID_OF_PEOPLE and name.startswith("test_"):
            continue
        for word in (
            part,
            part.removesuffix("s"),
            part.removesuffix("es"),
            part.removesuffix("ed"),
        ):
            if word in NAMES and not _may_stay(file, (name, part, word), "_".join(parts)):
                return NAMES[word]
    return None


def _may_stay(file: str, words: Iterable[str], name: str) -> bool:
    phrases = (phrase for phrase in ALLOWED["*"] if "_" in phrase)
    return any(is_allowed(file, word) for word in words) or any(one in name for one in phrases)


def _definitions(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield node.lineno, name
        case ast.arg(arg=name):
            yield node.lineno, name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield node.lineno, name
