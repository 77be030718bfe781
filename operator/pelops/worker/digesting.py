"""What an answer brought, seen to while the server works on what is said next.

None of it is urgent. Done at once, it would keep the server idle, and then the worker while that
works: the two take turns instead of working side by side.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pelops.worker.acknowledging import Heard, Sent
from pelops.worker.reading import Reader
from pelops.worker.server.door import Delivered
from pelops.worker.shared import Shared

log = logging.getLogger("pelops.worker")


@dataclass(slots=True)
class Answered:
    """One exchange that was heard."""

    sent: Sent
    heard: Heard
    delivered: list[Delivered]


class Digesting:
    """Takes in what was delivered, tells the observer what was done, and learns the pace."""

    def __init__(self, shared: Shared, reader: Reader) -> None:
        self.handler_s = 0.0  # how long one takes, lately
        self.repeats = False  # what is acknowledged may have been before
        self._reader = reader
        self._holding = shared.holding
        self._intake = shared.intake
        self._receiving = shared.receiving
        self._observer = shared.observer
        self._put_off: list[Answered] = []

    @property
    def is_owed(self) -> bool:
        """Whether anything is put off."""
        return bool(self._put_off)

    def put_off(self, answered: Answered) -> None:
        """Digest this later; what is to come is known at once."""
        self._put_off.append(answered)
        asked = answered.sent.outgoing.read
        if asked:
            got = self._receiving.put_off(answered.delivered, answered.sent.at_s)
            self._intake.learn(asked=asked, got=got)

    async def digest(self) -> None:
        """See to all that was put off."""
        self._receiving.catch_up()
        for answered in self._put_off:
            self._learn(answered.sent, answered.heard)
        if self._put_off:
            self._put_off.clear()
            self._reader.alarm.ring()

    def _learn(self, sent: Sent, heard: Heard) -> None:
        done, settled = sent.done, heard.settled
        seconds = [entry.seconds for entry in done]
        if done:
            self.handler_s += 0.3 * (sum(seconds) / len(done) - self.handler_s)
            self._observer.acknowledged(len(done), heard.pending)
            self._doubt(len(settled) - heard.pending)
            self.repeats = False
        if settled:
            if settled is not done:
                seconds = [entry.seconds for entry in settled]
            self._observer.finished(settled, seconds)
        self._reader.pace.count(len(done), sent.at_s)
        holding = self._holding
        self._observer.holding(len(holding.running), len(holding) - len(holding.running))

    def _doubt(self, missing: int) -> None:
        if missing > 0 and not self.repeats:
            log.warning(
                "%d acknowledged entries were not pending any more: moved or acknowledged by hand, "
                "or another process uses the same consumer name",
                missing,
            )
