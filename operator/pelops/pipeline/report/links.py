"""Links between the reports of an archive: the same in every run, so that they can be kept."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from urllib.parse import quote

from pelops.pipeline.archive.layout import slug

PAGE: Final = "audit.html"
DOCUMENT: Final = "audit.json"


def anchor_of(stream: str, group: str) -> str:
    """The place of a group on any page."""
    names = f"{stream}\0{group}".encode("utf-8", "surrogatepass")
    return f"group-{blake2b(names, digest_size=6).hexdigest()}"


def page_of(directory: str) -> str:
    """The report in a directory beside the report of all streams, as a link from there."""
    return f"{quote(directory)}/{PAGE}"  # the directory's name holds percent signs of its own


def link_to(stream: str, group: str) -> str:
    """A group in the report of its stream, from the report of all streams."""
    return f"{page_of(slug(stream))}#{anchor_of(stream, group)}"
