"""What it costs to read a million entries in Spark, beside other ways to read them.

Entries of five fields on the same machine, two tasks, and a sink that drops the rows, unless it
is Parquet. Each round runs all ways in turn; CPU time is that of Redis, the JVM and all Pythons.
Then a worker is killed in the midst of its task, and counted is what the query has missed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any, Final

from benchmarks.numbers import describe, ratios
from benchmarks.recovery import in_turn
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.spark_source_cpu import CpuSeconds, SparkMeter
from benchmarks.spark_source_others import PAGE, TASKS
from benchmarks.spark_source_scene import WAYS, Scene, open_scene
from local_cluster.progress import Step, step
from local_cluster.redis_servers import StandaloneServers, start_standalone

NAME: Final = "spark_source"
MAX_CPU_S: Final = 2.0
MIN_AGAINST_ROWS: Final = 2.5
MAX_ARCHIVE_CPU_S: Final = 4.0
DYING: Final = {"ours": "dying_redis_streams", "group": "redis_group_rows"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how often."""

    entries: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One reading of the stream; CPU for a million entries."""

    cpu: CpuSeconds
    wall_s: float


Results = dict[str, list[Outcome]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    scale = _scale(given)
    with (
        start_standalone(given.server) as servers,
        open_scene(servers.server.port, scale.entries) as scene,
    ):
        with step("reading the stream") as shown:
            results = _measure(servers, scene, scale, shown)
        with step("killing workers"):
            missed = {name: scene.missed_after_death(source) for name, source in DYING.items()}
        report = _report(servers, scale, results, missed)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    add("--entries", type=int, metavar="N", help="default: a million, with --quick 200,000")
    add("--rounds", type=int, metavar="N", help="default: 7, with --quick 3")
    return parser.parse_args(arguments)


def _scale(given: argparse.Namespace) -> Scale:
    return Scale(
        entries=given.entries or (200_000 if given.quick else 1_000_000),
        rounds=given.rounds or (3 if given.quick else 7),
    )


def _measure(servers: StandaloneServers, scene: Scene, scale: Scale, shown: Step) -> Results:
    process = servers.server.process
    if process is None:
        raise RuntimeError("the server has ended")
    results: Results = {name: [] for name in WAYS}
    with SparkMeter(process.pid) as meter:
        # The first round only warms up: the JVM compiles, and workers import what they need.
        for number in range(scale.rounds + 1):
            for name in in_turn(list(WAYS), number):
                where = f"round {number} of {scale.rounds}" if number else "warming up"
                shown.detail = f"{where}, {name}"
                outcome = _run(scene, name, meter)
                if number:
                    results[name].append(outcome)
    return results


def _run(scene: Scene, name: str, meter: SparkMeter) -> Outcome:
    began = monotonic()
    cpu = meter.measure(lambda: scene.read(WAYS[name]), entries=scene.entries)
    return Outcome(cpu=cpu, wall_s=monotonic() - began)


def _report(
    servers: StandaloneServers, scale: Scale, results: Results, missed: Mapping[str, int]
) -> Report:
    ours = _totals(results, "ours")
    return Report(
        benchmark=NAME,
        server=describe_server(servers),
        targets=[
            Target(name="cpu_s_per_million", value=median(ours), target=MAX_CPU_S),
            Target(
                name="vs_rows",
                value=median(ratios(_totals(results, "rows"), ours)),
                target=MIN_AGAINST_ROWS,
                better="higher",
            ),
            Target(
                name="archive_cpu_s_per_million",
                value=median(_totals(results, "archive")),
                target=MAX_ARCHIVE_CPU_S,
            ),
            Target(name="missed_after_death", value=missed["ours"], target=0),
        ],
        figures=_figures(scale, results, missed),
    )


def _totals(results: Results, name: str) -> list[float]:
    return [outcome.cpu.total for outcome in results[name]]


def _figures(scale: Scale, results: Results, missed: Mapping[str, int]) -> dict[str, Any]:
    return {
        "entries": scale.entries,
        "rounds": scale.rounds,
        "tasks": TASKS,
        "page_entries": PAGE,
        "ways": {name: way.how for name, way in WAYS.items()},
        "cpu_s_per_million": {name: _describe(of) for name, of in results.items()},
        "missed_after_death": dict(missed),
    }


def _describe(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "redis": median(outcome.cpu.redis for outcome in outcomes),
        "jvm": median(outcome.cpu.jvm for outcome in outcomes),
        "python": median(outcome.cpu.python for outcome in outcomes),
        "total": describe([outcome.cpu.total for outcome in outcomes]),
        "wall_s": median(outcome.wall_s for outcome in outcomes),
    }


if __name__ == "__main__":
    main()
