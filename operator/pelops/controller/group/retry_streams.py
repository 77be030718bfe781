"""Which groups still have a retry stream that their resource no longer asks for.

The key is named to no script before it is known to exist: an absent one stops every script while a
cluster migrates its slot. So it is asked for by itself, seldom, and by every replica for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.recent import Recent
from pelops.domain.naming import GroupKeys
from pelops.errors import PelopsError
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.redis_core.server import Server
from pelops.redis_streams.group.retry_stream import has_retry_stream

log = logging.getLogger(__name__)

KNOWN_S: Final = 30.0  # an answer counts for so long
REMEMBERED: Final = 10_000  # answers


@dataclass(frozen=True, slots=True)
class _Answer:
    generation: int
    key: str
    found: bool
    until: float


class FormerRetryStreams:
    """Remembers for a while what Redis answered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: Recent[str, _Answer] = Recent(REMEMBERED)

    async def is_left(self, resource: StreamConsumerGroup, server: Server, keys: GroupKeys) -> bool:
        """Whether the resource asks for no retry stream and there is one. Does not raise.

        When Redis does not answer, the last answer counts.
        """
        if needs_retry_stream(resource.spec):
            return False
        metadata = resource.metadata
        known = self._answers.get(metadata.uid)
        if known is not None and known.key != keys.retry:
            known = None
        if (
            known is not None
            and known.generation == metadata.generation
            and self._clock() < known.until
        ):
            return known.found
        try:
            found = await has_retry_stream(server, keys)
        except PelopsError as error:
            where = {"resource": metadata.key}
            log.debug("cannot see whether %s exists: %s", keys.retry, error, extra=where)
            return known is not None and known.found
        until = self._clock() + KNOWN_S
        self._answers[metadata.uid] = _Answer(metadata.generation, keys.retry, found, until)
        return found
