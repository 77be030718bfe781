"""How the number of workers followed the backlog, over time. Pure: facts in, facts out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from demo.following import Line

# One line for each change of a Deployment.
REPLICAS = (
    r"jsonpath={.type}{'\t'}{.object.metadata.name}{'\t'}w{.object.spec.replicas}{'\t'}"
    r"r{.object.status.readyReplicas}{'\n'}"
)
WATCH_REPLICAS = ("get", "deployments", "--watch", "--output-watch-events", "-o", REPLICAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacklog:
    """The backlog of a consumer group."""

    pending: int
    lag: int | None  # None: unknown to Redis

    @property
    def is_empty(self) -> bool:
        """Whether every entry was delivered and acknowledged, for certain."""
        return self.pending == 0 and self.lag == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The backlog at one moment."""

    at_ms: int
    backlog: GroupBacklog


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many workers there were from this moment on."""

    at_ms: int
    wanted: int
    ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """All of it, in the order of time."""

    first_ms: int  # when the first entry was added
    looks: Sequence[Look]
    counts: Sequence[Count]

    @property
    def before(self) -> Sequence[Count]:
        """The workers until the first entry was added."""
        return [count for count in self.counts if count.at_ms <= self.first_ms]

    @property
    def wanted_after_ms(self) -> int | None:
        """How long after the first entry a worker was wanted; None: never."""
        return self._after([count for count in self.counts if count.wanted])

    @property
    def ready_after_ms(self) -> int | None:
        """How long after the first entry a worker was ready; None: never."""
        return self._after([count for count in self.counts if count.ready])

    @property
    def most_ready(self) -> int:
        """The most workers that were ready at once."""
        return max((count.ready for count in self.counts), default=0)

    @property
    def most_wanted(self) -> int:
        """The most workers that were wanted at once."""
        return max((count.wanted for count in self.counts), default=0)

    @property
    def settled_ms(self) -> int | None:
        """When the backlog was empty, and nothing came after; None: the backlog is not empty."""
        since = None
        for look in self.looks:
            if not look.backlog.is_empty:
                since = None
            elif since is None:
                since = look.at_ms
        return since

    @property
    def zeros(self) -> Sequence[int]:
        """Each time at which the last worker was no longer wanted, in ms."""
        pairs = zip(self.counts, self.counts[1:], strict=False)
        return [after.at_ms for before, after in pairs if before.wanted and not after.wanted]

    @property
    def zeros_with_backlog(self) -> Sequence[int]:
        """Those of `zeros` at which the backlog was not empty, as far as was looked."""
        return [at_ms for at_ms in self.zeros if not self._is_settled(at_ms)]

    def _is_settled(self, at_ms: int) -> bool:
        past = [look for look in self.looks if self.first_ms < look.at_ms <= at_ms]
        return bool(past) and past[-1].backlog.is_empty

    def _after(self, counts: Sequence[Count]) -> int | None:
        return counts[0].at_ms - self.first_ms if counts else None


def read_counts(lines: Iterable[Line], name: str) -> list[Count]:
    """What the lines of WATCH_REPLICAS report this Deployment; any other line is left out."""
    counts = []
    for line in lines:
        words = line.text.split()  # kubectl makes columns of what tabs separate
        if len(words) == 4 and words[0] in {"ADDED", "MODIFIED"} and words[1] == name:
            wanted, ready = (int(word[1:] or 0) for word in words[2:])
            counts.append(Count(at_ms=line.came_ms, wanted=wanted, ready=ready))
    return counts
