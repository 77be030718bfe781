"""Who failed, and the suspects that they left: put together from the answers of many batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.liveness import Death
from pelops.domain.recovery import Suspect
from pelops.policy.attempts import Crash
from pelops.redis_streams.recovery import Recovered

_TICK: Final = timedelta(milliseconds=1)


@dataclass(slots=True, kw_only=True)
class Failure:
    """One owner's, while its batches come in."""

    owner: str
    death: Death
    suspects: dict[EntryId, Suspect] = field(default_factory=dict)
    crowd: datetime | None = None

    def add(self, batch: Recovered) -> None:
        """Keep what was answered; batches that were asked for together may answer it twice."""
        self.suspects.update((one.entry_id, one) for one in batch.suspects)
        if batch.crowd is not None:
            self.crowd = max(batch.crowd, self.crowd or batch.crowd)

    def split(self, since: datetime | None) -> tuple[Failure, Failure]:
        """What was delivered before, and the rest. None: all of it was before."""
        before, after = replace(self, suspects={}), replace(self, suspects={})
        for one in self.suspects.values():
            part = before if since is None or one.delivered < since else after
            part.suspects[one.entry_id] = one
        return before, after

    def crashes(
        self,
        cut: datetime | None = None,
        *,
        is_whole: bool = True,
        is_idle: bool = False,
        unproven_since: datetime | None = None,
        is_outdone: bool = False,
    ) -> Iterator[Crash]:
        """The crash, if there are suspects; without a cut it ends with the newest of them.

        `is_whole`: False when the owner may hold suspects that were not looked at. One that was
        found by itself counts then as one of several. `is_idle`: its process goes on.
        """
        if not self.suspects:
            return
        end = cut or max(one.delivered for one in self.suspects.values()) + _TICK
        yield Crash(
            owner=self.owner,
            cut=end,
            death=self.death,
            suspects=tuple(self.suspects.values()),
            crowd=self.crowd if is_whole or len(self.suspects) > 1 else end,
            is_idle=is_idle,
            unproven_since=unproven_since,
            is_outdone=is_outdone,
        )
