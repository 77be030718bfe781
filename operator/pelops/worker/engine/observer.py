"""What a worker tells about itself while it works. Metrics are made from it."""

from __future__ import annotations

from collections.abc import Sequence

from pelops.worker.entry import Entry


class Observer:
    """Told what happens, once for many entries; does nothing by itself.

    Called within the event loop, often: an implementation must be quick and must not raise.
    """

    def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
        """These were handled well; `seconds` each took, in the same order."""

    def failed(self, entry: Entry, seconds: float, error: BaseException) -> None:
        """The handler raised; whether it is retried or rejected is reported separately."""

    def retried(self, entry: Entry, wait_s: float) -> None:
        """It will run here once more."""

    def rejected(self, entry: Entry, reason: str) -> None:
        """It is a dead letter now."""

    def disowned(self, entry: Entry) -> None:
        """It belongs to another worker by now."""

    def acknowledged(self, sent: int, pending: int) -> None:
        """So many acknowledgements went out, of which so many had been pending."""

    def received(self, entries: int, reclaimed: int) -> None:
        """So many came, of which so many had been another worker's."""

    def in_flight(self, running: int, waiting: int) -> None:
        """How many run now, and how many wait for their turn or for their backoff."""

    def refused(self, what: str, error: BaseException) -> None:
        """Redis did not do `what`: read, exchange or reject."""

    def blocked(self, seconds: float) -> None:
        """The event loop stood still for so long, and was spoken for. Called from a thread."""
