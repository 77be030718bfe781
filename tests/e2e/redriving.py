"""Dead letters of a group, the redrives that move them, and workers that fail on some entries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from local_cluster.processes import wait_until
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.domain.recovery import LetterReason
from tests.e2e.declaring import WAIT_S, Object
from tests.e2e.recovering import Fields, Group

REDRIVE = "after-fix"
BATCH = 1000


class Redrives:
    """The redrives of one group, as a user handles them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.resources = group.resources

    def add_letters(
        self,
        count: int,
        *,
        reason: str = LetterReason.MAX_RETRIES,
        error: str = "boom",
        **fields: str,
    ) -> list[str]:
        """Add dead letters, each of an entry `n`; their IDs."""
        added: list[str] = []
        for start in range(0, count, BATCH):
            with self.group.redis.pipeline(transaction=False) as together:
                for number in range(start, min(start + BATCH, count)):
                    own = {"n": str(number), **fields}
                    letter = letter_of(self.group, own, f"{number + 1}-1", reason, error)
                    together.xadd(self.group.keys.dead_letter, letter)
                added += together.execute()
        return added

    def create(self, name: str = REDRIVE, *, group: str | None = None, **spec: Any) -> None:
        """kubectl apply of a redrive, by default of all dead letters."""
        self.resources.apply_raw(
            {
                "apiVersion": "pelops.dev/v1alpha1",
                "kind": "StreamRedrive",
                "metadata": {"name": name, "annotations": {"pelops.dev/requested-by": "jane"}},
                "spec": {"groupRef": {"name": group or self.group.name}, **spec},
            }
        )

    def patch(self, name: str = REDRIVE, **spec: Any) -> None:
        """Change the spec of a redrive that is there."""
        changed = {name: value for name, value in self.spec(name).items() if name != "groupRef"}
        self.create(name, **{**changed, **spec})

    def delete(self, name: str = REDRIVE) -> None:
        """kubectl delete."""
        namespace = self.resources.namespace
        self.resources.plane.kubectl("delete", "srd", name, "-n", namespace)

    def spec(self, name: str = REDRIVE) -> Object:
        found = self.resources.get("srd", name)
        assert found is not None
        spec: Object = found["spec"]
        return spec

    def status(self, name: str = REDRIVE) -> Object:
        """The status; empty while there is none."""
        status: Object = (self.resources.get("srd", name) or {}).get("status") or {}
        return status

    def conditions(self, name: str = REDRIVE) -> dict[str, Object]:
        """The conditions by their types."""
        return {one["type"]: one for one in self.status(name).get("conditions") or ()}

    def await_reason(
        self, reason: str, name: str = REDRIVE, *, kind: str = "Ready", timeout_s: float = WAIT_S
    ) -> Object:
        """The status, once this condition has this reason."""

        def look() -> Object | None:
            status = self.status(name)
            found = {one["type"]: one for one in status.get("conditions") or ()}
            return status if found.get(kind, {}).get("reason") == reason else None

        return self._until(look, f"{kind} {reason}", name, timeout_s)

    def await_status(
        self, test: Callable[[Object], bool], what: str, name: str = REDRIVE
    ) -> Object:
        """The status, once it passes a test."""

        def look() -> Object | None:
            status = self.status(name)
            return status if test(status) else None

        return self._until(look, what, name, WAIT_S)

    def _until(
        self, look: Callable[[], Object | None], what: str, name: str, timeout_s: float
    ) -> Object:
        try:
            found = wait_until(look, timeout_s=timeout_s, what=what, every_s=0.1)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {self.status(name)}") from error
        assert found is not None
        return found


def letter_of(group: Group, own: Fields, root: str, reason: str, error: str) -> Fields:
    """The fields of a dead letter of an entry with these fields of its own."""
    named = {
        "original_id": root,
        "stream": group.stream,
        "group": group.keys.group,
        "consumer": "web-1",
        "delivery_count": "4",
        "retry_count": "3",
        "reason": reason,
        "error": error,
    }
    return {**own, **{f"_{name}": named.get(name, "1760000000000") for name in LETTER_FIELDS}}


class Workers:
    """Workers that acknowledge each entry, but for those that fail: these become dead letters."""

    def __init__(self, group: Group, fails: Callable[[Fields], bool]) -> None:
        self.group = group
        self.done: list[Fields] = []  # that were acknowledged
        self.failed: list[Fields] = []
        self._fails = fails
        self._stop = threading.Event()
        self._redis: Any = redis.Redis.from_url(group.url, decode_responses=True)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=WAIT_S)

    def _run(self) -> None:
        keys = self.group.keys
        while not self._stop.is_set():
            try:
                read = {keys.stream: ">"}
                answer = self._redis.xreadgroup(keys.group, "web-1", read, 500, block=50)
                for _, entries in answer:
                    self._process(entries)
            except redis.RedisError:
                self._stop.wait(0.1)

    def _process(self, entries: list[tuple[str, Fields]]) -> None:
        keys = self.group.keys
        with self._redis.pipeline(transaction=True) as together:
            for entry_id, fields in entries:
                together.xack(keys.stream, keys.group, entry_id)
                if self._fails(fields):
                    root = fields["_original_id"]
                    own = {
                        name: value
                        for name, value in fields.items()
                        if name not in {"_original_id", "_retry_count"}
                    }
                    letter = letter_of(self.group, own, root, LetterReason.MAX_RETRIES, "boom")
                    together.xadd(keys.dead_letter, letter)
            together.execute()
        for _, fields in entries:
            (self.failed if self._fails(fields) else self.done).append(fields)


@contextmanager
def workers(group: Group, fails: Callable[[Fields], bool] = lambda _: False) -> Iterator[Workers]:
    """Workers that run meanwhile."""
    running = Workers(group, fails)
    running.start()
    try:
        yield running
    finally:
        running.stop()
