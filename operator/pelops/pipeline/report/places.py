"""Where reports lie in the archive, and how pages name each other.

report/audit.html, audit.json                           all groups of the archive
report/<stream>/audit.html, audit.json                  the groups of one stream
report/<stream>/group=<group>/clusters.json, redrive.jsonl
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from urllib.parse import quote

# Of a file's name, which may have 255 bytes, the rest is for what we put around it.
_LONGEST: Final = 160
_SHOWN: Final = 120
# What stands beside the directory of a stream or of a group.
_OURS: Final = (".json", ".html", ".unfinished")
REPORT: Final = "report"
PAGE: Final = "audit.html"
DOCUMENT: Final = "audit.json"
_EMPTY: Final = "~empty"  # a key of Redis may have no letter at all; no other name begins like this


def slug(name: str) -> str:
    """A name of Redis as the name of a directory: no two are alike, and none is the archive's."""
    if not name:
        return _EMPTY
    reported = quote(name, safe="").replace("~", "%7E")
    if reported.startswith((".", "_")) or reported.endswith(_OURS):
        reported = reported.replace(".", "%2E").replace("_", "%5F")
    if len(reported) <= _LONGEST:
        return reported
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{reported[:_SHOWN]}~{digest}"


def report_path(stream: str | None = None) -> str:
    """The directory of a stream's report, or of that of all streams; from the archive's root."""
    return REPORT if stream is None else f"{REPORT}/{slug(stream)}"


def group_path(stream: str, group: str) -> str:
    """The directory of what is kept of a group's dead letters."""
    return f"{report_path(stream)}/group={slug(group)}"


def anchor_of(stream: str, group: str) -> str:
    """The place of a group on any page of reports: the same in every run, so that links last."""
    names = f"{stream}\0{group}".encode("utf-8", "surrogatepass")
    return f"group-{blake2b(names, digest_size=6).hexdigest()}"


def page_of(directory: str) -> str:
    """The report in a directory beside the report of all streams, as a link from there."""
    return f"{quote(directory)}/{PAGE}"  # the directory's name holds percent signs of its own


def link_to(stream: str, group: str) -> str:
    """A group in the report of its stream, from the report of all streams."""
    return f"{page_of(slug(stream))}#{anchor_of(stream, group)}"
