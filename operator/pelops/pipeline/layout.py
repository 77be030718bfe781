"""Where each part of the archive lies.

<root>/<stream>/window=<k>/plan.json           made once, before anything else
                          /entries /entries.json     a stage, and the marker that it is complete
                          /present /present.json
                          /groups.json
                          /group=<group>/pending /acts /letters /retry /exceptions /settled /open
                                        /audit.json
                          /manifest.json       made last
                          /published.json      its summaries are recorded in Redis
<root>/report/audit.html /audit.json           every group of the archive, by severity
             /<stream>/audit.html /audit.json  the report of one stream
                      /group=<group>/clusters.json /redrive.jsonl
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

# Of a file's name, which may have 255 bytes, the rest is for what we put around it.
_LONGEST: Final = 160
_SHOWN: Final = 120
# What stands beside the directory of a stream or of a group.
_OURS: Final = (".json", ".html", ".claim", ".unfinished")
REPORT: Final = "report"
# Directories of the archive beside those of streams: no stream gets such a name.
OWN_NAMES: Final = frozenset({REPORT, "statuses"})
_EMPTY: Final = "~empty"  # a key of Redis may have no letter at all; no other name begins like this


def slug(name: str) -> str:
    """A name of Redis as the name of a directory: no two are alike, and none is the archive's."""
    if not name:
        return _EMPTY
    told = quote(name, safe="").replace("~", "%7E")
    if told.startswith((".", "_")) or told.endswith(_OURS):
        told = told.replace(".", "%2E").replace("_", "%5F")
    if told.lower() in OWN_NAMES:  # some file systems do not tell `Report` from `report`
        told = f"%{ord(told[0]):02X}{told[1:]}"
    if len(told) <= _LONGEST:
        return told
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{told[:_SHOWN]}~{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlace:
    """The directory of one window of one stream."""

    root: str
    stream: str
    number: int

    @property
    def path(self) -> str:
        return f"{stream_path(self.root, self.stream)}/window={self.number}"

    @property
    def before(self) -> WindowPlace:
        """The place of the window before it; window 0 has none."""
        return replace(self, number=self.number - 1)

    def part(self, name: str) -> str:
        return f"{self.path}/{name}"

    def of_group(self, group: str, name: str) -> str:
        return f"{self.path}/group={slug(group)}/{name}"


def stream_path(root: str, stream: str) -> str:
    return f"{root.rstrip('/')}/{slug(stream)}"


def report_path(root: str, stream: str | None = None) -> str:
    """Where reports lie: those of a stream, or those of all that the archive holds."""
    base = f"{root.rstrip('/')}/{REPORT}"
    return base if stream is None else f"{base}/{slug(stream)}"


def window_numbers(names: list[str]) -> list[int]:
    """The numbers of the windows among names of directories, in order."""
    numbers = (name.removeprefix("window=") for name in names if name.startswith("window="))
    return sorted(int(text) for text in numbers if text.isdigit())
