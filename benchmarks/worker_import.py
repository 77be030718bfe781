"""What `import pelops.worker` costs a process."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Final

ROUNDS: Final = 5
_SCRIPT: Final = "import time, pelops.worker; print(time.process_time())"


def measure_import(rounds: int = ROUNDS) -> float:
    """CPU seconds of a process that does nothing else, its own beginning included."""
    return median(_once() for _ in range(rounds))


def _once() -> float:
    argv = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    return float(done.stdout)
