"""The worker's scripts: files of `lua/`, which include those of the operator's scripts."""

from __future__ import annotations

from typing import Final

from pelops.redis_core.commands import Part
from pelops.redis_core.declaration import WORKER_SCRIPTS
from pelops.redis_core.scripts import Script, ScriptCall, load_script

_LOADED: Final[dict[str, Script]] = {}  # by what servers call them
Parts = tuple[Part, ...]  # one command


def worker_script(name: str) -> Script:
    """The script `lua/<name>.lua` of the worker."""
    script = load_script(name, WORKER_SCRIPTS)
    return _LOADED.setdefault(script.sha, script)


def command_of(call: ScriptCall) -> Parts:
    """A command that runs a script, if the server has it cached."""
    return call.by_sha().parts


def with_text(command: Parts) -> Parts:
    """The same run for a server that has not cached the script; it has afterwards."""
    return ("EVAL", _LOADED[str(command[1])].text, *command[2:])
