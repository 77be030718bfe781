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
    DEFAULT_FILES,
    Source,
    describe,
    find_corpus,
    has_poison,
    write_poison,
)
from demo.direct import DirectComputation, DirectFailed
from demo.finding import EndUnseen
from demo.following import FollowingEnded
from demo.killing import NobodyAtWork
from demo.playground import Playground, open_playground, print_access
from demo.sampling import SamplingEnded
from demo.story import ChecksFailed, run_demo
from demo.watching import Stalled
from local_cluster.errors import LocalClusterError
from local_cluster.interrupts import raise_first_interrupt
from local_cluster.java import require_java
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
    SamplingEnded,
    ServerFailed,
    Stalled,
    TimeoutError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    most = "approximate maximum number of files to index (default: %(default)s)"
    parser.add_argument("--files", type=int, default=DEFAULT_FILES, metavar="N", help=most)
    files = max(1, parser.parse_args(arguments).files)
    keep = os.environ.get("KEEP", "") not in {"", "0"}
    raise_first_interrupt()
    left_up: list[Playground] = []
    began = time.monotonic()
    try:
        _run(find_corpus(files), left_up, keep=keep)
    except FAILURES as error:
        code, verdict = 1, f"The demo FAILED: {error}"
    except KeyboardInterrupt:
        report("interrupted")
        return INTERRUPTED
    else:
        code, verdict = 0, "All checks of the demo passed."
    report(f"{verdict}\nIt took {time.monotonic() - began:.0f} s.")
    for cluster in left_up:
        print_access(cluster)
    return code


def _run(corpus: Sequence[Source], left_up: list[Playground], *, keep: bool) -> None:
    """All of it; a cluster that outlives this is added to `left_up`."""
    require_java()  # what is missing at the end is better told at the beginning
    with tempfile.TemporaryDirectory(prefix="pelops-demo-") as scratch:
        sources = _with_poison(corpus, Path(scratch))
        report("Indexing the Python source files of this machine with workers on Redis streams:")
        for source in sources:
            report(f"  {describe(source)}")
        paths = [path for source in sources for path in source.paths]
        # Early, beside everything else: it yields the processor to all others.
        direct = DirectComputation.start(paths, Path(scratch))
        try:
            with open_playground(keep=keep) as cluster:
                left_up += [cluster] * keep
                run_demo(cluster, sources, direct, Path(scratch))
        finally:
            direct.process.kill()


def _with_poison(corpus: Sequence[Source], scratch: Path) -> list[Source]:
    """The corpus, with some files in its midst that do not parse, if it has none of its own."""
    if has_poison(corpus[:1]):  # what is for the workers that make dead letters of them
        return list(corpus)
    return [*corpus[:1], write_poison(scratch), *corpus[1:]]


if __name__ == "__main__":
    sys.exit(main())
