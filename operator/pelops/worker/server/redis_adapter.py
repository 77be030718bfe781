"""The adapter of a worker to a Redis server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from pelops.errors import (
    PelopsError,
    PermissionDenied,
    RedisError,
    UnsupportedServer,
)
from pelops.redis_core.replies.shapes import invalid
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import Login, Reply
from pelops.scripts.answers import Refusal
from pelops.scripts.parts import Count, Number, Raw
from pelops.worker.server.acknowledgements import AcknowledgementCommands, in_chunks, read_replies
from pelops.worker.server.adapter import (
    Boot,
    Delivered,
    DeliverySource,
    Exchanged,
    Ids,
    NameTaken,
    Outgoing,
)
from pelops.worker.server.connection import Whereabouts, Wire
from pelops.worker.server.consumer_fencing import ConsumerNameOwnership
from pelops.worker.server.reads import TAKE_OVER, HistoryReader, ReadCommands, ReadResult
from pelops.worker.server.refusals import Refusals
from pelops.worker.server.script_commands import Names, Parts, command_of, worker_script
from pelops.worker.settings import WorkerPlace


class _Begun(NamedTuple):
    now_ms: Number
    left: Raw | None  # IDs of entries that were started and not finished


_BEGIN: Final = worker_script("begin", _Begun)
_REJECT: Final = worker_script(
    "reject", Literal["rejected", "not-ours", "gone", "too-wide"] | Refusal
)
_RELEASE: Final = worker_script("release", Count)
_LEAVE: Final = worker_script("leave", Literal["removed", "owns-entries", "absent"] | Refusal)


class RedisAdapter:
    """A `GroupAdapter` for Redis or Valkey: standalone, behind Sentinels, or a cluster.

    It uses two connections: one for blocking reads, one for all other commands. Raises InvalidSpec
    when the certificates of the place cannot be read.
    """

    def __init__(self, place: WorkerPlace) -> None:
        endpoint = place.endpoint
        login = Login.of(endpoint, build_ssl_context(endpoint))
        whereabouts = Whereabouts(endpoint, place.keys.slot, login)
        self._place = place
        self._names = Names.of(place)
        self._refusals = Refusals.of_worker(self._names)
        self._reads = Wire(whereabouts, login, place.patience_s, self._refusals)
        self._acts = Wire(whereabouts, login, place.patience_s, self._refusals)
        self._reading = ReadCommands(place, self._names, time.monotonic)
        self._acknowledging = AcknowledgementCommands(self._names, deletes=place.deletes)
        self._history = HistoryReader(self._reads, self._names, self._reading.streams)
        self._name = ConsumerNameOwnership(self._names, place.processing_timeout_ms, time.monotonic)
        self._regaining = asyncio.Lock()
        self._detected_in = 0  # the epoch for which `_reading` holds what the server supports

    @property
    def epoch(self) -> int:
        """Grows when a delivery may have been lost: the worker must then read its history."""
        return self._reads.connections + self._acts.connections

    async def open(self) -> None:
        """Connect, and check that XACKDEL is available if acknowledged entries are deleted."""
        await self._reads.connect()
        await self._acts.connect()
        if self._place.deletes:
            probe = ("XACKDEL", self._names.stream, self._names.group, "ACKED", "IDS", 1, "0-1")
            reply = (await self._acts.send([probe]))[0]
            if isinstance(reply, (UnsupportedServer, PermissionDenied)):
                raise reply

    async def close(self) -> None:
        """Close both connections; commands without a reply raise OutcomeUnknown."""
        await self._reads.close()
        await self._acts.close()

    async def begin(self) -> Boot:
        """Write the boot record of this process, by the server's clock."""
        return await self._begin(self._acts)

    async def read(self, count: int, block_ms: int) -> list[Delivered]:
        """New, idle and offered entries; an empty list at the latest after `block_ms`."""
        await self._regain(self._reads)
        try:
            return await self._read(count, block_ms)
        except asyncio.CancelledError:
            await self._reads.close()  # raises the epoch: the history has what it delivered
            raise

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        """Pending entries of this consumer after the given ID of each key; empty at the end."""
        await self._regain(self._reads)
        left = self._name.left
        return await self._history.read(after, count, {*skip, *left} if left else skip)

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        """Send these commands in one round trip; one more if entries are offered."""
        if self._name.is_taken:
            try:
                await self._regain(self._acts)
            except NameTaken as error:
                return await self._finish(outgoing, error)
        commands, readers = self._acknowledging.build(outgoing, self._name.left)
        command_count = len(commands)
        reports_entries = outgoing.started_ids is not None or bool(outgoing.keeps)
        checks_name = reports_entries and self._name.is_known
        if checks_name:
            commands.append(self._name.read_boot)
        request = None
        if outgoing.read > 0:
            self._redetect_claim()
            request = self._reading.build(outgoing.read, 0)
            commands += request.commands
        if not commands:
            return Exchanged()
        replies = await self._acts.send(commands)
        exchanged = read_replies(replies[:command_count], readers)
        if checks_name:
            self._check_name(replies[command_count], exchanged)
        if request is not None:
            answer = self._reading.interpret(request, replies[command_count + checks_name :])
            exchanged.delivered = await self._claim_offered(self._acts, answer)
            exchanged.problem = exchanged.problem or answer.problem
        return exchanged

    async def reject(self, key: bytes, entry_id: bytes, *, reason: str, error: str) -> bool:
        """Dead-letter an entry; False: this consumer does not own it, or its body was deleted."""
        call = self._names.recording(_REJECT, key, "worker", reason=reason, why=error, id=entry_id)
        answer = _REJECT.read(await self._acts.send_one(call))
        if answer == "too-wide":
            raise RedisError(f"entry {entry_id.decode()} has too many fields for a dead letter")
        if isinstance(answer, Refusal):
            raise self._refused(answer)
        return answer == "rejected"

    async def begin_isolated(self, entry_id: bytes) -> int:
        """Count a run of an entry in isolation; return the runs that began and did not end."""
        count = ("HINCRBY", self._names.worker_state, b"alone:" + entry_id, 1)
        return int(await self._acts.send_one(count))

    async def end_isolated(self, entry_id: bytes) -> None:
        """Reset the count of `begin_isolated`: the run ended and its process did not."""
        await self._acts.send_one(("HDEL", self._names.worker_state, b"alone:" + entry_id))

    async def release(self, ids: Ids) -> int:
        """Release entries that were not started; return how many are available at once."""
        if self._name.is_taken:
            return 0  # the process that owns the name may be processing them
        calls = [self._release(key, some) for key, some in in_chunks(ids)]
        replies = await self._acts.send(calls) if calls else []
        for reply in replies:
            if isinstance(reply, PelopsError):
                raise reply
        return sum(map(_RELEASE.read, replies))

    async def leave(self) -> bool:
        """Remove this worker's consumer if it owns no entries; return whether it is removed."""
        if self._name.is_taken:
            return False
        names = self._names
        call = names.run(_LEAVE, {"others": (names.retry, names.offer_stream)})
        answer = _LEAVE.read(await self._acts.send_one(call))
        if isinstance(answer, Refusal):
            raise self._refused(answer)
        return answer != "owns-entries"

    async def _begin(self, wire: Wire) -> Boot:
        names = self._names
        begun = _BEGIN.read(await wire.send_one(command_of(_BEGIN.call(names, me=names.me))))
        boot = Boot(now_ms=begun.now_ms, left=frozenset((begun.left or b"").split()))
        self._name.begin(boot)
        return boot

    async def _regain(self, wire: Wire) -> None:
        """Begin again if standby is over; otherwise raises NameTaken after a pause."""
        if not self._name.is_taken:
            return
        async with self._regaining:
            if not self._name.is_taken:
                return
            if not self._name.may_begin(await wire.send_one(self._name.read_boot)):
                await asyncio.sleep(self._name.pause_s)
                raise self._name.refusal()
            await self._begin(wire)
            await self._reads.close()  # raises the epoch: the history has what was delivered

    async def _finish(self, outgoing: Outgoing, error: NameTaken) -> Exchanged:
        """Send only acknowledgements and heartbeats: another process owns the name."""
        commands, readers = self._acknowledging.build(
            replace(outgoing, started_ids=None, read=0), ()
        )
        replies = await self._acts.send(commands) if commands else []
        found = read_replies(replies, readers)
        found.problem = found.problem or (error if outgoing.started_ids is not None else None)
        return found

    def _check_name(self, boot: Reply, found: Exchanged) -> None:
        self._name.compare_boot(boot)
        if self._name.is_taken:
            found.problem = found.problem or self._name.refusal()

    async def _read(self, count: int, block_ms: int) -> list[Delivered]:
        delivered: list[Delivered] = []
        while True:
            self._redetect_claim()
            request = self._reading.build(count, 0 if delivered else block_ms)
            checks = [self._name.read_boot] if self._name.is_known else []
            wait_s = request.block_ms / 1000
            replies = await self._reads.send([*checks, *request.commands], wait_s=wait_s)
            if checks:
                self._name.compare_boot(replies[0])
            answer = self._reading.interpret(request, replies[len(checks) :])
            delivered += await self._claim_offered(self._reads, answer)
            if answer.problem is not None and not delivered:
                raise answer.problem
            if delivered or not answer.again:
                return delivered  # even if the name is taken: NameTaken is raised by the next call

    async def _claim_offered(self, wire: Wire, answer: ReadResult) -> list[Delivered]:
        """The delivered entries, and the offered ones after they are claimed."""
        if answer.again:
            wire.reset_backoff()
        if not answer.offers:
            return answer.delivered
        try:
            replies = await wire.send(answer.offers)
        except PelopsError:
            return answer.delivered  # these are delivered; the next scan offers the others again
        taken = [TAKE_OVER.read(reply) for reply in replies if isinstance(reply, list) and reply]
        stream = self._names.stream
        return [
            *answer.delivered,
            *(Delivered(stream, DeliverySource.HANDED_OVER, entries) for entries in taken),
        ]

    def _redetect_claim(self) -> None:
        if self._detected_in != self.epoch:
            self._detected_in = self.epoch
            self._reading.forget()

    def _release(self, key: bytes, ids: Collection[bytes]) -> Parts:
        names, reading = self._names, self._reading
        return names.recording(
            _RELEASE,
            key,
            "release",
            processing_timeout_ms=self._place.processing_timeout_ms,
            may_age=not reading.knows_claim,
            may_offer=key == names.stream and reading.streams.may_offer,
            ids=ids,
        )

    def _refused(self, refusal: Refusal) -> PelopsError:
        match (refusal.verdict, *refusal.names):
            case "wrong-type", key, found:
                return self._refusals.wrong_type(key, found)
            case "no-permission", command, key:
                return self._refusals.denied(command, key)
        return invalid("a script", "its verdict is unknown")
