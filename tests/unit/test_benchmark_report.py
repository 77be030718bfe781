"""How a benchmark answers: one JSON object or a table, whatever was met."""

import json
import math
import os
import time
from pathlib import Path

import pytest

from benchmarks.operator_growth import main
from benchmarks.report import (
    Better,
    Report,
    Target,
    build_parser,
    publish,
    render_json,
    render_table,
)
from benchmarks.usage import observe_cpu, observe_memory
from local_cluster.redis_servers import VERSIONS

pytestmark = pytest.mark.full


def a_report(*targets: Target, **figures: object) -> Report:
    return Report(benchmark="sweep", server="redis 8.6.3", targets=targets, figures=figures)


@pytest.mark.parametrize(
    ("value", "target", "better", "met"),
    [
        (0.3, 0.3, "lower", True),
        (0.31, 0.3, "lower", False),
        (40, 40, "higher", True),
        (39.9, 40, "higher", False),
        (0, 0, "lower", True),
        (None, 0, "lower", False),
        (math.nan, 1, "lower", False),
        (math.inf, 1, "higher", True),
        (1e9, None, "lower", True),
        (None, None, "lower", False),
    ],
)
def test_a_target_is_met_by_an_equal_value_and_never_without_one(
    value: float | None, target: float | None, better: Better, met: bool
) -> None:
    assert Target(name="any", value=value, target=target, better=better).met is met


def test_the_json_has_the_value_target_and_result_of_each_figure() -> None:
    report = a_report(Target(name="idle_ms", value=0.2, target=0.3), calls=3)
    assert json.loads(render_json(report)) == {
        "benchmark": "sweep",
        "server": "redis 8.6.3",
        "targets": [
            {"name": "idle_ms", "value": 0.2, "target": 0.3, "better": "lower", "met": True}
        ],
        "figures": {"calls": 3},
    }


def test_the_json_is_one_strict_line_also_with_odd_numbers_and_texts() -> None:
    odd = a_report(
        Target(name="ratio", value=math.inf, target=math.nan, better="higher"),
        nested={"list": [math.nan, {"deep": -math.inf}]},
        text="two\nlines",
    )
    (line,) = render_json(odd).splitlines()
    answer = json.loads(line, parse_constant=pytest.fail)
    assert answer["targets"][0]["value"] is None
    assert answer["figures"] == {"nested": {"list": [None, {"deep": None}]}, "text": "two\nlines"}


@pytest.mark.parametrize("as_json", [True, False])
def test_the_json_is_the_last_line_and_a_missed_target_is_allowed(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print("what the benchmark says meanwhile")
    publish(a_report(Target(name="idle_ms", value=9.0, target=0.3)), as_json=as_json)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("{") is as_json


def test_the_table_names_every_target_and_every_figure_in_columns() -> None:
    table = render_table(
        a_report(
            Target(name="vs_loop", value=41.23, target=40, better="higher"),
            Target(name="of_ceiling", value=None, target=0.35, better="higher"),
            Target(name="entries_per_s", value=123456.7),
            rounds=[1, 2.5],
            server={"calls": {"p99_ms": 0.25}},
        )
    )
    assert table.splitlines() == [
        "sweep on redis 8.6.3",
        "",
        "target         value    wanted   met",
        "vs_loop        41.2     >= 40    yes",
        "of_ceiling     -        >= 0.35  NO",
        "entries_per_s  123,457  -        yes",
        "",
        "rounds               1, 2.5",
        "server.calls.p99_ms  0.25",
    ]


def test_without_figures_the_table_ends_with_the_targets() -> None:
    assert render_table(a_report(Target(name="robbed", value=0, target=0))).endswith("yes")


def test_every_benchmark_takes_the_same_flags() -> None:
    parser = build_parser("sweep", None)
    plain = parser.parse_args([])
    assert (plain.json, plain.quick, plain.server) == (False, False, "8.6")
    given = parser.parse_args(["--json", "--quick", "--server", "valkey"])
    assert (given.json, given.quick, given.server) == (True, True, "valkey")
    for version in VERSIONS:
        assert parser.parse_args(["--server", version]).server == version
    with pytest.raises(SystemExit):
        parser.parse_args(["--server", "6.2"])


def test_cpu_that_this_process_uses_is_its_own_and_not_others() -> None:
    pid = os.getpid()
    before = observe_cpu([pid])
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    after = observe_cpu([pid])
    used_s = after.by_pid_s[pid] - before.by_pid_s[pid]
    assert used_s == pytest.approx(after.share(before, pid) * (after.at_s - before.at_s))
    assert used_s >= 0.25
    others_s = after.others_share(before) * (after.at_s - before.at_s)
    assert used_s + others_s == pytest.approx(after.machine_s - before.machine_s)


def test_memory_that_a_process_takes_shows() -> None:
    before = observe_memory(os.getpid())
    block = bytearray(os.urandom(1)) * (64 * 2**20)
    during = observe_memory(os.getpid())
    assert during.rss_mib - before.rss_mib > 60
    assert during.pss_mib - before.pss_mib > 60
    assert during.peak_rss_mib >= during.rss_mib
    assert len(block) == 64 * 2**20


def test_a_process_that_has_ended_is_not_measured_as_zero() -> None:
    with pytest.raises(FileNotFoundError):
        observe_memory(2**22 + 1)
    with pytest.raises(FileNotFoundError):
        observe_cpu([2**22 + 1])


def test_runs_of_several_sizes_are_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, size, value in (("old", 100, 0.25), ("small", 100, 0.0125), ("large", 1000, None)):
        report = a_report(Target(name="idle", value=value, target=0.05), resources=size)
        (tmp_path / name).write_text(f"progress\n{render_json(report)}\n")
    before, after = [tmp_path / "old"], [tmp_path / "small", tmp_path / "large"]
    picture = tmp_path / "growth.svg"
    main(["--before", *map(str, before), "--after", *map(str, after), "--plot", str(picture)])
    assert capsys.readouterr().out.splitlines() == [
        "| target | wanted | 100 | 1,000 |",
        "|---|---|---|---|",
        "| `idle` | ≤ 0.05 | 0.0125 (0.25) | - (not run) |",
    ]
    assert ">resources</text>" in picture.read_text()
