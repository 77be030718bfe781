"""A server that keeps append-only files, and what they say of one group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local_cluster.redis_servers import ServerOptions, StandaloneServers, start_standalone
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.pipeline.evidence import EvidenceLocation, FileEvidence, read_evidence
from tests.pipeline.wire import Wire, Word

KEYS: Final[GroupKeys] = derive_keys("orders", "workers")
FILES: Final = ServerOptions(
    append_only="no",
    config={"aof-timestamp-enabled": "yes", "auto-aof-rewrite-percentage": "0"},
)
VERSIONS: Final = ("8.6", "7.0", "valkey")


@dataclass(slots=True)
class Witnessed:
    """A stream `orders` with a group `workers`; entries are 1-0, 2-0 and so on."""

    servers: StandaloneServers
    wire: Wire
    added: int = 0

    @property
    def directory(self) -> Path:
        return self.servers.server.directory / "appendonlydir"

    def ask(self, *words: Word) -> Any:
        return self.wire.ask(*words)

    def add(self, number: int, value: Word = "v") -> None:
        start, self.added = self.added + 1, self.added + number
        self.wire.ask_all(
            ("XADD", KEYS.stream, f"{one}-0", "f", value) for one in range(start, self.added + 1)
        )

    def create(self, at: str = "0") -> None:
        self.ask("XGROUP", "CREATE", KEYS.stream, KEYS.group, at, "MKSTREAM")

    def read(self, number: int, consumer: str = "a", *options: Word) -> None:
        group = ("GROUP", KEYS.group, consumer, "COUNT", number)
        self.ask("XREADGROUP", *group, *options, "STREAMS", KEYS.stream, ">")

    def acknowledge(self, *numbers: int) -> None:
        self.ask("XACK", KEYS.stream, KEYS.group, *(f"{one}-0" for one in numbers))

    def group(self, what: str, *words: Word) -> None:
        """XGROUP of this group."""
        self.ask("XGROUP", what, KEYS.stream, KEYS.group, *words)

    def rewrite(self) -> None:
        """Have the server begin new files; returns when it has."""
        self.ask("BGREWRITEAOF")
        while "aof_rewrite_in_progress:1" in (info := self.ask("INFO", "persistence").decode()) or (
            "aof_rewrite_scheduled:1" in info
        ):
            pass

    def evidence(self, **changes: Any) -> FileEvidence:
        return read_evidence(EvidenceLocation(directory=self.directory, **changes), [KEYS])

    def rows(self, **changes: Any) -> dict[int, dict[str, Any]]:
        """What the files say of each entry, by the number in its ID."""
        batches = self.evidence(**changes).batches(KEYS.stream, KEYS.group)
        return {row["ms"]: row for batch in batches for row in batch.to_pylist()}

    def fates(self, **changes: Any) -> dict[int, str]:
        return {number: row["fate"] for number, row in self.rows(**changes).items()}

    def proofs(self, **changes: Any) -> dict[int, str | None]:
        return {number: row["proof"] for number, row in self.rows(**changes).items()}


@contextmanager
def witness(version: str, options: ServerOptions = FILES) -> Iterator[Witnessed]:
    """A server of its own, without a password."""
    with start_standalone(version, options=options) as servers:
        wire = Wire(servers.master().port)
        try:
            yield Witnessed(servers, wire)
        finally:
            wire.close()
