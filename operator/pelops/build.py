"""The build of Pelops that runs: its version, and the commit that it was built from."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from pelops import __version__

UNKNOWN: Final = "unknown"
# Written by the Dockerfile and by `make dist`, and never committed.
REVISION_FILE: Final = "REVISION"


def version() -> str:
    """Return the version of Pelops, for example `0.1.0`."""
    return __version__


@cache
def revision() -> str:
    """Return the commit that this build was made from.

    Returns:
        The commit in 40 hexadecimal digits, with `-dirty` at the end if files differed from it.
        `unknown` if Pelops runs from a clone, or the image was built without the commit.
    """
    try:
        text = (files("pelops") / REVISION_FILE).read_text(encoding="utf-8")
    except OSError:
        return UNKNOWN
    return text.strip() or UNKNOWN


def describe_build() -> str:
    """Return version and commit as `--version` and logs show them."""
    return f"{version()} (revision {revision()})"
