"""Fencing of consumer names: if several processes use one name, the latest owns it.

    A begins and works      B begins under A's name       A reads the boot record with its exchange
    boot record: A's   ->   boot record: B's         ->   it is B's: A is on standby for one
                                                          processing timeout, then it begins again,
                                                          and B is on standby

A restarted process never waits for its predecessor, which is dead or fenced off here. A process on
standby neither reads nor starts entries. It finishes and acknowledges its running entries; the
other process does not touch those, because they are recorded as started. If the other process dies,
the one on standby continues after one processing timeout at the latest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pelops.worker.server.adapter import Boot, NameTaken
from pelops.worker.server.script_commands import Names, Parts

log = logging.getLogger("pelops.worker")

PAUSE_S: Final = 0.5  # between checks of a process on standby


class ConsumerNameOwnership:
    """Whether one process owns its consumer name."""

    def __init__(self, names: Names, processing_timeout_ms: int, now: Callable[[], float]) -> None:
        self.left: frozenset[bytes] = frozenset()  # started by the other process
        self.read_boot: Parts = ("HGET", names.worker_state, b"boot:" + names.me)
        self._name = names.me.decode("utf-8", "replace")
        self._idle_s = processing_timeout_ms / 1000
        self._now = now
        self._boot_ms: int | None = None  # of this process; None: it has not begun
        self._until_s: float | None = None  # end of standby; None: not on standby

    @property
    def is_taken(self) -> bool:
        """Whether this process is on standby."""
        return self._until_s is not None

    @property
    def is_known(self) -> bool:
        """Whether this process has a boot record to compare with."""
        return self._boot_ms is not None

    @property
    def pause_s(self) -> float:
        """Seconds between two checks on standby."""
        return min(PAUSE_S, self._idle_s / 12)

    def begin(self, boot: Boot) -> None:
        """Note that this process has begun, for the first time or again."""
        if self.is_taken:
            self.left = boot.left
            log.warning(
                "resuming as consumer %s: the other process with this name had its processing "
                "timeout",
                self._name,
            )
        self._boot_ms, self._until_s = boot.now_ms, None

    def compare_boot(self, boot: object) -> None:
        """Compare the boot record in Redis: a later one puts this process on standby."""
        if self._boot_ms is None or self.is_taken or not isinstance(boot, bytes):
            return
        if boot.isdigit() and int(boot) > self._boot_ms:
            self._until_s = self._now() + self._idle_s

    def may_begin(self, boot: object) -> bool:
        """Whether this process may begin: there is no boot record, or standby has ended."""
        return boot is None or self._until_s is None or self._now() >= self._until_s

    def refusal(self) -> NameTaken:
        """The error that callers get during standby."""
        return NameTaken(
            f"another process started as consumer {self._name}; this process waits. Give each "
            "process "
            "a unique name: set PELOPS_CONSUMER, or POD_NAME and POD_UID"
        )
