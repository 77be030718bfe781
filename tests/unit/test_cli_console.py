"""What the command line prints: tables, colors, ages, durations."""

from __future__ import annotations

import argparse
import io
import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from pelops.cli.console import Console
from pelops.cli.display.durations import parse_duration, parse_time, render_age, render_age_of
from pelops.cli.display.tables import (
    Column,
    Style,
    Styled,
    Text,
    display_width,
    make_printable,
    render_table,
)
from pelops.cli.errors import CommandFailed, ExitCode

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
COLUMNS = (Column(name="NAME"), Column(name="LAG", right=True), Column(name="NODE", wide=True))


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines_of(rows: list[tuple[str | int | Styled | None, ...]], *, wide: bool = False) -> list[str]:
    rendered = render_table(COLUMNS, rows, wide=wide)
    return ["".join(one if isinstance(one, str) else one.text for one in line) for line in rendered]


def test_a_table_aligns_its_columns_without_spaces_at_the_end() -> None:
    rows: list[tuple[str | int | Styled | None, ...]] = [
        ("orders", 1240, "a"),
        (Styled("mail", Style.BAD), None, "b"),
    ]
    assert lines_of(rows) == ["NAME      LAG", "orders  1,240", "mail        -"]
    assert lines_of(rows, wide=True) == [
        "NAME      LAG  NODE",
        "orders  1,240  a",
        "mail        -  b",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert display_width("注文") == 4
    assert display_width("e\u0301") == 1
    assert lines_of([("注文", 1, ""), ("orders", 2, "")]) == [
        "NAME    LAG",
        "注文      1",
        "orders    2",
    ]


@pytest.mark.parametrize("text", ["\x1b[2Jx", "a\nb", "a\rb", "\x9b2J", "\u202etxt", "\x00"])
def test_text_of_others_never_reaches_a_terminal_as_control_characters(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(color="always")
    console.line(text, Styled(text, Style.BAD))
    console.table(COLUMNS, [(text, 1, text)])
    console.note(text)
    console.error(text)
    printed = capsys.readouterr()
    assert text not in printed.out + printed.err
    assert make_printable(text) in printed.out
    assert len(printed.out.splitlines()) == 3


@pytest.mark.parametrize(
    ("mode", "terminal", "environment", "colored"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("never", True, {"TERM": "xterm"}, False),
        ("always", False, {"TERM": "dumb", "NO_COLOR": "1"}, True),
    ],
)
def test_colors_are_for_terminals_unless_the_user_says_otherwise(
    mode: str,
    terminal: bool,
    environment: dict[str, str],
    colored: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    Console(color=mode).line("a ", Styled("b", Style.GOOD))
    assert stream.getvalue() == ("a \x1b[32mb\x1b[0m\n" if colored else "a b\n")


def test_a_document_is_json_or_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"kind": "StatusReport", "groups": [{"name": "orders", "message": "a\x9bb"}]}
    for output, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        Console(output=output).document(value)
        printed = capsys.readouterr().out
        assert load(printed) == value
        assert printed.strip().isascii()


def test_next_is_a_command_that_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    Console("kubectl pelops").next("dlq", "show", "orders", "--error", "it's late")
    expected = "next  kubectl pelops dlq show orders --error 'it'\"'\"'s late'\n"
    assert capsys.readouterr().out == expected


def test_a_question_needs_a_terminal_or_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console()
    assert console.confirm("Discard 3 letters?", yes=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(CommandFailed, match="add --yes") as failed:
        console.confirm("Discard 3 letters?", yes=False)
    assert failed.value.code == ExitCode.USAGE
    for answer, agreed in (("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert console.confirm("Discard 3 letters?", yes=False) is agreed


# As k8s.io/apimachinery/pkg/util/duration, HumanDuration, writes them.
AGES = {
    -1: "0s",
    0: "0s",
    119: "119s",
    120: "2m",
    192: "3m12s",
    600: "10m",
    10799: "179m",
    10800: "3h",
    11700: "3h15m",
    28800: "8h",
    172799: "47h",
    172800: "2d",
    180000: "2d2h",
    691200: "8d",
    63071999: "729d",
    63072000: "2y",
    63072000 + 86400: "2y1d",
    252288000: "8y",
}


@pytest.mark.parametrize("seconds", AGES)
def test_an_age_is_written_as_kubectl_writes_it(seconds: int) -> None:
    assert render_age(seconds) == AGES[seconds]


def test_the_age_of_a_time_that_is_none_is_unknown() -> None:
    assert render_age_of("2026-05-04T03:00:01Z", NOW) == "2m"
    for text in ("", None, 5, "yesterday", "2026-05-04T03:00:01"):
        assert render_age_of(text, NOW) == "<unknown>"
    assert parse_time("2026-05-04T03:02:01Z") == NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("0.5", 0.5), ("90s", 90), ("0.2s", 0.2), ("1m30s", 90), ("2h", 7200)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds).total_seconds()


@pytest.mark.parametrize("text", ["", "-1", "1x", "m", "1m 30s", "1e9", "9" * 400])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        (("Stream    ", "orders, group billing"), ["Stream    orders, group billing"]),
        (
            ("Workers   ", "8 of 10 ready, maximum 10; limited by maxReplicas"),
            [
                "Workers   8 of 10 ready, maximum",
                "          10; limited by",
                "          maxReplicas",
            ],
        ),
        (
            ("Backlog   ", "1,240: undelivered 1,000 ", Styled("stuck 240 entries", Style.WARNING)),
            ["Backlog   1,240: undelivered", "          1,000 stuck 240", "          entries"],
        ),
        (("Key       ", "k" * 30), [f"Key       {'k' * 30}"]),
        (("a  b      ", "c"), ["a  b      c"]),
    ],
)
def test_a_long_line_continues_below_its_text(
    parts: tuple[Text, ...],
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Console, "width", 32)
    console = Console()
    console.line(*parts, indent=10)
    assert capsys.readouterr().out.splitlines() == lines
    monkeypatch.setattr(Console, "width", None)
    console.line(*parts, indent=10)
    (whole,) = capsys.readouterr().out.splitlines()
    assert whole == "".join(one if isinstance(one, str) else one.text for one in parts)


def test_the_last_column_of_a_table_is_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Console, "width", 36)
    columns = (Column(name="TYPE"), Column(name="WHY NOT NOW"))
    Console().table(columns, [("Warning", "its worker is alive and its lock is held")])
    assert capsys.readouterr().out.splitlines() == [
        "TYPE     WHY NOT NOW",
        "Warning  its worker is alive and its",
        "         lock is held",
    ]
