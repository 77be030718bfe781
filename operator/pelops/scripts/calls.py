"""Calls of Lua scripts and their answers, by the names that each script's header declares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import sha1
from typing import Any, Final, TypeVar

from pelops.domain.state import FORMAT_VERSION
from pelops.errors import NewerFormat
from pelops.redis_core.commands import NamedKeys, Need, Part, text_of
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.replies.wire import WITHOUT_BODIES
from pelops.redis_core.transport import Command, Reply
from pelops.scripts.declaration import (
    NEWER_FORMAT,
    OPERATOR_SCRIPTS,
    Argument,
    ArgumentKind,
    Declaration,
    Field,
    Many,
    Tail,
    read_declaration,
)

_NO_KEYS: Final[Mapping[str, Part]] = {}
Record = TypeVar("Record", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """The answer of a script."""

    verdict: str  # "" when it has none
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """A part of the answer; raises KeyError for one that this verdict does not have."""
        return self.fields[name]

    def into(self, record: type[Record]) -> Record:
        """All parts as a NamedTuple that has exactly these names."""
        return record(**self.fields)


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script, and the SHA-1 under which servers cache it."""

    declared: Declaration = field(repr=False)
    sha: str
    is_dry: bool = False  # the text for dry runs

    @property
    def name(self) -> str:
        """The name of its file, without the extension."""
        return self.declared.name

    @property
    def text(self) -> str:
        """The text that is sent to servers."""
        return self.declared.dry_text if self.is_dry else self.declared.text

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return bool(self.declared.writes) and not self.is_dry

    @cached_property
    def dry(self) -> Script:
        """The script for dry runs: the same answers, without writes."""
        text = self.declared.dry_text
        return Script(declared=self.declared, sha=_name(text), is_dry=True)

    @cached_property
    def _expected(self) -> frozenset[str]:
        tail = self.declared.tail
        return frozenset(one.name for one in (*self.declared.arguments, *((tail,) if tail else ())))

    def call(
        self,
        group: NamedKeys | None,
        special: Mapping[str, Part | Sequence[Part] | None] = _NO_KEYS,
        /,
        **args: Any,
    ) -> ScriptCall:
        """One call. Keys are looked up by name in `special`, then among those of the group.

        None leaves out an optional key; a name for many keys takes a sequence. A flag takes a bool;
        None is an empty argument. The tail of ARGV is a sequence of texts or mappings. Raises
        TypeError for a name that is missing or unknown.
        """
        declared = self.declared
        known = {} if group is None else group.by_name()
        named = dict(self._name_keys(known, special))
        if args.keys() != self._expected or not special.keys() <= named.keys():
            differing = sorted((args.keys() ^ self._expected) | (special.keys() - named.keys()))
            raise TypeError(f"{self.name}.lua: missing or unknown: {', '.join(differing)}")
        values: list[Part] = [_encode(one, args[one.name]) for one in declared.arguments]
        if declared.tail is not None:
            values += _encode_tail(declared.tail, args[declared.tail.name])
        return ScriptCall(script=self, named=named, args=tuple(values))

    def _name_keys(
        self, known: Mapping[str, Part], special: Mapping[str, Part | Sequence[Part] | None]
    ) -> Iterable[tuple[str, tuple[Part, ...]]]:
        for key in self.declared.keys:
            given = special[key.name] if key.name in special else known.get(key.name)
            if key.many is Many.ANY:
                if key.name not in special:
                    raise TypeError(f"{self.name}.lua: the keys {key.name} are missing")
                yield key.name, tuple(given or ())  # type: ignore[arg-type]
            elif given is not None:
                yield key.name, (given,)  # type: ignore[misc]
            elif key.many is Many.OPTIONAL and key.name in special:
                yield key.name, ()
            else:
                raise TypeError(f"{self.name}.lua: the key {key.name} is missing")

    def read(self, reply: Reply) -> ScriptAnswer:
        """The reply with its parts by name. Raises InvalidReply for one that is not declared.

        Raises NewerFormat when the script refused the format of the group's state.
        """
        with reading(f"{self.name}.lua"):
            return self._read(reply)

    def _read(self, reply: Reply) -> ScriptAnswer:
        answers = self.declared.answers
        verdict, parts = "", reply
        if isinstance(reply, bytes):
            verdict, parts = reply.decode(), ()
        elif reply and isinstance(reply[0], bytes) and _is_verdict(reply[0], answers):
            verdict, parts = reply[0].decode(), reply[1:]
        elif self.declared.checks_format and _is_newer_format(reply):
            raise newer_format(key=text_of(reply[2]), version=int(reply[1]))
        fields = answers.get(verdict)
        if fields is None or not _fits(parts, fields):
            raise BadShape("the script's header does not declare it")
        found = {
            one.name: one.read(parts[place:] if one.is_rest else parts[place])
            for place, one in enumerate(fields)
        }
        return ScriptAnswer(verdict, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """One call of a script. All its keys are in one slot; the first decides the node."""

    script: Script
    named: Mapping[str, tuple[Part, ...]]
    args: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        """The name of the script."""
        return self.script.name

    @property
    def keys(self) -> tuple[Part, ...]:
        """All keys in the order of the script."""
        return tuple(key for keys in self.named.values() for key in keys)

    def dry(self) -> ScriptCall:
        """The same call as a dry run, which writes nothing."""
        return replace(self, script=self.script.dry)

    def needs(self) -> list[Need]:
        """The rights without which the script cannot run."""
        return [
            Need(run.command, key)
            for run in self.script.declared.runs()
            if not run.is_optional
            for key in (
                [key for name in run.keys for key in self.named[name]] if run.keys else [None]
            )
        ]

    def find_denied(self) -> Command:
        """A command that returns the position of the first denied one of `needs`, from 1; or 0."""
        return find_denied(self.needs(), near=self.keys[0])

    def by_sha(self) -> Command:
        """The command that runs the cached script."""
        return self._command("EVALSHA", self.script.sha)

    def by_text(self) -> Command:
        """The command that sends the text, which the server then caches."""
        return self._command("EVAL", self.script.text)

    def _command(self, name: str, script: str) -> Command:
        keys = self.keys
        return Command(
            parts=(name, script, len(keys), *keys, *self.args),
            key=text_of(keys[0]) if keys else None,
            writes=self.script.writes,
            limit=WITHOUT_BODIES,
        )


@cache
def load_script(name: str, package: str = OPERATOR_SCRIPTS) -> Script:
    """The script `lua/<name>.lua` of a package; raises BadDeclaration."""
    declared = read_declaration(name, package)
    return Script(declared=declared, sha=_name(declared.text))


def _name(text: str) -> str:
    """The name of a script in Redis: the SHA-1 of its text."""
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


def newer_format(*, key: str, version: int) -> NewerFormat:
    """The error for a state of a format that this version does not support."""
    return NewerFormat(
        f"the key {key} was written in format {version} by a newer version of Pelops, and this "
        f"operator understands formats up to {FORMAT_VERSION}"
    )


def find_denied(needs: Sequence[Need], *, near: Part) -> Command:
    """A command that returns the position of the first need that the ACL forbids, from 1; or 0.

    It declares no key, because a forbidden key would make Redis refuse the command itself.
    """
    script = load_script("find_denied")
    words = [part for need in needs for part in (len(need.words()), *need.words())]
    return Command(parts=("EVAL", script.text, 0, *words), key=text_of(near))


def _is_verdict(part: bytes, answers: Collection[str]) -> bool:
    # An empty text may be the first part of an answer without a verdict.
    return part != b"" and part.decode("latin-1") in answers


def _is_newer_format(reply: Reply) -> bool:
    if type(reply) is not list or len(reply) != 3 or reply[0] != NEWER_FORMAT.encode():
        return False
    version, key = reply[1:]
    return isinstance(version, bytes) and version.isdigit() and isinstance(key, bytes)


def _fits(parts: Sequence[Reply], fields: Sequence[Field]) -> bool:
    if fields and fields[-1].is_rest:
        return len(parts) >= len(fields) - 1
    return len(parts) == len(fields)


def _encode(argument: Argument, value: Any) -> Part:
    if value is None:
        return ""
    if argument.kind is ArgumentKind.FLAG:
        return int(value)
    return value  # type: ignore[no-any-return]


def _encode_tail(tail: Tail, values: Iterable[Any]) -> Iterable[Part]:
    return _encode_rows(tail, values) if tail.columns else values


def _encode_rows(tail: Tail, values: Iterable[Mapping[str, Any]]) -> Iterator[Part]:
    names = {one.name for one in tail.columns}
    for row in values:
        if row.keys() != names:
            raise TypeError(f"{tail.name} have to have {', '.join(sorted(names))}: {sorted(row)}")
        for column in tail.columns:
            yield _encode(column, row[column.name])
