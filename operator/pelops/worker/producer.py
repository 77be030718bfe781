"""Adds entries to a stream.

async with Producer.from_env(max_length=1_000_000) as producer:
    entry_id = await producer.add({"order": "17"}, key="order-17")
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import InvalidSpec, OutcomeUnknown, PelopsError, RedisUnavailable
from pelops.worker.settings import WrongWorkerSettings, ends_with_a_line, read_endpoint
from pelops.worker.tracing import read_context

Part: TypeAlias = str | bytes | int  # of a command
Value: TypeAlias = str | bytes | int | float
Fields: TypeAlias = Mapping[str, Value] | Mapping[bytes, Value] | Sequence[tuple[Part, Value]]

PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """Settings of one producer. Raises WrongWorkerSettings for limits that are invalid."""

    # Approximate number of entries to keep. Older ones are deleted, processed or not. None: all are
    # kept, unless the operator's retention deletes entries, which it does after they are processed.
    max_length: int | None = None
    max_age_s: float | None = None  # the same by age, by this machine's clock
    name: str = "pelops"  # producers with one name share their keys
    patience_s: float = PATIENCE_S  # how long an entry is retried
    trace: bool = True  # whether the current span's context is added as fields

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_age_s is not None:
            raise WrongWorkerSettings("set max_length or max_age_s, not both")
        if self.max_length is not None and not self.max_length >= 1:
            raise WrongWorkerSettings(
                f"max_length is {self.max_length}; it must be greater than or equal to 1"
            )
        if self.max_age_s is not None and not 0 < self.max_age_s < float("inf"):
            raise WrongWorkerSettings(f"max_age_s is {self.max_age_s}; it must be greater than 0")

    def limit(self) -> list[Part]:
        """The arguments of XADD that delete old entries."""
        if self.max_length is not None:
            return ["MAXLEN", "~", self.max_length]
        if self.max_age_s is not None:
            return ["MINID", "~", f"{max(int((time.time() - self.max_age_s) * 1000), 0)}-0"]
        return []


@dataclass(slots=True)
class PendingAdd:
    """One entry to add."""

    pairs: list[Part]
    key: Part | None
    until_s: float  # end of its retries, in loop time
    added: asyncio.Future[str]
    by_key: bool = False  # whether it was last sent with its key
    may_be_added: bool = False  # it may have been added already

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return sum(len(part) if isinstance(part, str | bytes) else 8 for part in self.pairs)


def own_error(error: Exception) -> Exception:
    """A copy of the error for one entry: several must not share one traceback."""
    try:
        copy = type(error)(*error.args)
    except TypeError:
        return error
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy


def check_key(key: Part | None) -> Part | None:
    """The key, if it is valid; raises ValueError."""
    if key is not None and (not isinstance(key, str | bytes) or not key):
        raise ValueError("a key must be text or bytes, and not empty")
    return key


def flatten(fields: Any) -> list[Part]:
    """Alternating fields and values; raises TypeError for types that Redis cannot hold."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    flat: list[Part] = [part for name, value in pairs for part in (name, value)]
    for part in flat:
        if isinstance(part, bool) or not isinstance(part, str | bytes | int | float):
            # Not the value, which may be confidential.
            raise TypeError(f"a field must be text, bytes or a number, not {type(part).__name__}")
    return flat


log = logging.getLogger("pelops.worker")

_AT_ONCE: Final = 500  # commands per round trip
_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
_UNKNOWN_OPTION: Final = "Invalid stream ID"  # what servers without IDMP answer to it


class ProducerOptions(TypedDict, total=False):
    """How a producer adds; each as in `AddOptions`, which has the defaults."""

    max_length: int | None
    max_age_s: float | None
    name: str
    patience_s: float
    trace: bool


class Producer:
    """Adds entries to one stream, several in one round trip.

    An entry with a `key` is added once, however often it is sent with that key, on a server that
    supports it (Redis 8.6 or later). The server keeps the last 100 keys of each `name` for 100 s;
    `XCFGSET` changes both. Other servers ignore the key, which is logged; see `is_idempotent`.

    A command that certainly had no effect is repeated for up to `patience_s` seconds. So is one
    whose outcome is unknown if the server keeps its key; otherwise OutcomeUnknown is raised.
    """

    def __init__(
        self, endpoint: RedisEndpoint, stream: str, adding: AddOptions | None = None
    ) -> None:
        """Raises InvalidSpec when the endpoint's certificates cannot be read."""
        # Imported late: tests with the in-memory double need no Redis client.
        from pelops.worker.server.connection import wire_to

        self.stream = stream
        self._adding = adding or AddOptions()
        self._wire = wire_to(endpoint, stream)
        self._waiting: list[PendingAdd] = []
        self._sender: asyncio.Task[None] | None = None
        self._known_in = 0  # the connection for which `_knows_keys` holds
        self._knows_keys: bool | None = None

    @classmethod
    def from_env(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        stream: str | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """Create a producer from the `PELOPS_*` variables; options override them.

        Raises WrongWorkerSettings, which names the variable. If the application does not catch it,
        the process prints only that message and exits with code 2.
        """
        variables = os.environ if environment is None else environment
        with ends_with_a_line():
            return cls._read(variables, stream or variables.get("PELOPS_STREAM"), options)

    @classmethod
    def _read(
        cls, variables: Mapping[str, str], stream: str | None, options: ProducerOptions
    ) -> Producer:
        if not stream:
            raise WrongWorkerSettings("no stream: set PELOPS_STREAM, or pass stream=")
        try:
            return cls(read_endpoint(variables), stream, AddOptions(**options))
        except WrongWorkerSettings:
            raise
        except InvalidSpec as error:
            raise WrongWorkerSettings(str(error)) from error

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def is_idempotent(self) -> bool | None:
        """Whether the server supports keys; None: no key has been sent yet."""
        return self._knows_keys

    async def add(self, fields: Fields, *, key: Part | None = None) -> str:
        """Add an entry. Return its ID, or that of the entry added with the same key before."""
        return (await self._submit([(fields, key)]))[0]

    async def add_many(
        self, entries: Iterable[Fields], *, keys: Iterable[Part | None] | None = None
    ) -> list[str]:
        """Add entries in order, in few round trips. Return their IDs.

        Raises the first error after all have been sent: entries before and after it may exist.
        """
        some = list(entries)
        named = [None] * len(some) if keys is None else list(keys)
        return await self._submit(list(zip(some, named, strict=True)))

    async def close(self) -> None:
        """Send the entries that wait, then close the connection."""
        if self._sender is not None:
            await asyncio.wait([self._sender])
        await self._wire.close()

    # Sending.

    async def _submit(self, entries: Sequence[tuple[Fields, Part | None]]) -> list[str]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._adding.patience_s
        context = flatten(read_context()) if self._adding.trace else []
        orders = [
            PendingAdd(flatten(fields) + context, check_key(key), until_s, loop.create_future())
            for fields, key in entries
        ]
        if not all(order.pairs[: len(order.pairs) - len(context)] for order in orders):
            raise ValueError("an entry must have at least one field")
        self._waiting += orders
        if orders and (self._sender is None or self._sender.done()):
            self._sender = loop.create_task(self._send(), name="pelops-producer")
        ends = await asyncio.gather(*(order.added for order in orders), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return [str(end) for end in ends]

    async def _send(self) -> None:
        some: list[PendingAdd] = []
        try:
            while some := self._pop_batch():
                await self._send_some(some)
        except BaseException as error:
            for order in (*some, *self._waiting):
                if not order.added.done():
                    order.added.set_exception(OutcomeUnknown(f"sending ended: {error!r}"))
            self._waiting.clear()
            raise

    def _pop_batch(self) -> list[PendingAdd]:
        """Take entries for one round trip; drop those whose caller was cancelled."""
        wanted = [order for order in self._waiting if not order.added.done()]
        size, count = 0, 0
        for order in wanted[:_AT_ONCE]:
            size += order.size
            if count and size > _BYTES_AT_ONCE:
                break
            count += 1
        self._waiting = wanted[count:]
        return wanted[:count]

    async def _send_some(self, some: list[PendingAdd]) -> None:
        replies: Sequence[Any]
        commands = [self._command(order) for order in some]
        try:
            replies = await self._wire.send(commands)
        except PelopsError as error:
            replies = [error] * len(some)
        if self._known_in != self._wire.connections:
            self._known_in = self._wire.connections
            self._knows_keys = None  # it may be another server
        again = [
            order
            for order, reply in zip(some, replies, strict=True)
            if self._apply_reply(order, reply)
        ]
        self._waiting = again + self._waiting

    def _command(self, order: PendingAdd) -> tuple[Part, ...]:
        head: list[Part] = ["XADD", self.stream]
        order.by_key = order.key is not None and self._knows_keys is not False
        if order.by_key and order.key is not None:
            head += ["IDMP", self._adding.name, order.key]
        head += self._adding.limit()
        return (*head, "*", *order.pairs)

    def _apply_reply(self, order: PendingAdd, reply: Any) -> bool:
        """Apply the reply to an entry; return whether it is sent again."""
        # Imported late, like all that loads redis-py: an import of the SDK does not need it.
        from pelops.redis_core.errors import words_of

        if not isinstance(reply, Exception):
            if order.by_key:
                self._knows_keys = True
            if not order.added.done():
                order.added.set_result(reply.decode())
            return False
        if order.by_key and _UNKNOWN_OPTION in words_of(reply):
            return self._learn_unknown(order)
        if order.added.done() or self._may_repeat(order, reply):
            return not order.added.done()
        order.added.set_exception(own_error(reply))
        return False

    def _learn_unknown(self, order: PendingAdd) -> bool:
        if self._knows_keys is not False:
            log.warning(
                "%s: this server does not support idempotent XADD (Redis 8.6 or later does): an "
                "entry "
                "that is sent twice is added twice",
                self.stream,
            )
        self._knows_keys = False
        if not order.may_be_added:
            return True
        if not order.added.done():
            message = (
                "the entry may have been added by a server that supports idempotent XADD; the "
                "server that answers does not"
            )
            order.added.set_exception(OutcomeUnknown(message))
        return False

    def _may_repeat(self, order: PendingAdd, error: Exception) -> bool:
        if asyncio.get_running_loop().time() >= order.until_s:
            return False
        if isinstance(error, RedisUnavailable):
            return True
        # Repeating is safe: a server with keys adds it once, and one without refuses the command.
        if isinstance(error, OutcomeUnknown) and order.by_key:
            order.may_be_added = True
            return True
        return False
