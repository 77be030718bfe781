"""A directory of several versions of the site.

Each version is a directory; `versions.json` beside them lists them, newest first, as the version
selector of the theme expects it. The alias is a copy, so that any file server can serve it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def add_version(site: Path, into: Path, name: str, alias: str) -> None:
    """Put a built site into a directory of versions, under its name and an alias.

    Replaces this version if it is there; the other versions stay. The alias moves to this version.
    """
    into.mkdir(parents=True, exist_ok=True)
    for directory in (name, alias):
        shutil.rmtree(into / directory, ignore_errors=True)
        shutil.copytree(site, into / directory)
    listed = into / "versions.json"
    before = json.loads(listed.read_text("utf-8")) if listed.exists() else []
    versions = [
        {"version": name, "title": name, "aliases": [alias]},
        *(
            {**one, "aliases": [other for other in one["aliases"] if other != alias]}
            for one in before
            if one["version"] != name
        ),
    ]
    versions.sort(key=lambda one: _order(one["version"]), reverse=True)
    listed.write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    (into / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={alias}/">'
        f'<a href="{alias}/">Pelops documentation</a>\n',
        encoding="utf-8",
    )


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
