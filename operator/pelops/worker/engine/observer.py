"""Events of a worker, for metrics and for applications."""

from __future__ import annotations

from collections.abc import Sequence

from pelops.worker.entry import Entry


class Observer:
    """Receives the events of a worker, one call for many entries. The base class ignores them.

    Methods are called often and in the event loop: they must be quick and must not raise.
    """

    def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
        """Handlers succeeded; `seconds` has the duration of each, in the same order."""

    def failed(self, entry: Entry, seconds: float, error: BaseException) -> None:
        """The handler raised. `retried` or `rejected` follows."""

    def retried(self, entry: Entry, wait_s: float) -> None:
        """The entry is retried in this worker after `wait_s` seconds."""

    def rejected(self, entry: Entry, reason: str) -> None:
        """The entry was moved to the dead-letter stream."""

    def disowned(self, entry: Entry) -> None:
        """The entry now belongs to another consumer."""

    def acknowledged(self, sent: int, pending: int) -> None:
        """`sent` acknowledgements were sent; `pending` of the entries were still pending."""

    def received(self, entries: int, reclaimed: int) -> None:
        """`entries` were delivered; `reclaimed` of them had been delivered before."""

    def in_flight(self, running: int, waiting: int) -> None:
        """Number of running handlers, and of entries that wait for a slot or a backoff."""

    def refused(self, what: str, error: BaseException) -> None:
        """Redis did not execute `what`: read, exchange or reject."""

    def blocked(self, seconds: float) -> None:
        """The event loop is blocked for `seconds`. Called from another thread."""
