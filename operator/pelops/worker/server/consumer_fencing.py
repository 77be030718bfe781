"""Fencing of consumer names: of several processes with one name, the latest one has it.

    A begins, works         B begins under A's name       A says what it marks, and looks
    boot record: A's   ->   boot record: B's         ->   it is B's: A stands by for an processing
                                                          timeout, then it begins anew, and B stands
                                                          by

So a process that is started again never waits for its predecessor: that one is dead, or it is cut
off here. Whoever stands by reads nothing and starts nothing; what runs already it finishes and
acknowledges, and the other one has left that alone, since it was marked. If the other one is gone
without a word, its entries are worked after an processing timeout at the latest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pelops.worker.server.adapter import Boot, NameTaken
from pelops.worker.server.script_commands import Names, Parts

log = logging.getLogger("pelops.worker")

PAUSE_S: Final = 0.5  # between two questions of a process that stands by


class ConsumerNameOwnership:
    """What one process knows of its name."""

    def __init__(self, names: Names, processing_timeout_ms: int, now: Callable[[], float]) -> None:
        self.left: frozenset[bytes] = frozenset()  # what the other one had started at the last turn
        self.look: Parts = ("HGET", names.worker_state, b"boot:" + names.me)
        self._name = names.me.decode("utf-8", "replace")
        self._idle_s = processing_timeout_ms / 1000
        self._now = now
        self._boot_ms: int | None = None  # ours; None: this process has not begun
        self._until_s: float | None = None  # how long to stand by

    @property
    def is_taken(self) -> bool:
        """Whether this process stands by."""
        return self._until_s is not None

    @property
    def is_known(self) -> bool:
        """Whether looking would tell anything."""
        return self._boot_ms is not None

    @property
    def pause_s(self) -> float:
        """How long to do nothing while standing by."""
        return min(PAUSE_S, self._idle_s / 12)

    def begin(self, boot: Boot) -> None:
        """This process has begun, for the first time or anew."""
        if self.is_taken:
            self.left = boot.left
            log.warning(
                "resuming as consumer %s: the other process with this name had its processing "
                "timeout",
                self._name,
            )
        self._boot_ms, self._until_s = boot.now_ms, None

    def hear(self, boot: object) -> None:
        """The boot record as it stands: of a later process, or of any other after a failover."""
        if self._boot_ms is None or self.is_taken or not isinstance(boot, bytes):
            return
        if boot.isdigit() and int(boot) > self._boot_ms:
            self._until_s = self._now() + self._idle_s

    def may_begin_anew(self, boot: object) -> bool:
        """Whether this process may begin: no other one has the name, or its time is over."""
        return boot is None or self._until_s is None or self._now() >= self._until_s

    def refusal(self) -> NameTaken:
        """What everything is answered with meanwhile."""
        return NameTaken(
            f"another process started as consumer {self._name}; this process waits. Give each "
            "process "
            "a unique name: set PELOPS_CONSUMER, or POD_NAME and POD_UID"
        )
