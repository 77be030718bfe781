"""What tests need and is made once, then kept in the cache, keyed on what it is made of."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from local_cluster.binaries import cache_directory

MAKING_S = 1800.0


class PartMissing(Exception):
    """A part cannot be had here; the message says why."""


def find_part(name: str, ingredients: Sequence[bytes]) -> Path:
    """Where the part of these ingredients is, or will be once it is made."""
    key = hashlib.sha256(b"\0".join(ingredients)).hexdigest()[:24]
    return cache_directory() / name / key


def provide_part(name: str, ingredients: Sequence[bytes], make: Callable[[Path], None]) -> Path:
    """What was made of these ingredients, now or earlier; half of it is never seen."""
    target = find_part(name, ingredients)
    if not target.exists():
        kept = target.parent
        kept.mkdir(parents=True, exist_ok=True)
        with _sole_maker(kept), tempfile.TemporaryDirectory(dir=kept) as scratch:
            if not target.exists():
                print(f"making {name} (minutes, the first time) ...", file=sys.stderr)
                unfinished = Path(scratch, name)
                make(unfinished)
                unfinished.rename(target)
    return target


@contextmanager
def _sole_maker(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_maker(argv: Sequence[str], *, cwd: Path, **variables: str) -> None:
    """Run a program that makes a part. Raises PartMissing with the end of what it printed."""
    try:
        ended = subprocess.run(
            argv,
            cwd=cwd,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKING_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PartMissing(f"{Path(argv[0]).name} took longer than {MAKING_S:.0f} s") from error
    if ended.returncode:
        raise PartMissing(f"{Path(argv[0]).name} failed: {ended.stdout[-2000:]}")


def read_contents(files: Sequence[Path]) -> list[bytes]:
    """The ingredients that files are."""
    return [file.read_bytes() for file in files]
