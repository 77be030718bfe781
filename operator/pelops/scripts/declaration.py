"""The declaration at the top of each Lua script, and the text that is sent to a server.

The header of a script declares all except its answers. It is parsed once, and strictly:

    -- include: entry
    -- Count what is left, and write it down.
    --
    -- KEYS     stream, state, [retry], locks...
    -- ARGV     group, most: number (of entries), is_deep: flag, items{id, idle_ms: number}...
    -- READS    type stream state; xinfo|groups stream; exists locks for locks; [info]
    -- WRITES   hset state
    -- USER     operator for recovery
    -- Costs  constant.
    -- Repeats safely: ...

`(...)` is a comment. `none` is an empty line.

KEYS     `[name]` may be absent, `name...` is any number of keys.
ARGV     text, or `: number` ('' is nil in Lua), or `: flag`; `name...` is any number of texts,
         `name{...}...` any number of records. All become locals of the same name in Lua.
READS    commands, each with the keys that it names. `[command]` is optional: the script continues
         if it is forbidden or unknown. The right to run `command!` is checked before the script
         writes anything, as for all WRITES. `for x`: only users of this feature need it.
USER     the roles that run it, then the features that need it; none: always.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final

from pelops.domain.records.ledger import ENTRY_WORDS, EVENT_FIELDS, LETTER_FIELDS
from pelops.domain.records.state import FORMAT, FORMAT_VERSION
from pelops.redis_core.commands import COMMANDS, split_command

OPERATOR_SCRIPTS: Final = "pelops.redis_streams"
WORKER_SCRIPTS: Final = "pelops.worker.server"
KEY_TYPES: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("stream", "dead_letter", "ledger", "retry", "offer_stream"), "stream"),
    "discarded": "stream",
    "worker_ledger": "stream",
    **dict.fromkeys(("source", "target"), "stream"),  # the stream, or the retry stream
    **dict.fromkeys(("state", "started", "worker_state", "audit", "dead_letter_owner"), "hash"),
    "further": "stream",
    **dict.fromkeys(("others", "locks"), None),  # their type is not checked
}
# The first lines of a script, and those in a dry run. In a dry run a declared write does nothing
# and returns a reply as if it had; the flag makes the server refuse any other write.
_FOR_REAL: Final = "local dry_run = false\n"
_DRY_RUN: Final = """#!lua flags=no-writes
local dry_run, redis = true, (function(server)
  local writes = {{ {writes} }}
  local function run(call, command, ...)
    if writes[command] then
      return command == 'XADD' and '0-1' or 0
    end
    return call(command, ...)
  end
  return setmetatable({{
    call = function(...) return run(server.call, ...) end,
    pcall = function(...) return run(server.pcall, ...) end,
  }}, {{ __index = server }})
end)(redis)
"""
NEWER_FORMAT: Final = "newer-format"  # the verdict of any script that checks the format
_LINES: Final = ("KEYS", "ARGV", "READS", "WRITES", "USER")
_INCLUDE: Final = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)
_BEGINS: Final = re.compile(r"-- ([A-Z]{4,}) +(\S.*)")
_GOES_ON: Final = re.compile(r"-- {3,}(\S.*)")
_COMMENT: Final = re.compile(r"\s*\([^()]*\)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_RUN: Final = re.compile(r"(\[?)([a-z|]+)(!?)((?: [a-z_]+)*?)(?: for ((?: ?[a-z-]+)+))?(\]?)")
_LUA_WORDS: Final = re.compile(
    "and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then"
    "|true|until|while"
)


class BadDeclaration(Exception):
    """A script's header is invalid, or the script does not follow it."""


class ArgumentKind(StrEnum):
    """What an argument is in Lua."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"


class Many(StrEnum):
    """How many keys a name of KEYS stands for."""

    ONE = "one"
    OPTIONAL = "optional"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Key:
    """A name of KEYS."""

    name: str
    many: Many = Many.ONE


@dataclass(frozen=True, slots=True)
class Argument:
    """A name of ARGV."""

    name: str
    kind: ArgumentKind = ArgumentKind.TEXT


@dataclass(frozen=True, slots=True)
class Tail:
    """The last name of ARGV, if it stands for any number of texts or records."""

    name: str
    columns: tuple[Argument, ...] = ()  # of a record; empty: texts


@dataclass(frozen=True, slots=True)
class DeclaredCommand:
    """A command that a script runs, with the keys that it may name."""

    command: str  # its name in ACL rules, such as hset or xgroup|create
    keys: tuple[str, ...]  # names of KEYS; empty: the command takes no key
    is_optional: bool  # the script continues if it is forbidden or unknown
    is_asked_for: bool  # the right is checked before the script writes anything
    features: tuple[str, ...] = ()  # only users of these features need it


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A script as its header declares it."""

    name: str
    summary: str  # one or two sentences for people
    keys: tuple[Key, ...]
    arguments: tuple[Argument, ...]
    tail: Tail | None
    reads: tuple[DeclaredCommand, ...]
    writes: tuple[DeclaredCommand, ...]
    roles: tuple[str, ...]
    features: tuple[str, ...]
    text: str  # the whole text as sent to servers

    @property
    def dry_text(self) -> str:
        """The text for dry runs: it decides and answers like the script, but writes nothing."""
        words = {one.command.partition("|")[0].upper() for one in self.writes}
        begin = _DRY_RUN.format(writes=", ".join(f"{word} = true" for word in sorted(words)))
        return begin + self.text.removeprefix(_FOR_REAL)

    @property
    def checks_format(self) -> bool:
        """Whether it refuses a state of a newer format, as all that write and have a state key."""
        return bool(self.writes) and any(key.name == "state" for key in self.keys)

    def runs(self) -> Iterator[DeclaredCommand]:
        """Every declared command, reads first."""
        yield from self.reads
        yield from self.writes


@cache
def read_declaration(name: str, package: str = OPERATOR_SCRIPTS) -> Declaration:
    """The declaration of `lua/<name>.lua` in a package; raises BadDeclaration."""
    source = _read(package, f"{name}.lua")
    try:
        return parse_script(name, source, package)
    except BadDeclaration as error:
        raise BadDeclaration(f"{name}.lua: {error}") from error


def list_scripts(package: str) -> list[str]:
    """The names of all scripts of a package."""
    found = files(package).joinpath("lua").iterdir()
    return sorted(one.name.removesuffix(".lua") for one in found if one.name.endswith(".lua"))


def read_include(name: str, package: str = OPERATOR_SCRIPTS) -> str:
    """The text of `lua/include/<name>.lua` of the package, else of the operator, or generated."""
    if name in _GENERATED:
        return _GENERATED[name]()
    own = files(package).joinpath("lua", "include", f"{name}.lua")
    return (
        own.read_text("utf-8") if own.is_file() else _read(OPERATOR_SCRIPTS, f"include/{name}.lua")
    )


def _render_ledger_fields() -> str:
    """Lua functions that return the fields of a kind of event, and the words of one entry.

    They use no Lua table, which would be built for each call or each entry.
    """
    rows = (f"    ['{kind}'] = '{' '.join(names)}'," for kind, names in EVENT_FIELDS.items())
    return "\n".join(
        (
            "local function ledger_fields(kind)\n  return ({",
            *(*rows, "  })[kind]\nend"),
            f"local function ledger_entry({', '.join(ENTRY_WORDS)})",
            "  return " + " .. ' ' .. ".join(ENTRY_WORDS),
            "end\n",
        )
    )


def _render_letter_fields() -> str:
    names = ", ".join(f"'{name}'" for name in LETTER_FIELDS)
    return f"local LETTER_FIELDS = {{ {names} }}\n"


# Formats that Lua writes and Python reads are declared in Python, and included like a file.
_GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "ledger_fields": _render_ledger_fields,
    "letter_fields": _render_letter_fields,
}


def _read(package: str, path: str) -> str:
    return files(package).joinpath("lua", *path.split("/")).read_text("utf-8")


def parse_script(name: str, source: str, package: str = OPERATOR_SCRIPTS) -> Declaration:
    """The declaration of a script's text; includes are from `package`. Raises BadDeclaration."""
    body = _INCLUDE.sub("", source)
    summary, lines = _read_header(body)
    keys = tuple(_parse_key(word) for word in _split(lines["KEYS"]))
    arguments, tail = _parse_arguments(lines["ARGV"])
    names = [one.name for one in (*keys, *arguments, *((tail,) if tail else ()))]
    if len(set(names)) < len(names):
        raise BadDeclaration("a name stands twice in KEYS and ARGV")
    if any(key.many is not Many.ONE for key in keys[:-1]):
        raise BadDeclaration("only the last key may be absent or stand for many")
    roles, _, features = lines["USER"].partition(" for ")
    declared = Declaration(
        name=name,
        summary=summary,
        keys=keys,
        arguments=arguments,
        tail=tail,
        reads=parse_runs(lines["READS"], {key.name for key in keys}),
        writes=parse_runs(lines["WRITES"], {key.name for key in keys}, writes=True),
        roles=tuple(roles.split()),
        features=tuple(features.split()),
        text="",
    )
    included = "".join(_include(source, package, {}).values())
    guard = _render_format_check(declared)
    refusal = _render_refusal(declared, body)
    text = _FOR_REAL + _render_locals(declared) + guard + included + refusal + body
    return replace(declared, text=text)


def _include(source: str, package: str, done: dict[str, str]) -> dict[str, str]:
    """The includes of a text in the order of their dependencies, each once."""
    for name in _INCLUDE.findall(source):
        if name not in done:
            text = read_include(name, package)
            _include(text, package, done)
            done[name] = _INCLUDE.sub("", text)
    return done


def _read_header(body: str) -> tuple[str, dict[str, str]]:
    """The prose before the declaration, and the declaration's lines without comments."""
    summary: list[str] = []
    lines: dict[str, str] = {}
    current = None
    for line in body.splitlines():
        if not line.startswith("--"):
            break
        begins, goes_on = _BEGINS.fullmatch(line), _GOES_ON.fullmatch(line)
        if begins:
            current = begins[1]
            if current in lines or current not in _LINES:
                raise BadDeclaration(f"the line {current} is unknown, or stands twice")
            lines[current] = begins[2]
        elif goes_on and current:
            lines[current] += " " + goes_on[1]
        else:
            current = None
            if not lines and line != "--":
                summary.append(line.removeprefix("-- "))
    if tuple(lines) != _LINES:
        raise BadDeclaration(f"the header has to have the lines {', '.join(_LINES)}, in this order")
    return " ".join(summary), {name: _strip_comments(text) for name, text in lines.items()}


def _strip_comments(text: str) -> str:
    while (stripped := _COMMENT.sub("", text)) != text:
        text = stripped
    return "" if text.strip() == "none" else text.strip()


def _split(text: str) -> list[str]:
    """The parts between commas, except commas within braces."""
    return [part.strip() for part in re.split(r",(?![^{]*\})", text) if part.strip()]


def _parse_key(word: str) -> Key:
    name, many = word, Many.ONE
    if word.startswith("[") and word.endswith("]"):
        name, many = word[1:-1], Many.OPTIONAL
    elif word.endswith("..."):
        name, many = word[:-3], Many.ANY
    if name not in KEY_TYPES:
        raise BadDeclaration(f"no key is called {name}: {', '.join(KEY_TYPES)}")
    return Key(name, many)


def _parse_arguments(text: str) -> tuple[tuple[Argument, ...], Tail | None]:
    words, tail = _split(text), None
    if words and words[-1].endswith("..."):
        name, _, columns = words.pop()[:-3].rstrip("}").partition("{")
        tail = Tail(_check_name(name), tuple(map(_parse_argument, _split(columns))))
    return tuple(map(_parse_argument, words)), tail


def _parse_argument(word: str) -> Argument:
    name, typed, kind = word.partition(": ")
    if typed and kind not in {ArgumentKind.NUMBER, ArgumentKind.FLAG}:
        raise BadDeclaration(f"{word} is neither a number nor a flag")
    return Argument(_check_name(name), ArgumentKind(kind) if typed else ArgumentKind.TEXT)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or _LUA_WORDS.fullmatch(name):
        raise BadDeclaration(f"{name!r} cannot be a name in Lua and in Python")
    return name


def parse_runs(
    text: str, names: Collection[str] = frozenset(KEY_TYPES), *, writes: bool = False
) -> tuple[DeclaredCommand, ...]:
    """The commands in a text such as READS, with keys of these names. Raises BadDeclaration."""
    return tuple(_parse_runs(text, names, writes=writes))


def _parse_runs(text: str, names: Collection[str], *, writes: bool) -> Iterator[DeclaredCommand]:
    for part in filter(None, (one.strip() for one in text.split(";"))):
        found = _RUN.fullmatch(part)
        if not found or bool(found[1]) != bool(found[6]):
            raise BadDeclaration(f"{part!r} is no command with its keys")
        command, named = found[2], tuple(found[4].split())
        if command not in COMMANDS:
            raise BadDeclaration(f"the command {command} is not in the table of commands")
        if not set(named) <= set(names) or bool(named) != (COMMANDS[command].count("KEY") > 0):
            raise BadDeclaration(f"{part!r} does not name keys of KEYS")
        is_optional = bool(found[1])
        yield DeclaredCommand(
            command=command,
            keys=named,
            is_optional=is_optional,
            is_asked_for=not is_optional and (writes or bool(found[3])),
            features=tuple((found[5] or "").split()),
        )


def _render_locals(declared: Declaration) -> str:
    """Lua that assigns each name of KEYS and ARGV its value."""
    single = [key.name for key in declared.keys if key.many is not Many.ANY]
    lines = [_assign(single, [f"KEYS[{place}]" for place, _ in enumerate(single, 1)])]
    lines += [
        f"local {key.name} = {{}}\n"
        f"for i = {len(single) + 1}, #KEYS do {key.name}[i - {len(single)}] = KEYS[i] end\n"
        for key in declared.keys
        if key.many is Many.ANY
    ]
    arguments, tail = declared.arguments, declared.tail
    values = [_render_value(one.kind, f"ARGV[{place}]") for place, one in enumerate(arguments, 1)]
    lines.append(_assign([one.name for one in arguments], values))
    if tail:
        lines.append(_render_tail(tail, len(arguments)))
    return "".join(lines)


def _assign(names: list[str], values: list[str]) -> str:
    return f"local {', '.join(names)} = {', '.join(values)}\n" if names else ""


def _render_value(kind: ArgumentKind, source: str) -> str:
    return {
        ArgumentKind.TEXT: source,
        ArgumentKind.NUMBER: f"tonumber({source})",
        ArgumentKind.FLAG: f"{source} == '1'",
    }[kind]


def _render_tail(tail: Tail, after: int) -> str:
    name = tail.name
    begins = f"local {name} = {{}}\nfor i = {after + 1}, #ARGV"
    if not tail.columns:
        return f"{begins} do {name}[i - {after}] = ARGV[i] end\n"
    row = ", ".join(
        f"{one.name} = {_render_value(one.kind, f'ARGV[i + {place}]')}"
        for place, one in enumerate(tail.columns)
    )
    return f"{begins}, {len(tail.columns)} do {name}[#{name} + 1] = {{ {row} }} end\n"


def _render_format_check(declared: Declaration) -> str:
    """Lua that, before anything else, ends a script if the group's state has a newer format.

    A key of another type, or a missing right, is left for the script to detect.
    """
    if not declared.checks_format:
        return ""
    reads = {run.command for run in declared.reads if "state" in run.keys}
    if not reads & {"hget", "hmget"}:
        raise BadDeclaration("what writes beside a state needs hget or hmget of it, for its format")
    is_single = "hget" in reads
    answer = "HGET" if is_single else "HMGET"
    place = "" if is_single else "[1]"
    return (
        f"local STATE_FORMAT = '{FORMAT_VERSION}'\n"
        "do\n"
        f"  local found = redis.pcall('{answer}', state, '{FORMAT}'){place}\n"
        "  if type(found) == 'string' and #found <= 19 and string.find(found, '^%d+$')\n"
        "    and tonumber(found) > tonumber(STATE_FORMAT) then\n"
        f"    return {{ '{NEWER_FORMAT}', found, state }}\n"
        "  end\n"
        "end\n"
    )


def _render_refusal(declared: Declaration, body: str) -> str:
    """Lua that returns why the script cannot run: a key of another type, or a missing right."""
    if "find_refusal()" not in body and "find_missing_right()" not in body:
        return ""
    many = {key.name for key in declared.keys if key.many is Many.ANY}
    asked = (
        _render_search(f"find_forbidden('{run.command}', key, {_quote(run.command)})", name, many)
        for run in declared.runs()
        if run.is_asked_for
        for name in run.keys
    )
    typed = (
        _render_search(f"find_wrong_type(key, '{KEY_TYPES[key.name]}')", key.name, many)
        for key in declared.keys
        if KEY_TYPES[key.name]
    )
    return "".join(
        (
            "local function find_missing_right()\n  local key, found\n",
            *(*asked, "  return nil\nend\n"),
            "local function find_refusal()\n  local key, found\n",
            *(*typed, "  return find_missing_right()\nend\n"),
        )
    )


def _render_search(question: str, name: str, many: Collection[str]) -> str:
    """Lua that returns the first problem of this key, or of these keys."""
    if name in many:
        asks = f"found = {question}\n    if found then return found end"
        return f"  for _, key in ipairs({name}) do\n    {asks}\n  end\n"
    return f"  key = {name}\n  found = {question}\n  if found then return found end\n"


def _quote(command: str) -> str:
    """The words of a command in Lua."""
    return ", ".join("key" if word == "KEY" else f"'{word}'" for word in split_command(command))
