"""Lua scripts, each a file of `lua/` with its contract at the top."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

from pelops.redis_core.transport import Command, Part

_INCLUDE: Final = re.compile(r"^-- include: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script's text and the name under which servers cache it."""

    name: str
    text: str = field(repr=False)
    sha: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Need:
    """A command that a script runs, as the ACL names it, with the key and what else it takes."""

    command: str  # such as hset or xgroup|create
    key: str | None = None
    rest: tuple[Part, ...] = ()

    def words(self) -> tuple[Part, ...]:
        """The whole command, to be judged and not run."""
        on_key = () if self.key is None else (self.key,)
        return (*self.command.split("|"), *on_key, *self.rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """One run of a script. All its keys lie in one slot; the first decides the node."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[Part, ...] = ()
    needs: Callable[[], tuple[Need, ...]] = tuple  # asked for when the ACL refuses

    def by_sha(self) -> Command:
        """Run what the server has cached."""
        return self._command("EVALSHA", self.script.sha)

    def by_text(self) -> Command:
        """Run it whether or not the server has cached it; it has afterwards."""
        return self._command("EVAL", self.script.text)

    def _command(self, name: str, script: str) -> Command:
        return Command(
            parts=(name, script, len(self.keys), *self.keys, *self.args),
            key=self.keys[0],
            writes=self.script.writes,
        )


@cache
def load_script(name: str, *, writes: bool) -> Script:
    """The script in `lua/<name>.lua`; a line `-- include: X` stands for `lua/include/X.lua`."""
    text = _INCLUDE.sub(lambda found: _read(f"include/{found[1]}"), _read(name))
    digest = sha1(text.encode(), usedforsecurity=False).hexdigest()  # Redis names scripts by SHA-1
    return Script(name=name, text=text, sha=digest, writes=writes)


def _read(name: str) -> str:
    path = files("pelops.redis_streams").joinpath("lua", *f"{name}.lua".split("/"))
    return path.read_text("utf-8")


def find_denied(needs: Sequence[Need], *, near: str) -> Command:
    """A command whose reply is the place of the first need that the ACL forbids, from 1; or 0.

    It declares no key, since a key that is forbidden would forbid the question as well.
    """
    script = load_script("find_denied", writes=False)
    words = [part for need in needs for part in (len(need.words()), *need.words())]
    return Command(parts=("EVAL", script.text, 0, *words), key=near)
