"""Files that are generated and kept in the repository: written, or compared."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_or_check(
    files: Mapping[str, str],
    program: str,
    description: str | None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Write the files, or compare them with those on disk, as the command line says.

    Args:
        files: what belongs into each file, by its path from the root of the repository.
        program: how the command is called, for its help.
        description: what it does, for its help.
        arguments: of the command line; None: those of the process.

    Returns:
        The exit code: 1 after `--check` when a file differs, with the difference on stdout.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the generated files")
    action.add_argument("--check", action="store_true", help="exit 1 when they are out of date")
    parser.add_argument(
        "--root", type=Path, default=Path(), help="root of the repository (default: here)"
    )
    options = parser.parse_args(arguments)
    if options.write:
        _write(options.root, files)
        return 0
    differences = _render_differences(options.root, files)
    sys.stdout.write(differences)
    return 1 if differences else 0


def _render_differences(root: Path, files: Mapping[str, str]) -> str:
    """Return a unified diff from the files on disk to these; empty when they are equal."""
    return "".join(
        line
        for name, wanted in files.items()
        for line in difflib.unified_diff(
            _read(root / name).splitlines(keepends=True),
            wanted.splitlines(keepends=True),
            fromfile=name,
            tofile=f"{name} (as generated)",
        )
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
