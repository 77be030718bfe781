"""The worker's scripts: files of `lua/`, which include those of the operator's scripts."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

from pelops.redis_core.transport import Part

_INCLUDE: Final = re.compile(r"^-- include: (\w+)$", re.MULTILINE)
_TEXTS: Final[dict[str, str]] = {}  # by what servers call them
Parts = tuple[Part, ...]  # one command


def script_call(name: str, keys: tuple[Part, ...], *args: Part) -> Parts:
    """A command that runs `lua/<name>.lua`, if the server has it cached."""
    return ("EVALSHA", _digest(name), len(keys), *keys, *args)


def with_text(call: Parts) -> Parts:
    """The same run for a server that has not cached the script; it has afterwards."""
    return ("EVAL", _TEXTS[str(call[1])], *call[2:])


@cache
def _digest(name: str) -> str:
    text = _INCLUDE.sub(lambda found: _read_include(found[1]), _read("pelops.worker.server", name))
    digest = sha1(text.encode(), usedforsecurity=False).hexdigest()
    _TEXTS[digest] = text
    return digest


def _read_include(name: str) -> str:
    own = files("pelops.worker.server").joinpath("lua", "include", f"{name}.lua")
    if own.is_file():
        return own.read_text("utf-8")
    return _read("pelops.redis_streams", f"include/{name}")


def _read(package: str, name: str) -> str:
    return files(package).joinpath("lua", *f"{name}.lua".split("/")).read_text("utf-8")
