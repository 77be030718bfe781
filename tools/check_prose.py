"""Check the words that users read: `python -m tools.check_prose [FILE ...]`.

What is checked, all by one set of rules (`tools/prose/rules.py`):

- Markdown: docs, README, CHANGELOG, CONTRIBUTING, SECURITY and the collected messages of the
  operator, without code
- descriptions in the CustomResourceDefinitions, and the help of metrics
- messages in the command line, the worker SDK, the pipeline, the data source, the demo and the
  dashboards; pages made from templates; `make help`
- comments of manifests, of the Helm chart and of examples; headers of Lua scripts
- docstrings and comments in Python, comments in Lua
- words that the glossary replaces: also in comments, docstrings and identifiers of all sources

Prints file, line, the word and what to write instead, and exits with 1 when it found any.
`tools/prose/exceptions.txt` lists files that are not clean yet. Only the glossary is checked in
them. A file that is listed and clean is an error too, so the list only becomes shorter.
`--unclean` prints what the list would have to be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.prose.names import find_names, is_allowed
from tools.prose.rules import (
    Finding,
    find_description_faults,
    find_glossary_words,
    find_metric_help_faults,
    find_prose_faults,
)
from tools.prose.texts import Kind, find_texts

EXCEPTIONS: Final = Path(__file__).parent / "prose/exceptions.txt"
_CHECKED: Final = (
    *("*.py", "*.lua", "*.md", "*.html", "Makefile"),
    *("crds/*.yaml", "manifests/*.yaml", "chart/*.yaml", "examples/*.yaml"),
)
_SKIPPED: Final = (
    # They name what is replaced.
    *("docs/glossary.md", "tools/prose/", "tests/unit/test_check_prose.py"),
    "chart/pelops-operator/files/",  # copies of the manifests
)
# The log of what was, and what others wrote.
_GLOSSARY_NOT_CHECKED: Final = ("CHANGELOG.md",)


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was found; return 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", help="default: every tracked file")
    parser.add_argument("--unclean", action="store_true", help="print the files that are not clean")
    given = parser.parse_args(argv)
    checked = {file: list(check_file(file)) for file in given.files or find_files()}
    if given.unclean:
        print("\n".join(file for file, found in checked.items() if _count_prose(found)))
        return 0
    exceptions = read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
    faults = [
        f"{file}:{fault.line}: {fault.word!r}: write: {fault.instead}"
        for file, found in checked.items()
        for fault in found
        if fault.glossary or file not in exceptions
    ]
    if not given.files:
        faults += check_exceptions(exceptions, checked)
    print("\n".join(faults) if faults else f"{len(checked)} files: no fault", flush=True)
    if faults:
        print(f"{len(faults)} faults; docs/glossary.md has the words", file=sys.stderr)
    return 1 if faults else 0


def find_files() -> list[str]:
    """List the tracked files that are checked."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_CHECKED],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        file
        for file in listed.stdout.splitlines()
        if not file.startswith(_SKIPPED) and Path(file).is_file()
    ]


def check_file(file: str) -> list[Finding]:
    """Return what is found in one file, by line."""
    source = Path(file).read_text(encoding="utf-8")
    return sorted(set(check_source(file, source)), key=lambda found: (found.line, found.word))


def check_source(file: str, source: str) -> Iterator[Finding]:
    """Yield what is found in the text of a file with this name."""
    if file.endswith(".py"):
        yield from find_names(file, source)
    for text in find_texts(file, source):
        for found in _check_text(text.kind, text.words):
            if found.glossary and (is_allowed(file, found.word) or file in _GLOSSARY_NOT_CHECKED):
                continue
            yield Finding(text.line + found.line, found.word, found.instead, found.glossary)


def _check_text(kind: Kind, words: str) -> Iterator[Finding]:
    # The words of field descriptions are those of the models in Python, and PLAIN_SOURCE is also
    # read as SOURCE.
    if kind not in {Kind.FIELD_DESCRIPTION, Kind.PLAIN_SOURCE}:
        yield from find_glossary_words(words)
    if kind is not Kind.SOURCE:
        yield from find_prose_faults(words)
    if kind is Kind.METRIC_HELP:
        yield from find_metric_help_faults(words)
    if kind is Kind.FIELD_DESCRIPTION:
        yield from find_description_faults(words)


def read_exceptions(text: str) -> set[str]:
    """Return the files that the list names; `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line}


def check_exceptions(exceptions: Iterable[str], checked: dict[str, list[Finding]]) -> list[str]:
    """Return what is wrong with the list: files that are clean, or are not there."""
    return [
        f"tools/prose/exceptions.txt: {file} "
        + ("is clean" if file in checked else "does not exist")
        + ": remove it from the list"
        for file in sorted(exceptions)
        if not _count_prose(checked.get(file, []))
    ]


def _count_prose(found: Iterable[Finding]) -> int:
    return sum(not one.glossary for one in found)


if __name__ == "__main__":
    sys.exit(main())
