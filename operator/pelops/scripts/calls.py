"""Calls of Lua scripts, by the names that each script's header declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, Generic

from pelops.domain.records.state import FORMAT_VERSION
from pelops.errors import NewerFormat
from pelops.redis_core.commands import NamedKeys, Need, Part, text_of
from pelops.redis_core.replies.shapes import reading, text
from pelops.redis_core.replies.wire import WITHOUT_BODIES
from pelops.redis_core.transport import Command, Reply
from pelops.scripts.answers import Answers, AnswerT
from pelops.scripts.declaration import (
    NEWER_FORMAT,
    OPERATOR_SCRIPTS,
    Argument,
    ArgumentKind,
    Declaration,
    Many,
    Tail,
    read_declaration,
)

if TYPE_CHECKING:
    from typing_extensions import TypeForm

_NO_KEYS: Final[Mapping[str, Part]] = {}
_NEWER_FORMAT: Final = NEWER_FORMAT.encode()


@dataclass(frozen=True, kw_only=True)
class Script(Generic[AnswerT]):
    """A script, and the forms of its answers."""

    declared: Declaration = field(repr=False)
    answers: Answers[AnswerT] = field(repr=False)
    is_dry: bool = False  # the text for dry runs

    @property
    def name(self) -> str:
        """The name of its file, without the extension."""
        return self.declared.name

    @property
    def text(self) -> str:
        """The text that is sent to servers."""
        return self.declared.dry_text if self.is_dry else self.declared.text

    @cached_property
    def sha(self) -> str:
        """The SHA-1 of its text, under which servers cache it."""
        return sha1_of(self.text)

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return bool(self.declared.writes) and not self.is_dry

    @cached_property
    def dry(self) -> Script[AnswerT]:
        """The script for dry runs: the same answers, without writes."""
        return replace(self, is_dry=True)

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

    def read(self, reply: Reply) -> AnswerT:
        """The answer. Raises InvalidReply for a reply of another form.

        Raises NewerFormat when the script refused the format of the group's state.
        """
        with reading(f"{self.name}.lua"):
            is_newer = type(reply) is list and reply[:1] == [_NEWER_FORMAT]
            if is_newer and self.declared.checks_format:
                _, version, key = reply
                raise newer_format(key=text_of(text(key)), version=int(version))
            return self.answers.read(reply)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """One call of a script. All its keys are in one slot; the first decides the node."""

    script: Script[Any]
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


def load_script(
    name: str, answers: TypeForm[AnswerT], package: str = OPERATOR_SCRIPTS
) -> Script[AnswerT]:
    """The script `lua/<name>.lua` of a package, with its answers; raises BadDeclaration."""
    return Script(declared=read_declaration(name, package), answers=Answers(answers))


def sha1_of(text: str) -> str:
    """The name of a script in Redis."""
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
    words = [part for need in needs for part in (len(need.words()), *need.words())]
    script = read_declaration("find_denied")
    return Command(parts=("EVAL", script.text, 0, *words), key=text_of(near))


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
