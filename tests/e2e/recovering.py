"""Groups whose workers are real pods, the hands that read for them, and what became of entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import redis
from prometheus_client.parser import text_string_to_metric_families

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import LedgerEvent, LedgerKind, parse_ledger_event
from pelops.domain.records.state import SCAN_AT
from tests.api_objects import list_objects
from tests.e2e.declaring import NAME, WAIT_S, Object, a_spec
from tests.e2e.worker_pods import Pod, read_pod
from tests.operators import Operators, Resources, metrics

T = TypeVar("T")
Fields = dict[str, str]

# More than clocks may differ (2 s), and than Kubernetes cuts off its times (1 s).
LONG_BEFORE_MS = 3_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A line of XPENDING."""

    owner: str
    idle_ms: int
    deliveries: int


class Group:
    """One resource, its stream and its workers' pods.

    The pods only live: what a worker would read and acknowledge the test does in its name, so that
    it knows who holds what.
    """

    def __init__(
        self,
        resources: Resources,
        servers: RedisServers,
        stream: str,
        *,
        name: str = NAME,
        group: str = NAME,
    ) -> None:
        self.resources = resources
        self.name = name
        self.url = servers.url
        self.keys = derive_keys(stream, group)
        self.connect(servers.url)

    def connect(self, url: str) -> None:
        """Ask another server from now on: the one that became master."""
        self.redis: Any = redis.Redis.from_url(url, decode_responses=True)

    @property
    def stream(self) -> str:
        """The stream of the group."""
        return self.keys.stream

    def apply(self, *, recovery: Object | None = None, **more: Any) -> None:
        """Declare it, by default scanned each second."""
        scanned = {"scanPeriodSeconds": 1, **(recovery or {})}
        more = {"redis": {"url": self.url}, "group": self.keys.group, **more}
        spec = a_spec("", self.stream, recovery=scanned, **more)
        self.resources.apply(self.name, spec)

    def declare(self, workers: int = 0, **more: Any) -> list[Pod]:
        """Declare it and wait until it is ready; its pods, by name."""
        self.apply(replicas=workers, **more)
        return self.await_pods(workers)

    def await_pods(self, count: int) -> list[Pod]:
        """The running pods, once there are so many and the group is ready."""
        self.resources.await_condition(self.name, reason="Ready")
        self.until(lambda: len(self.pods()) == count, f"{count} pods")
        return self.pods()

    def await_pods_other_than(self, gone: Pod) -> list[Pod]:
        """The running pods, once this one is deleted altogether and another runs in its place."""
        self.until(lambda: self.resources.get("pod", gone.name) is None, f"no {gone.name}")
        return self.until(self.pods, "another pod")

    def pods(self, container: str = "worker") -> list[Pod]:
        """The pods whose container runs and that are not on their way out."""
        found = (read_pod(one, container) for one in self.manifests())
        return sorted((pod for pod in found if pod is not None), key=lambda pod: pod.name)

    def manifests(self) -> list[Object]:
        """The pods of its workers as the API server has them."""
        items = list_objects(self.resources.plane, self.resources.namespace, "pod")
        prefix = f"{self.name}-workers-"
        return [one for one in items if one["metadata"]["name"].startswith(prefix)]

    def delete_pod(self, pod: Pod) -> None:
        """kubectl delete pod, without waiting for its end."""
        namespace = self.resources.namespace
        self.resources.plane.kubectl("delete", "pod", pod.name, "-n", namespace, "--wait=false")

    def await_restart(self, pod: Pod, container: str = "worker") -> Pod:
        """The pod once its container runs again."""

        def found() -> Pod | None:
            again = {one.uid: one for one in self.pods(container)}.get(pod.uid)
            return again if again is not None and again.restarts > pod.restarts else None

        again = self.until(found, f"{pod.name} to run again")
        assert again is not None
        return again

    def add(self, count: int, **fields: str) -> list[str]:
        """Add entries; their IDs."""
        with self.redis.pipeline(transaction=False) as together:
            for number in range(count):
                together.xadd(self.stream, {"n": str(number), **fields})
            added: list[str] = together.execute()
        return added

    def deliver(self, consumer: str, count: int, *, stream: str | None = None) -> list[str]:
        """Have a consumer read that many entries; their IDs."""
        ids = [entry_id for entry_id, _ in self.read(consumer, count, stream=stream)]
        assert len(ids) == count, f"{consumer} was given {ids}"
        return ids

    def read(
        self, consumer: str, count: int, *, stream: str | None = None
    ) -> list[tuple[str, Fields]]:
        """Have a consumer read up to so many entries."""
        read = {stream or self.stream: ">"}
        answer = self.redis.xreadgroup(self.keys.group, consumer, read, count)
        return [entry for _, entries in answer for entry in entries]

    def give(self, consumer: str, count: int, **fields: str) -> list[str]:
        """Add entries and have a consumer read them."""
        added = self.add(count, **fields)
        delivered = self.deliver(consumer, count)
        assert delivered == added
        return delivered

    def age(self, ids: Iterable[str], idle_ms: int) -> None:
        """Make pending entries as old as if they had been delivered so long ago."""
        owners, key, group = self.owners(), self.stream, self.keys.group
        with self.redis.pipeline(transaction=True) as together:
            for one in ids:
                together.xclaim(key, group, owners[one], 0, [one], idle=idle_ms, justid=True)
            together.execute()

    def acknowledge(self, ids: Iterable[str]) -> None:
        """XACK."""
        self.redis.xack(self.stream, self.keys.group, *ids)

    def pending(self, stream: str | None = None) -> dict[str, Pending]:
        """All pending entries by their IDs."""
        lines = self.redis.xpending_range(stream or self.stream, self.keys.group, "-", "+", 10_000)
        return {
            line["message_id"]: Pending(
                owner=line["consumer"],
                idle_ms=line["time_since_delivered"],
                deliveries=line["times_delivered"],
            )
            for line in lines
        }

    def owners(self) -> dict[str, str]:
        """Whose the pending entries are, by their IDs."""
        return {entry_id: line.owner for entry_id, line in self.pending().items()}

    def copies(self, stream: str | None = None) -> dict[str, Fields]:
        """The copies by the IDs of the entries that they are of; no entry may have two."""
        entries = self.redis.xrange(stream or self.stream)
        copies = [fields for _, fields in entries if "_original_id" in fields]
        roots = [fields["_original_id"] for fields in copies]
        assert len(set(roots)) == len(roots), f"an entry was copied twice: {roots}"
        return dict(zip(roots, copies, strict=True))

    def letters(self) -> list[Fields]:
        """The dead letters, the oldest first."""
        return [fields for _, fields in self.redis.xrange(self.keys.dead_letter)]

    def consumers(self) -> set[str]:
        """The names of the consumers that the group knows."""
        found = self.redis.xinfo_consumers(self.stream, self.keys.group)
        return {one["name"] for one in found}

    def ledger(self, *kinds: LedgerKind) -> list[LedgerEvent]:
        """The events of these kinds, the oldest first."""
        events = [_event_of(*one) for one in self.redis.xrange(self.keys.ledger)]
        return [event for event in events if event.kind in kinds]

    def await_act(self, kind: LedgerKind) -> LedgerEvent:
        """The first event of this kind, as soon as the ledger has it."""
        after, until = "0-0", time.monotonic() + WAIT_S
        while time.monotonic() < until:
            for _, added in self.redis.xread({self.keys.ledger: after}, block=1000):
                for entry_id, fields in added:
                    after = entry_id
                    if (event := _event_of(entry_id, fields)).kind == kind:
                        return event
        raise TimeoutError(f"no {kind} in the ledger within {WAIT_S:.0f} s")

    def recorded(self, kind: LedgerKind) -> list[str]:
        """The entries that the ledger names in acts of this kind, one for each time."""
        return [str(one.entry_id) for event in self.ledger(kind) for one in event.entries]

    def position(self) -> str:
        """The group's last-delivered-id."""
        found = {one["name"]: one for one in self.redis.xinfo_groups(self.stream)}
        return str(found.get(self.keys.group, {}).get("last-delivered-id", ""))

    def measured(self, operators: Operators, metric: str, **labels: str) -> float:
        """The sum of a metric of this group over all replicas."""
        ours = {"namespace": self.resources.namespace, "name": self.name}
        return measured(operators, metric, **ours, **labels)

    def reported(self, part: str) -> Object:
        """A part of `status`, such as `recovery`; empty while there is none."""
        found: Object = (self.resources.get("scg", self.name) or {}).get("status") or {}
        return found.get(part) or {}

    def await_reported(self, **numbers: Any) -> None:
        """Wait until `status.recovery` holds these."""
        self.until(
            lambda: numbers.items() <= self.reported("recovery").items(), f"{numbers} in status"
        )

    def await_event(self, reason: str) -> Object:
        """The Event of this reason; there may be one alone."""

        def reported() -> list[Object]:
            return [one for one in self.resources.events(self.name) if one["reason"] == reason]

        events = self.until(reported, f"the Event {reason}")
        assert len(events) == 1, [event["note"] for event in events]
        return events[0]

    def await_moved(self, ids: Iterable[str], timeout_s: float = WAIT_S) -> None:
        """Wait until none of these is pending."""
        wanted = set(ids)
        self.until(lambda: not wanted & self.pending().keys(), f"{wanted} to move", timeout_s)

    def await_scans(self, count: int = 2) -> None:
        """Wait until so many scans have begun from now on: the last but one has seen all."""
        for _ in range(count):
            self.await_scan_since(self.now_ms())

    def await_scan_since(self, moment_ms: int) -> None:
        """Wait until a scan has begun that is later than this by Redis' clock."""
        self.until(lambda: self._scanned_at() > moment_ms, "a scan")

    def now_ms(self) -> int:
        """Redis' TIME."""
        seconds, micros = self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def await_idle(self, ids: Iterable[str], idle_ms: int) -> None:
        """Wait until these were delivered that long ago."""
        wanted = set(ids)

        def are_idle() -> bool:
            lines = self.pending()
            return all(lines[one].idle_ms >= idle_ms for one in wanted)

        self.until(are_idle, f"{wanted} to be idle for {idle_ms} ms")

    def until(self, condition: Callable[[], T], what: str, timeout_s: float = WAIT_S) -> T:
        """The first truthy answer."""
        return wait_until(condition, timeout_s=timeout_s, what=what, every_s=0.1)

    def _scanned_at(self) -> int:
        return int(self.redis.hget(self.keys.state, SCAN_AT) or 0)


def _event_of(entry_id: str, fields: Mapping[str, str]) -> LedgerEvent:
    pairs = {name.encode(): value.encode() for name, value in fields.items()}
    return parse_ledger_event(parse_entry_id(entry_id), pairs)


def measured(operators: Operators, metric: str, **labels: str) -> float:
    """The sum of a metric over all replicas and over all labels that are not given."""
    samples = (
        sample
        for port in operators.ports
        for family in text_string_to_metric_families(metrics(port))
        for sample in family.samples
    )
    return sum(
        sample.value
        for sample in samples
        if sample.name == metric and labels.items() <= sample.labels.items()
    )


@contextmanager
def paused(operators: Operators) -> Iterator[None]:
    """Replicas that hang meanwhile: what happens now they see all at once, and later."""
    for process in operators.processes:
        process.pause()
    try:
        yield
    finally:
        for process in operators.processes:
            process.resume()


def retries(copies: dict[str, Fields], ids: Iterable[str]) -> set[str]:
    """What `_retry_count` the copies of these entries have."""
    return {copies[one]["_retry_count"] for one in ids}
