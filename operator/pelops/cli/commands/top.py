"""`pelops top`: a table of groups with their rates, every second."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.display.durations import parse_duration, render_age
from pelops.cli.display.gauges import GroupGauges, GroupName, fetch_gauges
from pelops.cli.display.group_facts import read_group
from pelops.cli.display.rates import RateWindow, Row, build_row, render_rate
from pelops.cli.display.tables import Cell, Column, Line, Style, Styled, render_table
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_output_flag
from pelops.cli.kubectl import GROUPS, Kubectl, Object

API_VERSION: Final = "cli.pelops.dev/v1alpha1"
_SLOW_READ_S: Final = 60.0  # how often metrics that could not be read are tried again

COLUMNS: Final = (
    Column(name="NAMESPACE"),
    Column(name="NAME"),
    Column(name="READY"),
    Column(name="LAG", right=True),
    Column(name="TREND"),
    Column(name="PENDING", right=True),
    Column(name="OLDEST", right=True),
    Column(name="IN/S", right=True),
    Column(name="DONE/S", right=True),
    Column(name="EMPTY IN", right=True),
    Column(name="REPLICAS", right=True),
    Column(name="DLQ", right=True),
)


_SORTS: Final[Mapping[str, tuple[str, Callable[[Row], float | None]]]] = {
    "l": ("lag", lambda row: row.lag),
    "p": ("pending", lambda row: row.pending),
    "a": ("age of the oldest", lambda row: row.oldest_s),
    "d": ("dead letters", lambda row: row.dead_letters),
    "r": ("rate", lambda row: row.arrival_rate),
}
_NAMES: Final = {"lag": "l", "pending": "p", "age": "a", "dlq": "d", "rate": "r"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add = parser.add_argument
    add("--once", action="store_true", help="print one table; default if there is no terminal")
    add("--sort", choices=list(_NAMES), default="lag", help="what decides the order")
    add(
        "--interval",
        type=parse_duration,
        default="1s",
        metavar="DURATION",
        help="time between two tables",
    )
    add(
        "--metrics-url",
        action="append",
        default=[],
        metavar="URL",
        help="metrics of a replica of the operator, such as http://127.0.0.1:8080/metrics; once "
        "for each replica; default: of all replicas, through the API server",
    )
    add_output_flag(parser, ("text", "json", "yaml"))
    add_examples(
        parser,
        "# the groups of a namespace, every second",
        "pelops top -n shop",
        "",
        "# all groups once, those with the oldest pending entries first",
        "pelops top -A --once --sort age",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the table until `q` is pressed, or once."""
    source = _Source(arguments, console)
    key = _NAMES[arguments.sort]
    if arguments.once or not console.is_text or not console.is_interactive:
        rows = sort_rows(source.read(), key)
        if console.is_text:
            _print_once(rows, source, console)
        else:
            groups = [_render_numbers(row) for row in rows]
            console.document({"apiVersion": API_VERSION, "kind": "TopReport", "groups": groups})
        return ExitCode.SUCCESS
    return _watch(source, console, key, max(0.2, arguments.interval))


class _Source:
    """Groups from the API server, and their gauges from the operator if they can be read."""

    def __init__(self, arguments: argparse.Namespace, console: Console) -> None:
        self._kubectl = Kubectl.of(arguments, console)
        self._urls = arguments.metrics_url
        self.everywhere = bool(getattr(arguments, "all_namespaces", False))
        self.problem = ""  # why there are no rates
        self._retry_at = 0.0
        self._window = RateWindow()

    @property
    def namespace(self) -> str:
        return self._kubectl.namespace

    def read(self) -> list[Row]:
        resources = self._kubectl.list_objects(GROUPS, all_namespaces=self.everywhere)
        gauges, now = self._read_gauges(), datetime.now(UTC)
        groups = (read_group(resource) for resource in resources)
        return [build_row(one, gauges.get((one.namespace, one.name)), now) for one in groups]

    def _read_gauges(self) -> Mapping[GroupName, GroupGauges]:
        if time.monotonic() < self._retry_at:
            return {}
        try:
            gauges = fetch_gauges(self._kubectl, urls=self._urls)
        except CommandFailed as error:
            self.problem = f"No rates, and numbers of the last status: {error}"
            self._retry_at = time.monotonic() + _SLOW_READ_S
            return {}
        self.problem = ""
        return self._window.complete(gauges, time.monotonic())


def sort_rows(rows: Sequence[Row], key: str) -> list[Row]:
    """Return the rows with the largest number first, unknown numbers last."""
    read = _SORTS[key][1]

    def order(row: Row) -> tuple[float, str, str]:
        value = read(row)
        return (1.0 if value is None else -value, row.group.namespace, row.group.name)

    return sorted(rows, key=order)


def render_rows(rows: Sequence[Row]) -> list[Line]:
    """Return the lines of the table."""
    return list(render_table(COLUMNS, [_render_row(row) for row in rows]))


def _render_row(row: Row) -> tuple[Cell, ...]:
    group, trend = row.group, row.trend
    return (
        group.namespace,
        group.name,
        Styled(group.ready.status, group.style),
        _number(row.lag),
        Styled(trend, Style.WARNING) if trend == "↗" else trend,
        _number(row.pending),
        render_age(row.oldest_s) if row.pending and row.oldest_s is not None else None,
        render_rate(row.arrival_rate),
        render_rate(row.acknowledge_rate),
        Styled("never", Style.BAD) if row.empty_in == "never" else row.empty_in,
        group.workers_cell,
        _number(row.dead_letters),
    )


def _number(value: float | None) -> int | None:
    return None if value is None else round(value)


def _render_numbers(row: Row) -> Object:
    return {
        "namespace": row.group.namespace,
        "name": row.group.name,
        "ready": row.group.ready.status,
        "lag": _number(row.lag),
        "pending": _number(row.pending),
        "oldestPendingSeconds": row.oldest_s,
        "arrivalRate": row.arrival_rate,
        "acknowledgeRate": row.acknowledge_rate,
        "readyReplicas": row.group.status.get("readyReplicas"),
        "desiredReplicas": row.group.status.get("desiredReplicas"),
        "deadLetters": _number(row.dead_letters),
    }


def _print_once(rows: Sequence[Row], source: _Source, console: Console) -> None:
    if rows:
        for line in render_rows(rows):
            console.line(*line)
    else:
        where = "" if source.everywhere else f" in namespace {source.namespace}"
        console.note(f"No StreamConsumerGroups found{where}.")
    if source.problem:
        console.note(source.problem)


def _watch(source: _Source, console: Console, key: str, interval_s: float) -> int:
    with _keys() as pressed:
        while True:
            rows = source.read()
            pressed_key = ""
            until = time.monotonic() + interval_s
            while pressed_key != "q" and (left := until - time.monotonic()) > 0:
                console.frame(_render_frame(rows, source, key, interval_s))
                pressed_key = pressed(left)
                key = pressed_key if pressed_key in _SORTS else key
            if pressed_key == "q":
                return ExitCode.SUCCESS


def _render_frame(
    rows: Sequence[Row], source: _Source, key: str, interval_s: float
) -> Iterator[Line]:
    import shutil

    height = shutil.get_terminal_size().lines
    yield (
        Styled("pelops top", Style.STRONG),
        f"   every {interval_s:g}s   sort: {_SORTS[key][0]} ({' '.join(_SORTS)})   q quits",
    )
    yield ()
    shown = max(1, height - 6)
    yield from render_rows(sort_rows(rows, key)[:shown])
    if len(rows) > shown:
        yield (f"{len(rows) - shown} more groups",)
    if source.problem:
        yield ()
        yield (Styled(source.problem, Style.WARNING),)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read single keys from the terminal; the function waits for one, and returns "" if none."""
    import select
    import sys
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _wait_without_keys
        return
    settings = termios.tcgetattr(sys.stdin)

    def read_key(timeout_s: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
        return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") if ready else ""

    print("\x1b[?25l\x1b[2J", end="", flush=True)  # without a cursor, on an empty screen
    try:
        tty.setcbreak(sys.stdin)
        yield read_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
        print("\x1b[?25h", end="", flush=True)


def _wait_without_keys(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""
