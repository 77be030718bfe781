"""Explain refusals: the command, the key and the remedy.

The errors of Redis name neither the key of a wrong type nor a forbidden key. Redis 7.0 does not
name the forbidden command of a script either.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pelops.errors import PelopsError, PermissionDenied, WrongType
from pelops.redis_core.commands import Need, text_of
from pelops.redis_core.transport import Reply
from pelops.redis_streams.access import worker_needs
from pelops.scripts.calls import find_denied
from pelops.scripts.parts import Text
from pelops.worker.server.script_commands import Names, Parts, command_of, with_text, worker_script

_FIND_WRONG_TYPE: Final = worker_script("find_wrong_type", list[Text])
VALID_S: Final = 1.0  # how long the replies of the probes are reused


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Explains what is refused to one Redis user."""

    remedy: str  # a command that prints the required ACL rules
    probes: tuple[Parts, ...] = ()  # find a key of a wrong type, and a forbidden command
    needs: tuple[Need, ...] = ()  # the second probe returns the position of the first forbidden one

    @classmethod
    def of_worker(cls, names: Names) -> Refusals:
        """For a worker, whose probes are scripts that only read."""
        types = command_of(_FIND_WRONG_TYPE.call(names))
        needs = worker_needs(names)
        remedy = f"pelops acl --role sdk-worker {_named('stream', names.stream)}"
        return cls(
            remedy=f"{remedy} {_named('group', names.group)}",
            probes=(with_text(types), find_denied(needs, near=names.stream).parts),
            needs=needs,
        )

    @classmethod
    def of_producer(cls, stream: str) -> Refusals:
        """For a producer. It uses one command on one key, so it needs no probes."""
        return cls(remedy=f"pelops acl --role producer {_named('stream', stream.encode())}")

    def explain(
        self, error: PelopsError, command: Parts, probe_replies: Sequence[Reply]
    ) -> PelopsError:
        """The error with its command and key; `probe_replies` are those of the probes."""
        wrong, place = probe_replies if len(probe_replies) == 2 else ([], 0)
        if isinstance(error, WrongType):
            return self.wrong_type(*_two(wrong, default=(_report_keys(command), "another type")))
        if isinstance(error, PermissionDenied) and error.command:
            return self.denied(error.command, error.key)
        if isinstance(error, PermissionDenied):
            if isinstance(place, int) and 0 < place <= len(self.needs):
                need = self.needs[place - 1]
                return self.denied(need.command, need.named_key)
            return self.denied(str(command[0]).lower(), _report_keys(command))
        return error

    def denied(self, command: str, key: str | None) -> PermissionDenied:
        """The ACL forbids this command, on this key or, with None, on any."""
        on_key = f" on {key}" if key else ""
        message = f"the ACL of the Redis user forbids {command}{on_key}; grant it: `{self.remedy}`"
        return PermissionDenied(message, command=command, key=key)

    def wrong_type(self, key: str, found: str) -> WrongType:
        """A key of the group holds a type that Pelops did not write."""
        message = (
            f"{key} holds {found}, which Pelops did not write; rename that key, or use another "
            "stream"
        )
        return WrongType(message, key=key, found=found)


def is_vague(reply: Reply) -> bool:
    """Whether a reply is a refusal that `Refusals` can explain."""
    return isinstance(reply, (PermissionDenied, WrongType))


def _two(found: Reply, default: tuple[str, str]) -> tuple[str, str]:
    is_pair = isinstance(found, list) and len(found) == 2
    if not is_pair or not all(isinstance(part, bytes) for part in found):
        return default
    return text_of(found[0]), text_of(found[1])


def _report_keys(command: Parts) -> str:
    """The keys that a command names."""
    name = str(command[0])
    if name.startswith("EVAL"):
        keys = command[3 : 3 + int(command[2])]
    elif name == "XREADGROUP":
        named = command[command.index("STREAMS") + 1 :]
        keys = named[: len(named) // 2]
    else:
        keys = command[1:2]
    return " or ".join(map(text_of, keys))


def _named(what: str, name: bytes) -> str:
    return f"--{what} {shlex.quote(text_of(name))}"
