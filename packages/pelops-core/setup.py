"""Makes `src`: in a clone a link to operator/, the source tree of all distributions.

A source archive has a directory of its own there, with what belongs to its distribution.
"""

from pathlib import Path

from setuptools import setup

_SOURCES = Path(__file__).parent / "src"

if not _SOURCES.exists():
    # Made here and not committed, since not every way to copy a repository keeps links.
    _SOURCES.symlink_to(Path("..", "..", "operator"), target_is_directory=True)

setup()
