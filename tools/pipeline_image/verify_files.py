"""Compares files with the SHA-256 that is known of each:
verify_files.py [--complete] CHECKSUMS DIRECTORY PATTERN

CHECKSUMS is in the format of sha256sum. Every file of the directory that matches the pattern must
be listed and be the same, and there must be one. With --complete every listed file must be there
too. Exit code 1, and a line for each difference, otherwise. Needs only Python.
"""

import argparse
import hashlib
import sys
from pathlib import Path


def main() -> int:
    """Compare as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checksums", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("pattern")
    parser.add_argument("--complete", action="store_true")
    given = parser.parse_args()
    known = _read(given.checksums)
    present = {path.name: path for path in sorted(given.directory.glob(given.pattern))}
    wrong = [_difference(path, known.get(name)) for name, path in present.items()]
    if given.complete:
        wrong += [f"{name} is missing" for name in sorted(known.keys() - present.keys())]
    if not present:
        wrong.append(f"no file in {given.directory} matches {given.pattern}")
    found = [one for one in wrong if one is not None]
    for one in found:
        print(f"error: {one} ({given.checksums})", file=sys.stderr)
    return 1 if found else 0


def _read(checksums: Path) -> dict[str, str]:
    lines = (line.split(maxsplit=1) for line in checksums.read_text().splitlines() if line)
    return {name: digest for digest, name in lines}


def _difference(path: Path, expected: str | None) -> str | None:
    if expected is None:
        return f"{path.name} is not listed"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return None if digest == expected else f"{path.name} has the SHA-256 {digest}, not {expected}"


if __name__ == "__main__":
    sys.exit(main())
