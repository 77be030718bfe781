"""Every Redis command for which Pelops needs a right, with arguments that make it valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

# By its name in ACL rules. None is run: the ACL checks the command and its key, here KEY.
COMMANDS: Final[Mapping[str, str]] = {
    "asking": "ASKING",
    "auth": "AUTH default",
    "client|id": "CLIENT ID",
    "client|setinfo": "CLIENT SETINFO LIB-NAME n",
    "client|setname": "CLIENT SETNAME n",
    "client|unblock": "CLIENT UNBLOCK 0",
    "cluster|shards": "CLUSTER SHARDS",
    "cluster|slots": "CLUSTER SLOTS",
    "command": "COMMAND",
    "exec": "EXEC",
    "exists": "EXISTS KEY",
    "hdel": "HDEL KEY f",
    "hello": "HELLO",
    "hget": "HGET KEY f",
    "hincrby": "HINCRBY KEY f 1",
    "hmget": "HMGET KEY f",
    "hscan": "HSCAN KEY 0",
    "hset": "HSET KEY f v",
    "info": "INFO replication",
    "multi": "MULTI",
    "ping": "PING",
    "psubscribe": "PSUBSCRIBE c",
    "pttl": "PTTL KEY",
    "punsubscribe": "PUNSUBSCRIBE c",
    "select": "SELECT 0",
    "time": "TIME",
    "type": "TYPE KEY",
    "unlink": "UNLINK KEY",
    "xack": "XACK KEY g 0-1",
    "xackdel": "XACKDEL KEY g ACKED IDS 1 0-1",
    "xadd": "XADD KEY * f v",
    "xautoclaim": "XAUTOCLAIM KEY g c 1 0-0",
    "xclaim": "XCLAIM KEY g c 0 0-1",
    "xdel": "XDEL KEY 0-1",
    "xgroup|create": "XGROUP CREATE KEY g 0-0 MKSTREAM",
    "xgroup|delconsumer": "XGROUP DELCONSUMER KEY g c",
    "xgroup|destroy": "XGROUP DESTROY KEY g",
    "xgroup|setid": "XGROUP SETID KEY g 0-1 ENTRIESREAD 0",
    "xinfo|consumers": "XINFO CONSUMERS KEY g",
    "xinfo|groups": "XINFO GROUPS KEY",
    "xinfo|stream": "XINFO STREAM KEY",
    "xlen": "XLEN KEY",
    "xnack": "XNACK KEY g FAIL IDS 1 0-1",
    "xpending": "XPENDING KEY g - + 1",
    "xrange": "XRANGE KEY - +",
    "xread": "XREAD STREAMS KEY $",
    "xreadgroup": "XREADGROUP GROUP g c STREAMS KEY >",
    "xrevrange": "XREVRANGE KEY + -",
    "xtrim": "XTRIM KEY MINID 0-1",
}


Part: TypeAlias = str | bytes | int  # of a command


class NamedKeys(Protocol):
    """Keys of a group by the names that scripts use for them."""

    def by_name(self) -> Mapping[str, Part]:
        """Each key by its name."""


@dataclass(frozen=True, slots=True)
class Need:
    """A right that Pelops needs: a command on a key."""

    command: str  # its name in ACL rules, such as hset or xgroup|create
    key: Part | None = None

    @property
    def named_key(self) -> str | None:
        """The key as text, for messages."""
        return None if self.key is None else text_of(self.key)

    def words(self) -> list[Part]:
        """The whole command, for a check by the ACL without running it."""
        return [
            self.key if word == "KEY" and self.key is not None else word
            for word in split_command(self.command)
        ]


def text_of(part: Part) -> str:
    """A part of a command as text."""
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)


def split_command(command: str) -> list[str]:
    """The words of a valid command, with KEY in place of its key."""
    return COMMANDS[command].split()
