"""Histories by hand: `python -m tests.pipeline.oracle --seed 7 --shrink`.

Lives the histories of some numbers, prints what their audits say that is untrue, and ends with 1
when anything is. With --shrink, each kind is shown by the smallest history that shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from local_cluster.java import require_java
from pelops.pipeline.session import LazySession
from tests.pipeline.oracle.findings import kinds_of
from tests.pipeline.oracle.histories import (
    Files,
    History,
    make_history,
    make_long_history,
    parse_history,
)
from tests.pipeline.oracle.known import KNOWN
from tests.pipeline.oracle.lives import Options, live, shrink
from tests.spark.driver import build_session


class Session(LazySession):
    """The session of the tests, from the moment when a large window needs it."""

    def get(self, entries: int | None = None) -> SparkSession:
        if self._found is None:
            os.environ["JAVA_HOME"] = str(require_java())
            os.environ["PYSPARK_PYTHON"] = sys.executable
            packages = Path(__file__).parents[3] / "operator"
            known = os.environ.get("PYTHONPATH", "")
            os.environ["PYTHONPATH"] = os.pathsep.join([str(packages), known])
            self._found = build_session()
        return super().get(entries)


def _report(spark: LazySession, name: str, history: History, chosen: argparse.Namespace) -> bool:
    options = Options(
        has_page=not chosen.no_page, node=100 if chosen.long or chosen.scale > 1 else 5
    )
    began = time.monotonic()
    found = live(spark, history, options)
    took_s = time.monotonic() - began
    print(
        f"{name}: {len(history.acts)} acts, {took_s:.1f} s, {len(found)} untrue",
        flush=True,
    )
    for one in found:
        print(f"  {one}", flush=True)
    if chosen.shrink:
        for kind in kinds_of(found):
            if chosen.kind is None or kind == chosen.kind:
                _show_smallest(spark, history, options, kind)
    return bool(found)


def _show_smallest(spark: LazySession, history: History, options: Options, kind: str) -> None:
    def fails(smaller: History) -> bool:
        try:
            return kind in kinds_of(live(spark, smaller, options))
        except AssertionError:
            return False

    smallest = shrink(history, fails)
    print(f"  smallest for {kind}:\n{smallest}\n{json.dumps(smallest.render())}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, action="append", default=[])
    parser.add_argument("--seeds", type=int, default=0, help="the first so many numbers")
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--history", type=Path, help="a file with a history as JSON")
    parser.add_argument("--known", action="store_true", help="those in which audits once erred")
    parser.add_argument(
        "--long", type=int, help="a history of this many entries, with every kind of act"
    )
    parser.add_argument(
        "--files", type=Files, choices=list(Files), help="instead of those of the history"
    )
    parser.add_argument("--scale", type=int, default=1, help="times the entries")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--kind", help="shrink for this kind only")
    parser.add_argument("--no-page", action="store_true")
    chosen = parser.parse_args()
    seeds = [*chosen.seed, *range(chosen.from_seed, chosen.from_seed + chosen.seeds)]
    histories = dict(KNOWN) if chosen.known else {}
    histories |= {f"seed {seed}": make_history(seed, scale=chosen.scale) for seed in seeds}
    if chosen.history is not None:
        histories[str(chosen.history)] = parse_history(json.loads(chosen.history.read_text()))
    if chosen.long is not None:
        histories["long"] = make_long_history(chosen.long)
    if chosen.files is not None:
        histories = {name: replace(one, files=chosen.files) for name, one in histories.items()}
    spark = Session()
    return int(any([_report(spark, *named, chosen) for named in histories.items()]))


if __name__ == "__main__":
    sys.exit(main())
