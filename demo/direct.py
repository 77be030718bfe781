"""The same counts without stream, workers or operator: what the result is compared with.

Run as `python -m demo.direct PATHS RESULT`: reads a JSON list of paths, writes counts by path.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from demo.counting import FileCounts, try_to_count
from local_cluster.processes import Process, start_process, wait_until

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 600.0


class DirectFailed(Exception):
    """The direct computation ended without a result; the text is the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectComputation:
    """The computation, under way in a process that yields to all others and ends with this one."""

    process: Process
    result: Path

    @classmethod
    def start(cls, paths: Sequence[Path], directory: Path) -> "DirectComputation":
        """Begin to count these files; `directory` takes what is exchanged with the process."""
        wanted, result = directory / "paths.json", directory / "direct.json"
        wanted.write_text(json.dumps([str(path) for path in paths]))
        argv = [sys.executable, "-m", "demo.direct", str(wanted), str(result)]
        log = directory / "direct.log"
        process = start_process("direct computation", argv, log=log, cwd=ROOT)
        return cls(process=process, result=result)

    def await_counts(self) -> dict[str, FileCounts]:
        """The counts by path, when it has ended. Raises DirectFailed."""
        ended = wait_until(self._has_ended, timeout_s=TIMEOUT_S, what="the direct computation")
        assert ended
        if self.process.exit_code or not self.result.exists():
            raise DirectFailed(self.process.tail())
        rows = json.loads(self.result.read_text())
        return {path: FileCounts(**counts) for path, counts in rows.items()}

    def _has_ended(self) -> bool:
        return not self.process.is_alive()


def main(wanted: str, result: str) -> None:
    """Count the files of the list `wanted`, and write the counts to `result`."""
    os.nice(19)
    paths = json.loads(Path(wanted).read_text())
    counts = {path: asdict(try_to_count(Path(path))) for path in paths}
    fresh = Path(f"{result}.new")
    fresh.write_text(json.dumps(counts))
    fresh.rename(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
