"""A group's names as they stand in commands."""

from __future__ import annotations

from dataclasses import dataclass

from pelops.redis_core.transport import Part
from pelops.worker.server.place import Place
from pelops.worker.server.scripts import Parts, script_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Bytes, so that nothing is encoded more than once."""

    stream: bytes
    retry: bytes
    handover: bytes
    started: bytes
    state: bytes
    ledger: bytes
    dead_letter: bytes
    group: bytes
    me: bytes
    prefix: bytes

    @classmethod
    def of(cls, place: Place) -> Names:
        """The names of this place."""
        keys = place.keys
        return cls(
            stream=keys.stream.encode(),
            retry=keys.retry.encode(),
            handover=keys.handover.encode(),
            started=keys.started.encode(),
            state=keys.state.encode(),
            ledger=keys.ledger.encode(),
            dead_letter=keys.dead_letter.encode(),
            group=keys.group.encode(),
            me=place.consumer.encode(),
            prefix=place.field_prefix.encode(),
        )

    def recording(self, script: str, key: bytes, trigger: str, *args: Part) -> Parts:
        """A run of a script that may write dead letters about entries of `key`."""
        keys = (key, self.dead_letter, self.ledger, self.state)
        return script_call(script, keys, self.group, self.me, self.prefix, trigger, *args)
