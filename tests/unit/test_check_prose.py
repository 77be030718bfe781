"""The check of prose finds what plain technical English replaces, where users read, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_prose
from tools.prose.rules import GLOSSARY, MAXIMUM_WORDS, PROSE
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
    ("file", "source"),
    [
        ("operator/pelops/a.py", "class ScanReport: ..."),
        ("operator/pelops/a.py", 'FIELD = "sweep:report"'),
        ("docs/a.md", "Run `python -m benchmarks.sweep`; the field is `crowd:<consumer>`."),
        ("docs/a.md", "Latency, outdoors, hindsight."),
        ("tests/faults/a.py", "robbed: int = 0"),
    ],
)
def test_what_is_stored_or_only_similar_may_stay(file: str, source: str) -> None:
    assert _words(file, source) == []


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("The operator tells the number of entries.", "tells"),
        ("The group owes 3 entries.", "owes"),
        ("The letters of this group are kept.", "letters"),
        ("The group is looked after again.", "looked after"),
        ("The entry waits for its turn.", "its turn"),
        ("The metric says how many.", "metric says"),
        ("When the pod is gone, entries are requeued.", "is gone"),
        ("The token lacks a right.", "lacks"),
        ("Nobody reads the stream.", "Nobody"),
        ("We recommend 30 s.", "We"),
        ("A stream of yours.", "of yours"),
        ("Redis forgets the script.", "Redis forgets"),
        ("The value is no number.", "is no number"),
        ("Checked now and then.", "now and then"),
        ("Some commands, e.g. XADD.", "e.g."),
        ("Simply run it.", "Simply"),
        ("Just run it.", "Just"),
        ("It is currently 30 s.", "currently"),
        ("Clusters are not supported yet.", "not supported yet"),
        ("The behaviour of a worker.", "behaviour"),
        ("Entries are recieved.", "recieved"),
        ("Whoever reads this.", "Whoever"),
    ],
)
def test_a_word_that_is_not_plain_is_found_in_docs_and_comments(sentence: str, word: str) -> None:
    assert _words("docs/a.md", sentence) == [word]
    assert _words("operator/pelops/cli/a.py", f'print("{sentence} Then it ends.")') == [word]
    assert _words("operator/pelops/policy/a.py", f"# {sentence}") == [word]
    assert _words("operator/pelops/policy/a.py", f'print("{sentence} Then it ends.")') == []
    assert _words("operator/pelops/a.lua", f"local x = 1 -- {sentence}") == [word]


@pytest.mark.parametrize(
    "sentence",
    [
        "Dead letters are kept for 7 days, and the dead-letter stream too.",
        "A name has lower case letters and digits.",
        "Turn it off, in turn.",
        "There is no group.",
        "The stream is no longer read.",
        "Use `tell` and ``just``, or [a page](docs/please.md).",
        "See https://example.com/please-just-do for more.",
        "The operator requeues 3 entries of pod `a`.",
        "The pod was deleted at 10:02:11.",
        "This page says which rights Redis clients need in the US.",
    ],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert _words("docs/a.md", sentence) == []


def test_every_rule_has_something_to_write_instead() -> None:
    assert all(instead.strip() for instead in {**GLOSSARY, **PROSE}.values())


def test_a_sentence_has_a_limit_and_a_semicolon_ends_a_clause() -> None:
    clause = " ".join(["word"] * MAXIMUM_WORDS)
    assert _words("docs/a.md", f"{clause}. {clause.capitalize()}.") == []
    assert _words("docs/a.md", f"{clause}; {clause}.") == []
    too_long = f"Short one.\n{clause.capitalize()} more."
    assert _words("docs/a.md", too_long) == ["Word word word word word ..."]
    assert _lines("docs/a.md", too_long) == [2]


def test_code_counts_as_one_word() -> None:
    clause = " ".join(["word"] * (MAXIMUM_WORDS - 1))
    assert _words("docs/a.md", f"{clause} `a b c d e`.") == []


def test_markdown_is_read_by_blocks_without_code() -> None:
    source = "\n".join(
        [
            "---",
            "title: just a name",
            "---",
            "# A letter",
            "",
            "```",
            "just code",
            "```",
            "<!-- just a comment -->",
            "- just an item",
            "  that continues, please",
            "",
            "| a | just a cell |",
            '!!! note "Just a title"',
            "    The text below begins its own sentence.",
        ]
    )
    found = zip(_lines("docs/a.md", source), _words("docs/a.md", source), strict=True)
    assert sorted(found) == [
        (4, "letter"),
        (10, "just"),
        (11, "please"),
        (13, "just"),
        (14, "Just"),
    ]


def test_descriptions_of_fields_are_read_with_their_lines() -> None:
    source = "a:\n  description: Whether it is just so.\n  type: string\n"
    assert _words("crds/a.yaml", source) == ["just", "Whether it is just"]
    assert _lines("crds/a.yaml", source) == [2, 2]


def test_comments_of_manifests_are_read_whole_and_values_are_not() -> None:
    source = "\n".join(
        [
            "# The group",
            "# owes entries.",
            "a: just#owed   # removes an owed entry",
            'b: "please"',
            "  {{- if .Values.just }} # please",
        ]
    )
    file = "manifests/a.yaml"
    found = zip(_lines(file, source), _words(file, source), strict=True)
    assert sorted(found) == [(2, "owes"), (3, "owed"), (5, "please")]
    assert check_prose.find_files() != []
    assert not [
        one for one in check_prose.find_files() if one.startswith("chart/pelops-operator/f")
    ]


def test_the_header_of_a_script_is_read_without_what_it_declares() -> None:
    source = "\n".join(
        [
            "-- include: told",
            "-- Forget what somebody",
            "-- told the script.",
            "--",
            "-- KEYS     told",
            "-- RETURNS  told",
            "--          | told",
            "-- Costs  little, and",
            "--        nobody waits.",
            "-- Repeats safely: it tells nothing.",
            "",
            "local a = 1 -- told",
        ]
    )
    file = "operator/pelops/a.lua"
    found = zip(_lines(file, source), _words(file, source), strict=True)
    assert sorted(found) == [
        (2, "somebody"),
        (3, "told"),
        (9, "nobody"),
        (10, "tells"),
        (12, "told"),
    ]


def test_the_help_of_a_metric_begins_with_what_is_counted() -> None:
    good = 'import prometheus_client\nC = Counter("a_total", "Number of scans.", ["x"])'
    assert _words("operator/pelops/a.py", good) == []
    assert _words("operator/pelops/a.py", good.replace("Number of scans", "Scans that ended")) == [
        "Scans that ended."
    ]
    table = '_GAUGES: Final = {"a": "Just a number of entries."}'
    assert _words("operator/pelops/worker/a.py", table) == ["Just", "Just a number of"]


def test_messages_are_read_whole() -> None:
    message = 'raise E(f"{name} must be a number, "\n    "please give one")'
    assert _words("operator/pelops/pipeline/a.py", message) == ["please"]
    assert _words("operator/pelops/controller/a.py", message) == []


def test_docstrings_and_comments_are_read() -> None:
    docstring = '"""Just a worker.\n\n    >>> please(1)\n    """'
    assert _words("operator/pelops/worker/a.py", docstring) == ["Just"]
    source = '"""Just a module."""\n\n# One sentence that\n# goes on.\nX = 1  # nobody\n'
    assert _words("operator/pelops/policy/a.py", source) == ["Just", "goes on", "nobody"]
    assert _words("operator/pelops/policy/a.py", "X = 1  # noqa: PLR2004 - please\n") == []


def test_sql_is_no_prose() -> None:
    assert _words("operator/pelops/pipeline/a.py", 'run("SELECT just a FROM b WHERE c")') == []


def test_pages_and_targets_are_read() -> None:
    page = "<style>just</style><p>{{ just }} a\n{% if just %}<b>just a word</b>{% endif %}</p>"
    assert _lines("operator/a.html", page) == [2]
    assert _words("Makefile", 'up: ## Just start\n\t@echo "please wait" >&2 # just\n') == [
        "Just",
        "please",
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "clean.md").write_text("A stream.\n", encoding="utf-8")
    (tmp_path / "unclean.md").write_text("A stream.\n\nJust one.\n", encoding="utf-8")
    return tmp_path


def _check(
    root: Path,
    exceptions: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
) -> tuple[int, list[str]]:
    (root / "exceptions.txt").write_text(exceptions, encoding="utf-8")
    monkeypatch.chdir(root)
    monkeypatch.setattr(check_prose, "EXCEPTIONS", root / "exceptions.txt")
    monkeypatch.setattr(check_prose, "find_files", lambda: ["clean.md", "unclean.md"])
    ended = check_prose.main(arguments)
    return ended, capsys.readouterr().out.splitlines()


def test_a_fault_is_printed_with_its_place_and_what_to_write(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(root, "", monkeypatch, capsys) == (
        1,
        ["unclean.md:3: 'Just': write: leave it out; only"],
    )
    assert _check(root, "", monkeypatch, capsys, "clean.md") == (0, ["1 files: no fault"])


def test_a_listed_file_is_let_through_but_for_the_glossary(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(root, "unclean.md  # a page\n", monkeypatch, capsys)[0] == 0
    (root / "unclean.md").write_text("Just a sweep.\n", encoding="utf-8")
    assert _check(root, "unclean.md\n", monkeypatch, capsys) == (
        1,
        ["unclean.md:1: 'sweep': write: scan"],
    )


def test_the_list_only_becomes_shorter(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = "clean.md\nmissing.md\nunclean.md\n"
    assert _check(root, listed, monkeypatch, capsys) == (
        1,
        [
            "tools/prose/exceptions.txt: clean.md is clean: remove it from the list",
            "tools/prose/exceptions.txt: missing.md does not exist: remove it from the list",
        ],
    )
    assert _check(root, listed, monkeypatch, capsys, "--unclean") == (0, ["unclean.md"])


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
