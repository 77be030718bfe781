"""`python -m demo`: run it all, exit with 0 only when everything that it claims was checked.

KEEP=1 in the environment leaves the cluster up.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from demo.auditing import AuditFailed
from demo.corpus import (
    FILES_PER_PROCESSOR,
    MOST_FILES,
    Source,
    choose_number,
    describe,
    find_corpus,
    has_poison,
    write_poison,
)
from demo.direct import DirectComputation, DirectFailed
from demo.finding import EndUnseen
from demo.following import FollowingEnded
from demo.introduction import NEXT, NEXT_ON_CLUSTER, list_missing, render_introduction
from demo.killing import NobodyAtWork
from demo.playground import Playground, open_playground, print_access
from demo.redrive import RedriveFailed
from demo.sampling import SamplingEnded
from demo.steps import INSTALL, STOP, Steps
from demo.story import ChecksFailed, run_demo
from demo.watching import Stalled
from local_cluster.binaries import cache_directory
from local_cluster.errors import LocalClusterError
from local_cluster.interrupts import raise_first_interrupt
from local_cluster.progress import report
from local_cluster.redis_servers import NoSuchServer, ServerFailed

INTERRUPTED = 130
FAILURES = (
    AuditFailed,
    ChecksFailed,
    DirectFailed,
    EndUnseen,
    FollowingEnded,
    LocalClusterError,
    NobodyAtWork,
    NoSuchServer,
    RedriveFailed,
    SamplingEnded,
    ServerFailed,
    Stalled,
    TimeoutError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    most = (
        "approximate maximum number of files to index (default:"
        f" {FILES_PER_PROCESSOR} for each processor, at most {MOST_FILES})"
    )
    default = choose_number(len(os.sched_getaffinity(0)))
    parser.add_argument("--files", type=int, default=default, metavar="N", help=most)
    files = max(1, parser.parse_args(arguments).files)
    keep = os.environ.get("KEEP", "") not in {"", "0"}
    raise_first_interrupt()
    left_up: list[Playground] = []
    began = time.monotonic()
    last = ""
    try:
        missing = list_missing()
        without = [INSTALL] * (not missing) + [STOP] * keep
        steps = Steps.open(cache_directory() / "demo-durations.json", without=without)
        last = steps.describe_last_total()
        report(render_introduction(steps, missing))
        _run(find_corpus(files), left_up, steps, keep=keep)
    except FAILURES as error:
        code, verdict = 1, f"The demo FAILED: {error}"
    except KeyboardInterrupt:
        report("interrupted")
        return INTERRUPTED
    else:
        code, verdict = 0, "All checks of the demo passed."
    report(f"\n{verdict} It took {time.monotonic() - began:.0f} s{last}.")
    if code == 0:
        report(NEXT)
    for cluster in left_up:
        report(NEXT_ON_CLUSTER)
        print_access(cluster)
    return code


def _run(corpus: Sequence[Source], left_up: list[Playground], steps: Steps, *, keep: bool) -> None:
    """All of it; a cluster that outlives this is added to `left_up`."""
    with tempfile.TemporaryDirectory(prefix="pelops-demo-") as scratch:
        sources = _with_poison(corpus, Path(scratch))
        report("The workers index the Python source files of this machine:")
        for source in sources:
            report(f"  {describe(source)}")
        paths = [path for source in sources for path in source.paths]
        # Early, beside everything else: it yields the processor to all others.
        direct = DirectComputation.start(paths, Path(scratch))
        try:
            with open_playground(steps, keep=keep) as cluster:
                left_up += [cluster] * keep
                run_demo(cluster, sources, direct, Path(scratch), steps)
        finally:
            direct.process.kill()


def _with_poison(corpus: Sequence[Source], scratch: Path) -> list[Source]:
    """The corpus, with some files in its midst that do not parse, if it has none of its own."""
    if has_poison(corpus[:1]):  # what is for the workers that make dead letters of them
        return list(corpus)
    return [*corpus[:1], write_poison(scratch), *corpus[1:]]


if __name__ == "__main__":
    sys.exit(main())
