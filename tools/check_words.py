"""Find words that the glossary replaces: `python tools/check_words.py [FILE ...]`.

Reads every tracked Python, Lua and Markdown file, and prints the place, the word and what to write
instead. Ends with 1 when it found any. `docs/glossary.md` says what the standard words mean.

Identifiers are checked by their parts (`open_sweep`, `SweepReport`), text by whole words. In text,
what stands in back-quotes is code and is not checked.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

# A part of an identifier of ours -> what to write instead.
NAMES = {
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

# A regular expression for words in comments, docstrings, messages and docs -> what to write.
TEXT = {
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

# Names that stay, by file: what is stored in Redis or printed as JSON, and other projects' words.
ALLOWED = {
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
    "docs/architecture/index.md": {"bookmark", "bookmarks"},
    "docs/reference/*.md": {"bookmark", "sweep"},
    "docs/runbook/*.md": {"sweep"},
    "docs/architecture/decisions/*": {"bookmark", "bookmarks"},
    "local_cluster/*": {"bookmark", "bookmarks"},
}
SKIPPED = (
    "CHANGELOG.md",
    "docs/glossary.md",
    "tools/check_words.py",
    "tests/unit/test_check_words.py",
)

# In the name of a test somebody may be told something.
_SAID_OF_PEOPLE = {"told", "tell", "tells"}

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CODE = re.compile(r"```.*?```|``[^`\n]*``|`[^`\n]*`", re.DOTALL)
_TEXT = [
    (re.compile(rf"(?<![\w./#:-])(?:{word})(?![\w/:*-]|\.\w)", re.IGNORECASE), better)
    for word, better in TEXT.items()
]


def is_allowed(file: str, word: str) -> bool:
    """Whether this file may use the word."""
    return any(word.lower() in words for glob, words in ALLOWED.items() if fnmatch(file, glob))


def check_name(file: str, name: str) -> str | None:
    """Return what to write instead of a part of the identifier; None when it may stay."""
    parts = [part.lower() for part in _PART.findall(name)]
    joined = "_".join(parts)
    if is_allowed(file, name) or any(word in joined for word in ALLOWED["*"] if "_" in word):
        return None
    for part in parts:
        if part in _SAID_OF_PEOPLE and name.startswith("test_"):
            continue
        singular = part.removesuffix("s")
        for word in (part, singular, part.removesuffix("es"), part.removesuffix("ed")):
            if word in NAMES and not is_allowed(file, part) and not is_allowed(file, word):
                return NAMES[word]
    return None


def check_text(file: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line within the text, the word and what to write instead, for each word."""
    text = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    for pattern, better in _TEXT:
        for found in pattern.finditer(text):
            if not is_allowed(file, found.group()):
                yield text.count("\n", 0, found.start()), found.group(), better


def check_python(file: str, source: str) -> Iterator[tuple[int, str, str]]:
    """As `check_text`, for identifiers that the file defines, comments and sentences in strings."""
    for node in ast.walk(ast.parse(source)):
        for line, name in _definitions(node):
            better = check_name(file, name)
            if better is not None:
                yield line, name, better
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_sentence = (
            token.type == tokenize.STRING and len(re.findall(r"[a-z]+ ", token.string)) > 3
        )
        if token.type == tokenize.COMMENT or is_sentence:
            for line, word, better in check_text(file, token.string):
                yield token.start[0] + line, word, better


def _definitions(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield node.lineno, name
        case ast.arg(arg=name):
            yield node.lineno, name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield node.lineno, name


def check_lua(file: str, source: str) -> Iterator[tuple[int, str, str]]:
    """As `check_text`, for the comments of a script."""
    for number, line in enumerate(source.split("\n"), 1):
        _, sign, comment = line.partition("--")
        if sign and not re.match(r"\s*(include:|KEYS|ARGV|READS|WRITES|RETURNS)", comment):
            for _, word, better in check_text(file, comment):
                yield number, word, better


def check_file(file: str, source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, word and what to write instead, for each word that the glossary replaces."""
    if file.endswith(".py"):
        yield from check_python(file, source)
    elif file.endswith(".lua"):
        yield from check_lua(file, source)
    else:
        for line, word, better in check_text(file, source):
            yield line + 1, word, better


def find_files() -> list[str]:
    """List the tracked files that are checked."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.lua", "*.md"], capture_output=True, text=True, check=True
    )
    return [file for file in listed.stdout.splitlines() if file not in SKIPPED]


def main(files: list[str]) -> int:
    """Print what was found; return 1 if anything was."""
    count = 0
    for file in files or find_files():
        path = Path(file)
        if not path.is_file():
            continue
        for line, word, better in sorted(set(check_file(file, path.read_text(encoding="utf-8")))):
            count += 1
            print(f"{file}:{line}: {word!r}: write {better!r} (docs/glossary.md)")
    if count:
        print(f"{count} words that the glossary replaces")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
