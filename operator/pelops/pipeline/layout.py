"""Where each part of the archive lies.

<root>/<stream>/window=<k>/plan.json           made once, before anything else
                          /entries /entries.json     a stage, and the marker that it is complete
                          /present /present.json
                          /groups.json
                          /group=<group>/pending /acts /letters /retry /exceptions /settled /open
                                        /audit.json
                          /manifest.json       made last
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


def slug(name: str) -> str:
    """A name of Redis as the name of a directory: no two are alike, and none is special."""
    told = quote(name, safe="").replace("~", "%7E")
    return told.replace(".", "%2E") if told.startswith((".", "_")) else told


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlace:
    """The directory of one window of one stream."""

    root: str
    stream: str
    number: int

    @property
    def path(self) -> str:
        return f"{stream_path(self.root, self.stream)}/window={self.number}"

    def part(self, name: str) -> str:
        return f"{self.path}/{name}"

    def of_group(self, group: str, name: str) -> str:
        return f"{self.path}/group={slug(group)}/{name}"


def stream_path(root: str, stream: str) -> str:
    return f"{root.rstrip('/')}/{slug(stream)}"


def window_numbers(names: list[str]) -> list[int]:
    """The numbers of the windows among names of directories, in order."""
    numbers = (name.removeprefix("window=") for name in names if name.startswith("window="))
    return sorted(int(text) for text in numbers if text.isdigit())
