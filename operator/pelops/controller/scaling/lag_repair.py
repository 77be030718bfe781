"""Corrects the lag that Redis reports for a group, which other programs read too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pelops.controller.group.group_observer import RedisObservation
from pelops.controller.scaling.scaled_resources import Scaled
from pelops.errors import PelopsError
from pelops.redis_streams.group.maintenance import repair_lag

log = logging.getLogger(__name__)

REPAIR_S: Final = 10.0
DENIED_S: Final = 300.0


async def correct_lag(scaled: Scaled, redis: RedisObservation, clock: Callable[[], float]) -> None:
    """Correct the lag of the stream and of the retry stream where an observation found it wrong.

    At most once in `REPAIR_S`; an error is logged, and the next attempt waits for `DENIED_S`.
    """
    stream, server, keys = redis.stream, redis.server, redis.keys
    if stream is None or server is None or keys is None or stream.group is None:
        return
    is_wrong = stream.group.is_lag_repairable
    is_retry_wrong = stream.retry is not None and stream.retry.is_lag_repairable
    if not (is_wrong or is_retry_wrong) or clock() < scaled.repair_after:
        return
    scaled.repair_after = clock() + REPAIR_S
    uid = scaled.resource.metadata.uid
    try:
        if is_wrong:
            await repair_lag(server, keys, uid)
        if is_retry_wrong:
            await repair_lag(server, keys, uid, of_retry=True)
    except PelopsError as error:
        scaled.repair_after = clock() + DENIED_S
        log.info(
            "Could not correct the lag that Redis reports: %s",
            error,
            extra={"resource": "/".join(scaled.name)},
        )
