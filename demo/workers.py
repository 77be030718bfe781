"""The workers as the API server reported them: which run, which ended, which are deleted."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from demo.following import Line

# One line for each change of a pod; the workers have one container.
PODS = (
    r"jsonpath={.type}{'\t'}{.object.metadata.name}{'\t'}{.object.metadata.uid}{'\t'}"
    r"{.object.status.containerStatuses[0]}{'\n'}"
)
WATCH_PODS = ("get", "pods", "--watch", "--output-watch-events", "-o", PODS)
SECOND_MS = 1000  # what times lose in Kubernetes: they are cut to whole seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker that runs."""

    pod: str
    consumer: str
    process: str  # as the node names it: pid and start, so that a reused pid is never hit


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A worker's process that ended."""

    consumer: str
    process: str
    exit_code: int
    finished_ms: int  # cut to a whole second: it ended within the second after
    reported_ms: int  # when the API server first reported it


@dataclass(slots=True, kw_only=True)
class History:
    """Everything that the API server reported of the workers."""

    running: dict[str, Worker] = field(default_factory=dict)  # by consumer
    ends: dict[str, End] = field(default_factory=dict)  # by process
    # By consumer and process: when it started, in ms cut to a whole second. In their order.
    starts: dict[str, dict[str, int]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)  # by consumer: when its pod was deleted

    def ends_of(self, consumer: str) -> Sequence[End]:
        """The ends of its processes, in the order in which they were reported."""
        return [end for end in self.ends.values() if end.consumer == consumer]

    def select(self, is_wanted: Callable[[str], bool]) -> "History":
        """The history of the wanted consumers alone."""
        return History(
            running={key: value for key, value in self.running.items() if is_wanted(key)},
            ends={key: end for key, end in self.ends.items() if is_wanted(end.consumer)},
            starts={key: value for key, value in self.starts.items() if is_wanted(key)},
            gone={key: value for key, value in self.gone.items() if is_wanted(key)},
        )

    def cutoff_of(self, end: End) -> int | None:
        """Before when this end freed what its process was given, in ms; None: it is not known yet.

        The deletion of a pod has freed everything. Else the start of the next process of the same
        pod counts, which is known in whole seconds.
        """
        if end.consumer in self.gone:
            return self.gone[end.consumer]
        starts = self.starts[end.consumer]
        later = list(starts)[list(starts).index(end.process) + 1 :]
        return starts[later[0]] if later else None


def read_history(lines: Iterable[Line]) -> History:
    """The history in the lines of WATCH_PODS; any other line is left out."""
    history = History()
    for line in lines:
        words = line.text.split(maxsplit=3)  # kubectl makes columns of what tabs separate
        if len(words) > 2 and words[0] in {"ADDED", "MODIFIED", "DELETED"}:
            _read_pod(history, words, line.came_ms)
    return history


def _read_pod(history: History, words: Sequence[str], came_ms: int) -> None:
    kind, pod, uid, *text = words
    consumer = f"{pod}:{uid}"  # as the operator names it in PELOPS_CONSUMER
    container: Mapping[str, Any] = json.loads(text[0]) if text else {}
    for state in (container.get("lastState") or {}, container.get("state") or {}):
        _read_state(history, consumer, state, came_ms)
    history.running.pop(consumer, None)
    if kind == "DELETED":
        history.gone[consumer] = came_ms
    elif "running" in (container.get("state") or {}):
        process = str(container["containerID"])
        history.running[consumer] = Worker(pod=pod, consumer=consumer, process=process)
        _read_start(history, consumer, process, container["state"]["running"])


def _read_state(history: History, consumer: str, state: Mapping[str, Any], came_ms: int) -> None:
    ended = state.get("terminated")
    if not ended or not ended.get("containerID"):
        return
    process = str(ended["containerID"])
    _read_start(history, consumer, process, ended)
    end = End(
        consumer=consumer,
        process=process,
        exit_code=int(ended["exitCode"]),
        finished_ms=parse_ms(ended["finishedAt"]),
        reported_ms=came_ms,
    )
    history.ends.setdefault(process, end)


def _read_start(history: History, consumer: str, process: str, state: Mapping[str, Any]) -> None:
    starts = history.starts.setdefault(consumer, {})
    starts.setdefault(process, parse_ms(state["startedAt"]))


def parse_ms(text: str) -> int:
    """A time of Kubernetes in milliseconds."""
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
