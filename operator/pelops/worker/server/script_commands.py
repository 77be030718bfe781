"""A worker's commands: the names of its group as bytes, and runs of the scripts in `lua/`.

These scripts include those of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pelops.redis_core.commands import Part
from pelops.scripts.answers import AnswerT
from pelops.scripts.calls import Script, ScriptCall, load_script
from pelops.scripts.declaration import WORKER_SCRIPTS
from pelops.worker.settings import WorkerPlace

if TYPE_CHECKING:
    from typing_extensions import TypeForm

_TEXTS: Final[dict[str, str]] = {}  # of the scripts, by SHA1
Parts = tuple[Part, ...]  # one command


def worker_script(name: str, answers: TypeForm[AnswerT]) -> Script[AnswerT]:
    """The script `lua/<name>.lua` of the worker, with its answers."""
    script = load_script(name, answers, WORKER_SCRIPTS)
    _TEXTS[script.sha] = script.text
    return script


def command_of(call: ScriptCall) -> Parts:
    """The command that runs a script by its SHA1, which the server must have cached."""
    return call.by_sha().parts


def with_text(command: Parts) -> Parts:
    """The same run with the script's text, for a server that has not cached it."""
    return ("EVAL", _TEXTS[str(command[1])], *command[2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The keys, group and consumer of a worker, encoded once."""

    stream: bytes
    retry: bytes
    offer_stream: bytes
    started: bytes
    worker_state: bytes
    worker_ledger: bytes
    dead_letter: bytes
    group: bytes
    me: bytes
    prefix: bytes

    @classmethod
    def of(cls, place: WorkerPlace) -> Names:
        """Encode the names of this place."""
        keys = place.keys
        return cls(
            stream=keys.stream.encode(),
            retry=keys.retry.encode(),
            offer_stream=keys.offer_stream.encode(),
            started=keys.started.encode(),
            worker_state=keys.worker_state.encode(),
            worker_ledger=keys.worker_ledger.encode(),
            dead_letter=keys.dead_letter.encode(),
            group=keys.group.encode(),
            me=place.consumer.encode(),
            prefix=place.field_prefix.encode(),
        )

    def by_name(self) -> dict[str, bytes]:
        """The keys by their names in scripts."""
        return {
            "stream": self.stream,
            "dead_letter": self.dead_letter,
            "worker_ledger": self.worker_ledger,
            "worker_state": self.worker_state,
            "started": self.started,
            "retry": self.retry,
            "offer_stream": self.offer_stream,
        }

    def run(
        self, script: Script[Any], special: Mapping[str, Part | Sequence[Part]], /, **args: object
    ) -> Parts:
        """A run of a script as this consumer; `special` are keys that `by_name` does not have."""
        return command_of(script.call(self, special, group=self.group, me=self.me, **args))

    def recording(self, script: Script[Any], key: bytes, trigger: str, **args: object) -> Parts:
        """A run of a script that may write dead letters about entries of `key`."""
        return self.run(script, {"source": key}, prefix=self.prefix, trigger=trigger, **args)
