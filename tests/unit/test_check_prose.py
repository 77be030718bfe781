"""The check of prose finds what plain technical English replaces, where users read, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_prose
from tools.prose.rules import MAXIMUM_WORDS
from tools.prose.texts import find_texts

pytestmark = pytest.mark.full


def _words(file: str, source: str) -> list[str]:
    return [found.word for found in check_prose.check_source(file, source)]


def _lines(file: str, source: str) -> list[int]:
    return [found.line for found in check_prose.check_source(file, source)]


@pytest.mark.parametrize(
    ("file", "source", "found"),
    [
        ("operator/pelops/a.py", "class SweepReport: ...", ["SweepReport"]),
        ("operator/pelops/a.py", "def f(door: int) -> None: ...", ["door"]),
        ("operator/pelops/a.py", "for door in 1, 2: ...", ["door"]),
        ("operator/pelops/a.py", "self.door += 1", ["door"]),
        ("operator/pelops/a.py", "# the next sweep sees it", ["sweep"]),
        ("tests/a.py", 'x = "Nothing is owed any more by the group."', ["Nothing is owed"]),
        ("operator/pelops/a.lua", "local x = 1 -- the hand-over stream", ["hand-over"]),
        ("docs/a.md", "Its idle limit is 30 s.", ["idle limit"]),
    ],
)
def test_a_word_that_the_glossary_replaces_is_found(
    file: str, source: str, found: list[str]
) -> None:
    assert _words(file, source) == found


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("The operator tells the number of entries.", "tells"),
        ("The group owes 3 entries.", "owes"),
        ("The metric says how many.", "metric says"),
        ("Nobody reads the stream.", "Nobody"),
        ("We recommend 30 s.", "We"),
        ("Some commands, e.g. XADD.", "e.g."),
        ("Clusters are not supported yet.", "not supported yet"),
        ("The behaviour of a worker.", "behaviour"),
        ("Entries are recieved.", "recieved"),
    ],
)
def test_a_word_that_is_not_plain_is_found_in_docs_and_comments(sentence: str, word: str) -> None:
    assert _words("docs/a.md", sentence) == [word]
    assert _words("operator/pelops/cli/a.py", f'print("{sentence} Then it ends.")') == [word]
    assert _words("operator/pelops/policy/a.py", f"# {sentence}") == [word]
    assert _words("operator/pelops/policy/a.py", f'print("{sentence} Then it ends.")') == []
    assert _words("operator/pelops/a.lua", f"local x = 1 -- {sentence}") == [word]


def test_a_sentence_has_a_limit_and_a_semicolon_ends_a_clause() -> None:
    clause = " ".join(["word"] * MAXIMUM_WORDS)
    assert _words("docs/a.md", f"{clause}. {clause.capitalize()}.") == []
    assert _words("docs/a.md", f"{clause}; {clause}.") == []
    assert _words("docs/a.md", f"{clause[5:]} `a b c d e`.") == []  # code is one word
    too_long = f"Short one.\n{clause.capitalize()} more."
    assert _words("docs/a.md", too_long) == ["Word word word word word ..."]
    assert _lines("docs/a.md", too_long) == [2]


_MARKDOWN = """---
title: just a name
---
# A letter

```
just code
```
<!-- just a comment -->
- just an item
  that continues, please

| a | just a cell |
"""
_MANIFEST = """# The group
# owes entries.
a: just#owed   # removes an owed entry
b: "please"
"""
_SCRIPT = """-- include: told
-- Forget what somebody
-- told the script.
--
-- KEYS     told
-- Costs  little, and
--        nobody waits.

local a = 1 -- told
"""
_PYTHON = '''"""Just a module."""

# One sentence that
# goes on.
X = 1  # nobody
'''


@pytest.mark.parametrize(
    ("file", "source", "found"),
    [
        ("docs/a.md", _MARKDOWN, ["4 letter", "10 just", "11 please", "13 just"]),
        ("manifests/a.yaml", _MANIFEST, ["2 owes", "3 owed"]),
        ("operator/pelops/a.lua", _SCRIPT, ["2 somebody", "3 told", "7 nobody", "9 told"]),
        ("operator/pelops/policy/a.py", _PYTHON, ["1 Just", "4 goes on", "5 nobody"]),
        ("crds/a.yaml", "a:\n  description: Number just so.\n", ["2 just"]),
        ("operator/pelops/pipeline/a.py", 'run("SELECT just a FROM b WHERE c")', []),
        ("operator/a.html", "<style>just</style><p>{{ just }} a\n<b>just</b></p>", ["2 just"]),
        ("Makefile", "up: ## Just start\n\t@make # just\n", ["1 Just"]),
    ],
)
def test_prose_is_found_in_each_kind_of_file(file: str, source: str, found: list[str]) -> None:
    faults = zip(_lines(file, source), _words(file, source), strict=True)
    assert [f"{line} {word}" for line, word in sorted(faults)] == found


def test_a_listed_file_is_let_through_but_for_the_glossary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_prose, "EXCEPTIONS", tmp_path / "exceptions.txt")
    monkeypatch.setattr(check_prose, "find_files", lambda: ["a.md"])
    for listed, text, faults in (
        ("", "Just one.\n", ["a.md:1: 'Just': write: leave it out; only"]),
        ("a.md\n", "Just one.\n", []),
        ("a.md\n", "Just a sweep.\n", ["a.md:1: 'sweep': write: scan"]),
        ("a.md\n", "One.\n", ["exceptions.txt: a.md is clean: remove it from the list"]),
    ):
        (tmp_path / "exceptions.txt").write_text(listed)
        (tmp_path / "a.md").write_text(text)
        assert check_prose.main([]) == bool(faults)
        printed = capsys.readouterr().out
        assert all(fault in printed for fault in faults)


def test_what_users_read_is_found_where_it_is() -> None:
    """The files that the check is for yield texts: a changed layout does not empty it."""
    root = Path(__file__).parents[2]
    for file in (
        "README.md",
        "crds/streamconsumergroups.pelops.dev.yaml",
        "operator/pelops/metrics.py",
        "operator/pelops/cli/main.py",
        "operator/pelops/pipeline/report/templates/page.html",
        "Makefile",
        "manifests/base/cluster_role.yaml",
        "operator/pelops/redis_streams/lua/offer_entries.lua",
    ):
        assert len(list(find_texts(file, (root / file).read_text(encoding="utf-8")))) > 5, file
