"""How fast Pelops' worker works a stream, beside handwritten loops and other libraries.

One process each, asyncio, entries of 200 bytes, handlers that do nothing or sleep for 1 ms, at most
100 at once; the server has a processor of its own. Each round runs all of them in turn on the same
server, on new data; the targets are ratios within a round, and their median over the rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.numbers import describe, ratios
from benchmarks.pending import body_bytes
from benchmarks.recovery import in_turn
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.worker_contestants import CONTESTANTS
from benchmarks.worker_import import measure_import
from benchmarks.worker_memory import with_memory
from benchmarks.worker_meter import CONCURRENCY, SLEEP_S, Kind
from benchmarks.worker_peers import PACKAGES, NoPeers, peers_python
from benchmarks.worker_run import Outcome, give_precedence, run_once, separate
from local_cluster.progress import Step, report, step
from local_cluster.redis_servers import StandaloneServers, start_standalone

NAME: Final = "worker"
KINDS: Final[tuple[Kind, ...]] = ("noop", "sleep")
MIN_OF_BATCHED: Final[Mapping[Kind, float]] = {"noop": 0.8, "sleep": 1.0}
MAX_CPU_OF_FASTSTREAM: Final = 0.5
MAX_IMPORT_CPU_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how often."""

    count: int = 100_000
    few: int = 4000  # for those that are slow
    fewest: int = 1000  # one by one, a millisecond each
    rounds: int = 7

    def entries(self, name: str, kind: Kind) -> int:
        """How many count in one run."""
        if name == "one_by_one" and kind == "sleep":
            return self.fewest
        return self.few if CONTESTANTS[name].is_slow else self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Who takes part, with which Python."""

    pythons: Mapping[str, Path]
    left_out: str | None  # why the other libraries are


RATES: Final[Mapping[Kind, str]] = {"noop": "noop_of_batched", "sleep": "slow_of_batched"}
Results = dict[Kind, dict[str, list[Outcome]]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and say by the exit code whether every target is met."""
    given = _parse(arguments)
    usual = Scale(count=20_000, few=1000, fewest=300, rounds=3) if given.quick else Scale()
    scale = Scale(
        count=usual.count,
        few=usual.few,
        fewest=usual.fewest,
        rounds=given.rounds or usual.rounds,
    )
    contest = _gather(given.only)
    with start_standalone(given.server) as servers:
        process = servers.server.process
        has_precedence = process is not None and give_precedence(process.pid)
        is_separate = process is not None and separate(process.pid, is_server=True)
        with step("working streams") as shown:
            results = _measure(servers.server.port, contest, scale, shown)
        found = _report(servers, contest, scale, results)
        if given.memory:
            found = with_memory(found, servers.server.port)
    machine = {"has_precedence": has_precedence, "is_separate": is_separate}
    found = replace(found, figures={**machine, **found.figures})
    publish(found, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    add("--rounds", type=int, metavar="N", help="default: 7, with --quick 3")
    memory = "also watch the memory of our worker over 5 million entries; takes minutes"
    add("--memory", action="store_true", help=memory)
    only = "only this one; may be repeated, and what is compared with others is then missed"
    add("--only", action="append", choices=list(CONTESTANTS), help=only)
    return parser.parse_args(arguments)


def _gather(only: Sequence[str] | None) -> Contest:
    names = [name for name in CONTESTANTS if only is None or name in only]
    own = Path(sys.executable)
    pythons = {name: own for name in names if not CONTESTANTS[name].is_peer}
    if len(pythons) == len(names):
        return Contest(pythons=pythons, left_out=None)
    try:
        theirs = peers_python()
    except NoPeers as error:
        report(f"without the other libraries: {error}")
        return Contest(pythons=pythons, left_out=str(error))
    return Contest(pythons={name: pythons.get(name, theirs) for name in names}, left_out=None)


def _measure(port: int, contest: Contest, scale: Scale, shown: Step) -> Results:
    results: Results = {kind: {name: [] for name in contest.pythons} for kind in KINDS}
    for number in range(scale.rounds):
        for kind in KINDS:
            for name in in_turn(list(contest.pythons), number):
                shown.detail = f"round {number + 1} of {scale.rounds}, {kind}, {name}"
                run = partial(run_once, CONTESTANTS[name], contest.pythons[name], port)
                results[kind][name].append(run(kind=kind, count=scale.entries(name, kind)))
    return results


def _report(servers: StandaloneServers, contest: Contest, scale: Scale, results: Results) -> Report:
    return Report(
        benchmark=NAME,
        server=describe_server(servers),
        targets=[
            *(judge_rate(kind, results[kind]) for kind in KINDS),
            judge_cpu(results),
            Target(name="import_cpu_s", value=measure_import(), target=MAX_IMPORT_CPU_S),
        ],
        figures=_figures(contest, scale, results),
    )


def judge_rate(kind: Kind, found: Mapping[str, Sequence[Outcome]]) -> Target:
    """Entries a second against the batched loop; what was not measured is not met."""
    return Target(
        name=RATES[kind],
        value=_against(found, "batched", "per_s"),
        target=MIN_OF_BATCHED[kind],
        better="higher",
    )


def judge_cpu(results: Results) -> Target:
    """CPU an entry against FastStream's batches: the worse of both kinds of handlers."""
    shares = [_against(found, "faststream_batch", "cpu_s_per_100k") for found in results.values()]
    known = [share for share in shares if share is not None]
    return Target(
        name="cpu_vs_faststream_batch",
        value=max(known) if len(known) == len(shares) else None,
        target=MAX_CPU_OF_FASTSTREAM,
    )


def _against(found: Mapping[str, Sequence[Outcome]], other: str, figure: str) -> float | None:
    """Pelops' figure by the other's, round by round, and of these the median."""
    if not found.get("ours") or not found.get(other):
        return None
    ours, theirs = (
        [getattr(outcome, figure) for outcome in found[name]] for name in ("ours", other)
    )
    return median(ratios(ours, theirs))


def _figures(contest: Contest, scale: Scale, results: Results) -> dict[str, Any]:
    return {
        "concurrency": CONCURRENCY,
        "sleep_ms": SLEEP_S * 1000,
        "entry_bytes": body_bytes(),
        "rounds": scale.rounds,
        "packages": list(PACKAGES),
        "left_out": contest.left_out or "none",
        "ways": {name: CONTESTANTS[name].how for name in contest.pythons},
        **{
            kind: {name: _describe(name, kind, scale, of[name]) for name in of}
            for kind, of in results.items()
        },
    }


def _describe(name: str, kind: Kind, scale: Scale, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    def of(figure: str) -> list[float]:
        return [getattr(outcome, figure) for outcome in outcomes]

    return {
        "entries": scale.entries(name, kind),
        "entries_per_s": describe(of("per_s")),
        "cpu_s_per_100k": describe(of("cpu_s_per_100k")),
        "redis_cpu_s_per_100k": median(of("redis_cpu_s_per_100k")),
        "most_at_once": max(of("most_at_once")),
        "peak_rss_mib": max(of("peak_rss_mib")),
    }


if __name__ == "__main__":
    main()
