"""Who scales better: Pelops, KEDA as an expert tunes it, and KEDA with its defaults.

Traffic in virtual time, so a run gives the same numbers on every machine; each trace runs in
several phases of the autoscaler's clocks. KEDA and HorizontalPodAutoscaler are models, checked
against a real KEDA on a real control plane (tests/unit/test_keda_model.py). Ends with 1 when a
target is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import scaling_live
from benchmarks.plot import Line, Panel, draw
from benchmarks.report import Report, build_parser, publish, render_json, render_table
from benchmarks.scaling_sim.contest import AUTOSCALERS, compete, figures, run, targets
from benchmarks.scaling_sim.table import render
from benchmarks.scaling_sim.traces import TRACES, Trace, read_csv
from local_cluster.progress import step

NAME = "scaling"
PHASES = 8
PHASES_QUICK = 4
LIVE_S = 480.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, and say by the exit code whether every target is met."""
    given = _parse(arguments)
    if given.live is not None:
        report = scaling_live.measure(given.live, given.server, given.plot)
        publish(report, as_json=given.json)
        sys.exit(0 if all(target.met for target in report.targets) else 1)
    traces = _choose(given.only, [read_csv(path) for path in given.trace])
    phases = PHASES_QUICK if given.quick else PHASES
    with step(f"playing {len(traces)} traces, each in {phases} phases"):
        results = compete(traces, phases)
    if given.plot is not None:
        _plot(traces, given.plot)
    report = Report(
        benchmark=NAME,
        server="virtual time",
        targets=targets(results),
        figures={"phases": phases, **figures(results)},
    )
    if given.json:
        print(render_json(report), flush=True)
    else:
        print(f"{render(results)}\n\n{render_table(replace(report, figures={}))}", flush=True)
    sys.exit(0 if all(target.met for target in report.targets) else 1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    add("--trace", type=Path, action="append", default=[], metavar="CSV", help=_TRACE_HELP)
    add("--only", action="append", metavar="NAME", help="only this trace; may be repeated")
    add("--plot", type=Path, metavar="DIR", help="write one picture per trace: the first phase")
    add("--live", type=float, nargs="?", const=LIVE_S, metavar="S", help=_LIVE_HELP)
    return parser.parse_args(arguments)


_LIVE_HELP = "play two traces on a real API server instead, for so many seconds; default: 480"
_TRACE_HELP = "also play a recorded trace, lines of second,arrivals; may be repeated"


def _choose(names: Sequence[str] | None, recorded: Sequence[Trace]) -> list[Trace]:
    traces = [*TRACES, *recorded]
    known = [trace.name for trace in traces]
    unknown = set(names or []) - set(known)
    if unknown:
        sys.exit(f"no such trace: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [trace for trace in traces if names is None or trace.name in names]


def _plot(traces: Sequence[Trace], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        name = "-".join("".join(c if c.isalnum() else " " for c in trace.name).split())
        with step(f"drawing {name}.svg"):
            draw(_panels(trace), directory / f"{name}.svg", title=f"{trace.name}: {trace.what}")


def _panels(trace: Trace) -> list[Panel]:
    """Arrivals, and the backlog and how many replicas ran with each autoscaler."""
    worlds = {name: run(trace, name, 0.0) for name in AUTOSCALERS}
    arrivals = [(float(second), count) for second, count in enumerate(trace.arrivals)]
    owed, replicas = [], []
    for name, world in worlds.items():
        backlog = [(one.at, float(one.undelivered + one.in_work)) for one in world.samples]
        count = [(one.at, float(one.replicas)) for one in world.samples]
        owed.append(Line(label=name, points=backlog))
        replicas.append(Line(label=name, points=count, is_step=True))
    return [
        Panel(title="arrivals per second", lines=[Line(label="", points=arrivals)]),
        Panel(title="entries owed", lines=owed),
        Panel(title="replicas", lines=replicas),
    ]


if __name__ == "__main__":
    main()
