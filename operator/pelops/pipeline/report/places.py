"""Paths of the reports in the archive, and links between pages.

report/audit.html, audit.json                           all groups of the archive
report/<stream>/audit.html, audit.json                  the groups of one stream
report/<stream>/group=<group>/clusters.json, redrive.jsonl
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from urllib.parse import quote

# A file name may have 255 bytes; the rest is for the prefixes and suffixes of Pelops.
_LONGEST: Final = 160
_SHOWN: Final = 120
# Endings of the files beside the directory of a stream or group.
_OURS: Final = (".json", ".html", ".unfinished")
REPORT: Final = "report"
PAGE: Final = "audit.html"
DOCUMENT: Final = "audit.json"
_EMPTY: Final = "~empty"  # for an empty Redis key; no other directory name begins with ~


def slug(name: str) -> str:
    """A unique directory name for a Redis name, never equal to a file name of the archive."""
    if not name:
        return _EMPTY
    directory = quote(name, safe="").replace("~", "%7E")
    if directory.startswith((".", "_")) or directory.endswith(_OURS):
        directory = directory.replace(".", "%2E").replace("_", "%5F")
    if len(directory) <= _LONGEST:
        return directory
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{directory[:_SHOWN]}~{digest}"


def report_path(stream: str | None = None) -> str:
    """The directory of a stream's report, or of that of all streams, in the archive."""
    return REPORT if stream is None else f"{REPORT}/{slug(stream)}"


def group_path(stream: str, group: str) -> str:
    """The directory of the clusters and redrive plan of a group."""
    return f"{report_path(stream)}/group={slug(group)}"


def anchor_of(stream: str, group: str) -> str:
    """The anchor of a group on any page: stable across runs, so that links stay valid."""
    names = f"{stream}\0{group}".encode("utf-8", "surrogatepass")
    return f"group-{blake2b(names, digest_size=6).hexdigest()}"


def page_of(directory: str) -> str:
    """A link from the report of all streams to the report in this directory."""
    return f"{quote(directory)}/{PAGE}"  # the name itself contains percent signs


def link_to(stream: str, group: str) -> str:
    """A link from the report of all streams to a group in the report of its stream."""
    return f"{page_of(slug(stream))}#{anchor_of(stream, group)}"
